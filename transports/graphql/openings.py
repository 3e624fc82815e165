"""The slots and group consumers that clients of a server have open."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from publishers.groups import GroupMember
from publishers.slots.slot import Slot
from transports.access.principal import Principal
from transports.codec.groups import JoinRequest
from transports.errors import ConsumerNotJoined, SlotNotOpen

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["NOTHING_OPEN", "OpenedMember", "OpenedSlot", "Openings"]

OpenedSlot = Callable[["ChangeLog", str, str, Principal], Slot]
"""Finds the open slot of a log, given its name, the client's id of the opening, and the principal; raises ``SlotNotOpen``."""

OpenedMember = Callable[["ChangeLog", JoinRequest, Principal], GroupMember]
"""Finds the consumer of a group, likewise; raises ``ConsumerNotJoined``."""


def _none_open(_: "ChangeLog", name: str, opening: str, __: Principal) -> Slot:
    raise SlotNotOpen(name, opening)


def _none_joined(_: "ChangeLog", request: JoinRequest, __: Principal) -> GroupMember:
    raise ConsumerNotJoined(request.group, request.consumer, request.opening or "")


class Openings(NamedTuple):
    """Finds open slots and consumers for resolvers; the default suits a server that opens none."""

    slot: OpenedSlot = _none_open
    member: OpenedMember = _none_joined


NOTHING_OPEN: Final = Openings()

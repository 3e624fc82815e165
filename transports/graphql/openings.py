"""What clients of a server have open: slots, and the consumers that they have joined as."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from publishers.groups import GroupMember
from publishers.slots.slot import Slot
from transports.access.principal import Principal
from transports.codec.groups import JoinWish
from transports.errors import ConsumerNotJoined, SlotNotOpen

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["NOTHING_OPEN", "OpenedMember", "OpenedSlot", "Openings"]

OpenedSlot = Callable[["ChangeLog", str, str, Principal], Slot]
"""Finds the slot of a log, by its name and by what a principal calls its opening; raises ``SlotNotOpen``."""

OpenedMember = Callable[["ChangeLog", JoinWish, Principal], GroupMember]
"""Finds the consumer of a group, likewise; raises ``ConsumerNotJoined``."""


def _none_open(_: "ChangeLog", name: str, opening: str, __: Principal) -> Slot:
    raise SlotNotOpen(name, opening)


def _none_joined(_: "ChangeLog", wish: JoinWish, __: Principal) -> GroupMember:
    raise ConsumerNotJoined(wish.group, wish.consumer, wish.opening or "")


class Openings(NamedTuple):
    """How resolvers find what a client has open; by itself, of a server that opens nothing."""

    slot: OpenedSlot = _none_open
    member: OpenedMember = _none_joined


NOTHING_OPEN: Final = Openings()

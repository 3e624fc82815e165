"""Operations on slots, other than opening one."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from publishers.criteria.criteria import Criteria
from publishers.slots.errors import NoSuchSlot
from publishers.slots.record import Granularity
from transports.access.grant import LogAction
from transports.codec.fields import Name
from transports.codec.slots import SlotInfo, slot_json
from transports.codec.starts import place_of
from transports.codec.stored import stored_slot, stored_slots_of
from transports.errors import Forbidden
from transports.operations.operation import Family, LogOperation, Target

if TYPE_CHECKING:
    from publishers.slots.state import SlotStatistics

__all__ = [
    "SLOTS",
    "CreateSlot",
    "DropSlot",
    "ListSlots",
    "PauseSlot",
    "ResumeSlot",
    "SeekSlot",
    "ShowSlot",
    "SlotOperation",
]


class SlotOperation(LogOperation[list[SlotInfo]], frozen=True, kw_only=True):
    """An operation on one slot; its answer is the slot afterwards.

    Attributes:
        name: The name of the slot.
    """

    message: ClassVar[str] = "slot"
    name: Name

    def run(self, target: Target, /) -> list[SlotInfo]:
        """Carries it out, if the grant names the slot."""
        target.grant.check_slot(self.name)
        found = self.do(target)
        return [] if found is None else [slot_json(target.name, found, target.log.token)]

    @abstractmethod
    def do(self, target: Target, /) -> "SlotStatistics | None":
        """Carries it out for a client that may use the slot; returns None if there is none afterwards."""
        ...


class ListSlots(LogOperation[list[SlotInfo]], frozen=True, kw_only=True, tag="list"):
    """Lists the slots that the grant names, by name."""

    message: ClassVar[str] = "slot"
    stored: ClassVar[bool] = True

    def run(self, target: Target, /) -> list[SlotInfo]:
        """Lists them."""
        name, log, grant = target
        if log.read_only:
            return _stored(target)
        return [slot_json(name, log.slots.info(one), log.token) for one in log.slots if grant.names_slot(one)]


class ShowSlot(SlotOperation, frozen=True, kw_only=True, tag="info"):
    """Shows the state of a slot: its position, its lag, and whether its history is retained."""

    stored: ClassVar[bool] = True

    def run(self, target: Target, /) -> list[SlotInfo]:
        """Shows it."""
        if not target.log.read_only:
            return super().run(target)
        if LogAction.CONSUME in target.grant.actions:
            target.grant.check_slot(self.name)
        slots = {one.name: one for one in _stored(target)}
        if self.name not in slots:
            raise NoSuchSlot(self.name, slots)
        return [slots[self.name]]

    def do(self, target: Target, /) -> "SlotStatistics":
        """Shows it."""
        return target.log.slots.info(self.name)


class CreateSlot(SlotOperation, frozen=True, kw_only=True, tag="create"):
    """Creates a slot, durably.

    Attributes:
        since: A cursor at which the slot begins.
        start: Another start position; the next version if neither is given.
        criteria: The changes that the slot delivers; None for all, or with ``copy_from`` for those of that slot.
        granularity: Whether the position may lie inside a transaction.
        copy_from: The slot whose position is copied instead.
        paused: Whether the slot delivers nothing until it is resumed.
    """

    since: str | None = None
    start: Any = None
    criteria: list[Any] | None = None
    granularity: Granularity = "transaction"
    copy_from: Name | None = None
    paused: bool = False

    def check(self) -> None:
        """Checks position and criteria."""
        place_of(self.since, self.start)
        Criteria.from_json(self.criteria or [])

    def do(self, target: Target, /) -> "SlotStatistics":
        """Creates it, if the grant names the copied slot too and has room."""
        if self.copy_from is not None:
            target.grant.check_slot(self.copy_from)
        target.grant.check_room(target.log, "slots")
        where = (
            {"since": place_of(self.since, self.start)}
            if self.copy_from is None
            else {"copy_from": self.copy_from}
        )
        criteria = None if self.criteria is None else Criteria.from_json(self.criteria)
        return target.log.slots.create(
            self.name, criteria, granularity=self.granularity, paused=self.paused, **where
        )


class SeekSlot(SlotOperation, frozen=True, kw_only=True, tag="seek"):
    """Moves a slot that no consumer has open, also a lost one, durably.

    Attributes:
        since: A cursor, the new position.
        start: Another new position; the next version if neither is given.
    """

    since: str | None = None
    start: Any = None

    def check(self) -> None:
        """Checks the position."""
        place_of(self.since, self.start)

    def do(self, target: Target, /) -> "SlotStatistics":
        """Moves it."""
        return target.log.slots.seek(self.name, place_of(self.since, self.start))


class PauseSlot(SlotOperation, frozen=True, kw_only=True, tag="pause"):
    """Pauses the deliveries of a slot until it is resumed, also across restarts of the server."""

    def do(self, target: Target, /) -> "SlotStatistics":
        """Pauses them."""
        target.log.slots.pause(self.name)
        return target.log.slots.info(self.name)


class ResumeSlot(SlotOperation, frozen=True, kw_only=True, tag="resume"):
    """Resumes the deliveries of a paused slot."""

    def do(self, target: Target, /) -> "SlotStatistics":
        """Resumes them."""
        target.log.slots.resume(self.name)
        return target.log.slots.info(self.name)


class DropSlot(SlotOperation, frozen=True, kw_only=True, tag="drop"):
    """Drops a slot that no consumer has open; the log no longer retains history for it."""

    def do(self, target: Target, /) -> None:
        """Drops it."""
        target.log.slots.drop(self.name)


SLOTS: Final = Family(ShowSlot, ListSlots, CreateSlot, SeekSlot, PauseSlot, ResumeSlot, DropSlot)
"""The operations of the message ``slot``."""


def _stored(target: Target) -> list[SlotInfo]:
    """Returns the slots of a log that is followed here as its owner has stored them; with CONSUME, those that the grant names."""
    name, log, grant = target
    if grant.criteria is not None:
        raise Forbidden(
            "action", "that of a client that may see the whole log, as positions cannot be narrowed"
        )
    consumes = LogAction.CONSUME in grant.actions
    found = [stored_slot(name, log, one) for one in stored_slots_of(log)]
    return [one for one in found if not consumes or grant.names_slot(one.name)]

"""Slots on the wire: the slot field of ``subscribe``, and what a server tells of a slot."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from publishers.errors import HistoryPruned
from publishers.model.position import Position
from publishers.slots.slot import Slot
from publishers.slots.state import SlotStatistics
from transports.codec.fields import Generation, Name
from transports.errors import InvalidRequest

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "SlotInfo",
    "SlotLag",
    "SlotReply",
    "SlotRequest",
    "acknowledged",
    "flush",
    "slot_json",
]

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class SlotRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A request to open a slot.

    Attributes:
        name: The name of the slot.
        take_over: Whether to take the slot over from its current consumer.
        generation: The generation of an opening to resume after a lost connection; None for a new one.
        opening: The client's id of this opening, so that a repeated request whose answer was lost does not open it twice.
        owner: The owner that other consumers see; None for the name of the principal.
    """

    name: Name
    take_over: bool | None = None
    generation: Generation | None = None
    opening: _Text | None = None
    owner: _Text | None = None

    def check(self) -> None:
        """Checks what its fields do not say by themselves.

        Raises:
            InvalidRequest: If a generation is to be taken over.
        """
        if self.generation is not None and self.take_over:
            raise InvalidRequest("slot.generation", self.generation, "left out where takeOver is true")


class SlotReply(msgspec.Struct):
    """The ``slot`` field of ``subscribed``.

    Attributes:
        name: The name of the slot.
        generation: The generation of the opening.
        cursor: The next change that is not acknowledged.
        paused: Whether the slot delivers nothing until an operator resumes it.
    """

    name: str
    generation: int
    cursor: str
    paused: bool = False


def acknowledged(log: "ChangeLog", cursor: str) -> Position:
    """Returns the position up to which a cursor acknowledges.

    Raises:
        PositionError: If the cursor does not belong to the log.
    """
    try:
        return log.position_of(cursor)
    except HistoryPruned as error:
        return error.oldest  # far behind the position of the slot, unless the slot is lost


def flush(slot: Slot) -> None:
    """Makes the acknowledgements so far durable, even if further ones arrive meanwhile.

    Raises:
        SlotsUnwritten: If the disk is full or fails.
    """
    while not slot.ack(slot.position, durable=True):
        pass


class SlotLag(msgspec.Struct, frozen=True):
    """The lag of a slot.

    Attributes:
        versions: Versions that its consumer has not acknowledged; None for a stored slot of another history.
        changes: The changes in them; None if no longer known.
        bytes: Their stored bytes; None if no longer known.
        seconds: The age of the oldest.
    """

    versions: int | None
    changes: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class SlotInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A slot on the wire.

    Attributes:
        log: The name by which the client knows the log.
        name: The name of the slot.
        state: ``free``, ``served``, ``lost`` or ``forked``; of a stored slot ``good``, ``lost`` or ``forked``.
        cursor: The next change that its consumer has not acknowledged.
        version: The version of that change.
        generation: The generation of the last opening.
        owner: The owner of the current opening.
        paused: Whether the slot delivers nothing until it is resumed.
        lag: Its lag.
        history: The state of the history that is held for it; None if none is held.
        held_bytes: The bytes of the log from the segment of its position on.
        bytes_left: The bytes until it exceeds its cap; None without a cap.
        seconds_left: Likewise in seconds.
        stored: Whether the server follows the log. Then the slot is shown as its owner has stored it: what was acknowledged since
            may be missing, and so are the figures that only the owner knows (None).
    """

    log: str
    name: str
    state: str
    cursor: str
    version: int
    generation: int
    owner: str | None
    paused: bool
    lag: SlotLag
    history: str | None = None
    held_bytes: int | None = None
    bytes_left: int | None = None
    seconds_left: float | None = None
    stored: bool = False


def slot_json(log: str, statistics: SlotStatistics, token: Callable[[Position], object]) -> SlotInfo:
    """Returns a slot for the wire.

    Args:
        log: The name by which the client knows the log.
        statistics: The statistics of the slot.
        token: Makes the cursor of a position.
    """
    lag = statistics.lag
    return SlotInfo(
        log,
        statistics.name,
        statistics.state.value,
        str(token(statistics.position)),
        statistics.position.version,
        statistics.generation,
        statistics.owner,
        statistics.paused,
        SlotLag(lag.versions, lag.changes, lag.nbytes, lag.seconds),
        None if statistics.history is None else statistics.history.name,
        statistics.held_bytes,
        statistics.bytes_left,
        statistics.seconds_left,
    )

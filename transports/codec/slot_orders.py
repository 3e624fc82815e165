"""What is asked of a slot, or done with it, from afar, beside opening it; and what is answered."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.model.position import Position, Start
from publishers.slots.record import Granularity
from publishers.slots.slots import check_slot_name
from publishers.slots.statistics import SlotStatistics
from transports.codec.fields import typed, word
from transports.codec.starts import place_of
from transports.errors import InvalidRequest

__all__ = ["SlotDeed", "SlotLag", "SlotOrder", "SlotTold", "slot_json"]

SlotDeed = Literal["list", "info", "create", "seek", "pause", "resume", "drop"]
_DEEDS: Final = list(get_args(SlotDeed))
_PLACED: Final = ("create", "seek")
_CRITERIA: Final = ("criteria", "granularity", "copyFrom")


class SlotOrder(msgspec.Struct, frozen=True):
    """What is to be done, checked.

    Attributes:
        do: What it is.
        log: Name of the log, or None for the only one.
        name: Of the slot; empty for ``list``.
        start: Of ``create`` and ``seek``: where it begins, or is to go.
        criteria: Of ``create``: which changes; None for all, or with ``copy_from`` for those of that.
        granularity: Of ``create``: whether its place may stand inside a transaction.
        copy_from: Of ``create``: a slot whose place is taken.
    """

    do: SlotDeed
    log: str | None = None
    name: str = ""
    start: Any = Start.LATEST
    criteria: Criteria | None = None
    granularity: Granularity = "transaction"
    copy_from: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "SlotOrder":
        """Checks what a client wants.

        Raises:
            InvalidRequest, InvalidOption: If a field has a value that it does not take.
            InvalidCriteria: If the criteria are none.
            PositionMalformed: If ``since`` is no cursor.
        """
        do: Any = word(payload, "do", "info", _DEEDS)
        given = [name for name in _CRITERIA if do != "create" and payload.get(name) is not None]
        given += [name for name in ("since", "start") if do not in _PLACED and payload.get(name) is not None]
        if given:
            raise InvalidRequest(given[0], payload[given[0]], f"left out where do is {do!r}")
        log, name = typed(payload, "log", str, "text"), payload.get("name")
        if do == "list":
            return cls(do, log)
        check_slot_name(name)
        copied = payload.get("copyFrom")
        if copied is not None:
            check_slot_name(copied)
        wishes = typed(payload, "criteria", list, "a list of objects")
        return cls(
            do,
            log,
            str(name),
            place_of(payload),
            None if wishes is None else Criteria.from_json(wishes),
            "change"
            if word(payload, "granularity", "transaction", ["transaction", "change"]) == "change"
            else "transaction",
            copied,
        )


class SlotLag(msgspec.Struct, frozen=True):
    """How far a slot is behind.

    Attributes:
        versions: Versions that its consumer has not acknowledged.
        changes: Changes in them, where they are remembered.
        bytes: Their stored bytes, likewise.
        seconds: Age of the oldest of them.
    """

    versions: int
    changes: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class SlotTold(msgspec.Struct, frozen=True, rename="camel"):
    """A slot as it travels.

    Attributes:
        log: What the client knows its log by.
        name: What it is called.
        state: ``free``, ``served``, ``lost`` or ``forked``.
        cursor: The next change that its consumer has not acknowledged.
        version: The version of that.
        generation: Of the last opening.
        owner: Who has it open.
        paused: Whether it gives nothing until it is resumed.
        lag: How far it is behind.
        history: What becomes of the history that is held for it; None if nothing is.
        held_bytes: Bytes of the log from the segment of its place on.
        bytes_left: Bytes until it is above its cap; None without that.
        seconds_left: Likewise in seconds.
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
    held_bytes: int = 0
    bytes_left: int | None = None
    seconds_left: float | None = None


def slot_json(log: str, told: SlotStatistics, token: Callable[[Position], object]) -> SlotTold:
    """A slot as it travels.

    Args:
        log: What the client knows its log by.
        told: What it tells of itself.
        token: Makes the cursor of a position.
    """
    lag = told.lag
    return SlotTold(
        log,
        told.name,
        told.state.value,
        str(token(told.position)),
        told.position.version,
        told.generation,
        told.owner,
        told.paused,
        SlotLag(lag.versions, lag.changes, lag.nbytes, lag.seconds),
        None if told.history is None else told.history.name,
        told.held_bytes,
        told.bytes_left,
        told.seconds_left,
    )

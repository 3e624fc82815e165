"""Orders on slots from remote clients other than opening one, and the answers."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.model.position import Position, Start
from publishers.slots.record import Granularity
from publishers.slots.slots import check_slot_name
from publishers.slots.state import SlotStatistics
from transports.codec.fields import typed, word
from transports.codec.starts import place_of
from transports.errors import InvalidRequest

__all__ = ["SlotAction", "SlotInfo", "SlotLag", "SlotOrder", "slot_json"]

SlotAction = Literal["list", "info", "create", "seek", "pause", "resume", "drop"]
_DEEDS: Final = list(get_args(SlotAction))
_PLACED: Final = ("create", "seek")
_CREATE: Final = ("criteria", "granularity", "copyFrom", "paused")


class SlotOrder(msgspec.Struct, frozen=True):
    """An order on a slot, validated.

    Attributes:
        do: The operation.
        log: The name of the log; None for the only one.
        name: The name of the slot; empty for ``list``.
        start: For ``create`` and ``seek``: the position of the slot.
        criteria: For ``create``: the criteria; None for everything, or with ``copy_from`` for those of the copied slot.
        granularity: For ``create``: whether the position may lie inside a transaction.
        copy_from: For ``create``: the slot whose position is copied.
        paused: For ``create``: whether the slot delivers nothing until it is resumed.
    """

    do: SlotAction
    log: str | None = None
    name: str = ""
    start: Any = Start.LATEST
    criteria: Criteria | None = None
    granularity: Granularity = "transaction"
    copy_from: str | None = None
    paused: bool = False

    @property
    def reads(self) -> bool:
        """Whether the order changes nothing."""
        return self.do in ("list", "info")

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "SlotOrder":
        """Validates the payload of an order.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is invalid.
            InvalidCriteria: If the criteria are invalid.
            PositionMalformed: If ``since`` is malformed.
        """
        do: Any = word(payload, "do", "info", _DEEDS)
        given = [name for name in _CREATE if do != "create" and payload.get(name) is not None]
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
        listed = typed(payload, "criteria", list, "a list of objects")
        return cls(
            do,
            log,
            str(name),
            place_of(payload),
            None if listed is None else Criteria.from_json(listed),
            "change"
            if word(payload, "granularity", "transaction", ["transaction", "change"]) == "change"
            else "transaction",
            copied,
            typed(payload, "paused", bool, "true or false") or False,
        )


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

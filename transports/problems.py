"""Python's errors in the terms of the wire: one table."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flow.errors import IllegalRequestError, Lagged
from publishers.commits.errors import ProducerConflict
from publishers.errors import (
    ExpectationFailed,
    HistoryPruned,
    InvalidChange,
    InvalidCriteria,
    InvalidOption,
    LogClosed,
    LogDropped,
    LogExhausted,
    LogFailed,
    LogForked,
    LogFull,
    LogGone,
    LogReadOnly,
    LogReplaced,
    NoSuchLog,
    NoSuchVersion,
    PositionAhead,
    PositionForeign,
    PositionForked,
    PositionMalformed,
    PredecessorFailed,
    PublishingOff,
    SnapshotGone,
    SourceFailed,
    StateIncomplete,
    StateOff,
    StateUnusable,
    TooCostly,
    TransactionTooLarge,
    WalCorrupted,
)
from publishers.groups.errors import (
    GroupCorrupted,
    GroupExists,
    GroupForked,
    GroupLost,
    GroupPaused,
    GroupUnwritten,
    NoSuchGroup,
)
from publishers.model.position import LogIdentity, Position
from publishers.slots.errors import (
    AckAhead,
    Fenced,
    NoSuchSlot,
    SlotBusy,
    SlotExists,
    SlotForked,
    SlotLost,
    SlotsCorrupted,
    SlotsUnwritten,
)
from transports.errors import InvalidInput, WireError, shortened

__all__ = ["ERROR_CODES", "Problem", "describe"]

_LOG: Final = logging.getLogger("penstock.transports")


class Problem(NamedTuple):
    """The payload of an ``error`` message."""

    code: str
    message: str
    retryable: bool
    data: Mapping[str, Any]

    def payload(self) -> dict[str, Any]:
        """Returns the payload for the wire: code, message and retryable, with the data beside them."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, **self.data}


_Tokens = Callable[[Position], str]
_Data = Callable[[Any, _Tokens], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Row:
    error: type[BaseException]
    code: str
    retryable: bool = False
    """Whether it is retryable for a client although it is not for a caller in the process."""
    data: _Data = field(default=lambda _error, _token: {})
    message: str | None = None
    """Replaces the text of an error that contains details of the server."""
    logged: bool = False
    """Whether to log the text of the error, because the operators of the server see it nowhere else."""


_FAILED_DISK: Final = (
    "the disk of the server has failed, and the log accepts no commits until it is opened again; if outcome is unknown, a retry "
    "with the same producer and sequence is safe"
)
_TABLE: Final = (
    _Row(InvalidCriteria, "INVALID_CRITERIA", data=lambda e, _: {"path": e.path}),
    _Row(
        TooCostly,
        "TOO_COSTLY",
        data=lambda e, _: {"cost": e.cost, "limit": e.limit, "option": e.option, "cheaper": e.cheaper},
    ),
    _Row(InvalidOption, "INVALID_REQUEST", data=lambda e, _: {"path": e.parameter}),
    _Row(InvalidChange, "INVALID_CHANGE", data=lambda e, _: {"path": e.parameter}),
    _Row(InvalidInput, "INVALID_CHANGE", data=lambda e, _: {"line": e.line}),
    _Row(
        ExpectationFailed,
        "EXPECTATION_FAILED",
        data=lambda e, t: {
            "expected": t(e.expected),
            "found": t(e.found),
            **({"at": t(e.at), "entity_type": e.entity_type, "key": e.key} if e.at else {}),
        },
    ),
    _Row(  # of a commit: it was withheld, and removed before it had reached what its writer waits for
        NoSuchVersion,
        "TRANSACTION_REMOVED",
        retryable=True,
        data=lambda e, _: {"version": e.version},
        message="the transaction was withheld, and the owner of the log has removed it; its sequence is free again",
    ),
    _Row(ProducerConflict, "PRODUCER_CONFLICT", data=lambda e, _: {"version": e.version}),
    _Row(PredecessorFailed, "PREDECESSOR_FAILED"),
    _Row(
        TransactionTooLarge,
        "TRANSACTION_TOO_LARGE",
        data=lambda e, _: {"option": e.option, "value": e.value, "limit": e.limit},
    ),
    _Row(
        LogReadOnly,
        "LOG_READ_ONLY",
        message="the server follows this log and does not own it; write, and use its slots and groups, through the server "
        "that owns it, such as penstock serve DIR --own with --writable, --slots or --groups",
    ),
    _Row(
        LogExhausted,
        "EXHAUSTED",
        data=lambda e, _: {"resource": e.resource},
        message="the server has too few file descriptors or threads, or too little memory, at the moment; nothing was written",
    ),
    _Row(LogFull, "LOG_FULL", message="the disk of the server has no room; nothing was written"),
    _Row(LogFailed, "LOG_FAILED", data=lambda e, _: {"outcome": e.outcome}, message=_FAILED_DISK),
    _Row(
        LogClosed,
        "LOG_CLOSED",
        data=lambda e, t: {"cursor": t(e.position)} if e.position else {},
    ),
    _Row(LogDropped, "LOG_DROPPED", data=lambda e, _: {"log": e.name}),
    _Row(NoSuchLog, "LOG_NOT_FOUND", data=lambda _e, _: {"path": "log"}),
    _Row(PublishingOff, "PUBLISHING_OFF", data=lambda e, _: {"log": e.name}),
    _Row(LogForked, "LOG_FORKED"),
    _Row(LogReplaced, "LOG_REPLACED", data=lambda e, _: {"old": _identity(e.old), "new": _identity(e.new)}),
    _Row(
        WalCorrupted,
        "INTERNAL",
        message="the log is damaged at the place to be read; the server has logged the segment and the byte",
    ),
    _Row(LogGone, "LOG_GONE", message="the log is no longer at its path on the server"),
    _Row(PositionMalformed, "CURSOR_INVALID"),
    _Row(PositionForeign, "CURSOR_FOREIGN"),
    _Row(PositionForked, "CURSOR_FORKED", data=lambda e, t: {"epoch": e.epoch, "end": e.end and t(e.end)}),
    _Row(PositionAhead, "CURSOR_AHEAD", data=lambda e, t: {"head": t(e.head)}),
    _Row(
        NoSuchSlot,
        "SLOT_NOT_FOUND",
        data=lambda _e, _: {"path": "slot.name"},
        message="the log has no slot of that name",
    ),
    _Row(
        SlotBusy,
        "SLOT_BUSY",
        data=lambda e, _: {"owner": e.owner},
    ),
    _Row(SlotExists, "SLOT_EXISTS", data=lambda _e, _: {"path": "name"}),
    _Row(Fenced, "FENCED", data=lambda e, _: {"generation": e.generation, "current": e.current}),
    _Row(AckAhead, "ACK_AHEAD", data=lambda e, t: {"delivered": t(e.delivered)}),
    _Row(SlotLost, "SLOT_LOST", data=lambda e, t: {"oldest": t(e.oldest)}),
    _Row(SlotForked, "SLOT_FORKED"),
    _Row(
        SlotsUnwritten,
        "SLOTS_UNWRITTEN",
        message="the positions of slots cannot be written at the moment; the write is retried",
    ),
    _Row(
        SlotsCorrupted,
        "SLOTS_UNUSABLE",
        message="the journal of the slots of this log is damaged; the server has logged the file",
        logged=True,
    ),
    _Row(
        NoSuchGroup,
        "GROUP_NOT_FOUND",
        data=lambda _e, _: {"path": "group"},
        message="the log has no group of that name",
    ),
    _Row(GroupExists, "GROUP_EXISTS", data=lambda _e, _: {"path": "name"}),
    _Row(GroupPaused, "GROUP_PAUSED"),
    _Row(GroupLost, "GROUP_LOST", data=lambda e, t: {"oldest": t(e.oldest)}),
    _Row(GroupForked, "GROUP_FORKED"),
    _Row(
        GroupUnwritten,
        "GROUP_UNWRITTEN",
        message="the progress of the group cannot be written at the moment; the write is retried",
    ),
    _Row(
        GroupCorrupted,
        "GROUP_UNUSABLE",
        message="the journal of the group is damaged; the server has logged the file",
    ),
    _Row(SnapshotGone, "SNAPSHOT_GONE", data=lambda e, t: {"oldest": t(e.oldest)}),
    _Row(HistoryPruned, "HISTORY_PRUNED", data=lambda e, t: {"oldest": t(e.oldest)}),
    _Row(
        StateOff,
        "STATE_OFF",
        message="the server keeps no state of the log; it has to own the log and open it with state=True, such as penstock "
        "serve DIR --own --state",
    ),
    _Row(StateIncomplete, "STATE_INCOMPLETE", data=lambda e, t: {"since": t(e.since)}),
    _Row(
        StateUnusable,
        "STATE_UNUSABLE",
        message="the compacted state of the log cannot be read at the moment",
    ),
    _Row(
        SourceFailed,
        "SOURCE_FAILED",
        message="the source of the rows could not be read; the server has logged the cause",
        logged=True,
    ),
    _Row(Lagged, "LAGGED", retryable=True, data=lambda e, _: {"missed": e.missed}),
    _Row(IllegalRequestError, "INVALID_DEMAND"),
)


def _wire_errors(kind: type[WireError]) -> Iterator[type[WireError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _wire_errors(one)


ERROR_CODES: Final = tuple(
    sorted({row.code for row in _TABLE} | {one.code for one in _wire_errors(WireError)})
)
"""Every code that an error of the wire may have."""


def _identity(identity: LogIdentity) -> dict[str, str]:
    return {"logId": str(identity.log_id), "epoch": identity.epoch}


def describe(error: BaseException, token: _Tokens = str) -> Problem:
    """Returns the problem that a client gets for an error.

    Args:
        error: The error that ended the subscription or the request.
        token: Makes the text of a position of the log.

    Returns:
        The payload of the ``error`` message. An error that is not in the table becomes ``INTERNAL``: it is logged with an
        id, and the client gets only the id.
    """
    if isinstance(error, WireError):
        return Problem(error.code, shortened(str(error)), error.retryable, error.data)
    for row in _TABLE:
        if isinstance(error, row.error):
            retryable = row.retryable or getattr(error, "retryable", False)
            if row.logged:
                _LOG.error("%s", error)
            message = shortened(row.message or str(error))
            return Problem(row.code, message, retryable, row.data(error, token))
    error_id = uuid.uuid4().hex[:12]
    _LOG.error("subscription ended by an unexpected error, id %s", error_id, exc_info=error)
    return Problem(
        "INTERNAL", f"internal error {error_id}; see the log of the server", False, {"id": error_id}
    )

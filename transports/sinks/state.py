"""The states of a sink's runner, in one table, and its status."""

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from publishers.fanout.state import SubscriptionLag
from publishers.model.position import Position
from publishers.model.transitions import TransitionRow, TransitionTable
from transports.sinks.sink import SinkGap

__all__ = [
    "RUNNING",
    "SINK_TABLE",
    "SinkCounters",
    "SinkEvent",
    "SinkState",
    "SinkStatus",
    "sink_state_after",
]


class SinkState(enum.Enum):
    """The state of a runner."""

    STARTING = "the runner opens the slot and the target"
    SNAPSHOT = "the runner sends the rows of a state, and the changes between them"
    STREAMING = "the runner sends changes"
    RETRYING = "an attempt has failed; the status shows when the next one is"
    PAUSED = "nothing is sent until the sink is resumed: an operator paused it, or the target refused a batch"
    OFF = (
        "nothing is sent, and no history is held, until the sink is switched on: an operator switched it off"
    )
    LOST = "the history that the sink needs is gone: fill the target anew, and seek"
    COMPLETED = "all rows of the snapshot are sent: nothing more is sent, and no history is held"
    STANDBY = "another runner holds the lease, and sends"
    STOPPED = "the runner has ended"


class SinkEvent(enum.Enum):
    """An event that may change the state."""

    WORK = "slot and target are open, or the target has accepted a batch"
    ROWS = "the same, while rows of a snapshot are sent"
    FAIL = "an attempt failed that may succeed later"
    REFUSE = "an attempt failed that will never succeed"
    PAUSE = "an operator pauses the sink"
    RESUME = "an operator resumes the sink"
    SEEK = "an operator moves the sink to another place"
    SWITCH_OFF = "an operator switches the sink off, or it is stored that the sink is off"
    SWITCH_ON = "an operator switches the sink on"
    COMPLETE = "all rows of a sink that sends rows only are sent"
    AGAIN = "an operator orders these rows once more"
    LOSE = "history that the sink has not sent yet is gone"
    YIELD = "the lease is not held, or its holder has taken over the slot"
    LEAD = "the lease was gained"
    STOP = "the runner or the log is closed, or another consumer has taken over the slot"


_STARTING, _SNAPSHOT, _STREAMING, _RETRYING, _PAUSED, _OFF, _LOST, _COMPLETED, _STANDBY, _STOPPED = SinkState
RUNNING: Final = (_STARTING, _SNAPSHOT, _STREAMING, _RETRYING)
"""The states in which the runner carries changes or retries."""

SINK_TABLE: Final[TransitionTable[SinkState, SinkEvent, Any, Any]] = TransitionTable(
    (
        *(TransitionRow(state, SinkEvent.WORK, (), _STREAMING) for state in RUNNING),
        *(TransitionRow(state, SinkEvent.ROWS, (), _SNAPSHOT) for state in RUNNING),
        *(TransitionRow(state, SinkEvent.FAIL, (), _RETRYING) for state in RUNNING),
        *(TransitionRow(state, SinkEvent.REFUSE, (), _PAUSED) for state in RUNNING),
        *(TransitionRow(state, SinkEvent.PAUSE, (), _PAUSED) for state in RUNNING),
        TransitionRow(_PAUSED, SinkEvent.RESUME, (), _STARTING),
        TransitionRow(_RETRYING, SinkEvent.RESUME, (), _STARTING),
        TransitionRow(_LOST, SinkEvent.SEEK, (), _STARTING),
        *(
            TransitionRow(state, SinkEvent.SWITCH_OFF, (), _OFF)
            for state in (*RUNNING, _PAUSED, _LOST, _COMPLETED)
        ),
        TransitionRow(_OFF, SinkEvent.SWITCH_ON, (), _STARTING),
        *(TransitionRow(state, SinkEvent.COMPLETE, (), _COMPLETED) for state in RUNNING),
        TransitionRow(_COMPLETED, SinkEvent.AGAIN, (), _STARTING),
        *(TransitionRow(state, SinkEvent.LOSE, (), _LOST) for state in (*RUNNING, _PAUSED)),
        *(
            TransitionRow(state, SinkEvent.YIELD, (), _STANDBY)
            for state in (*RUNNING, _PAUSED, _OFF, _LOST, _COMPLETED)
        ),
        TransitionRow(_STANDBY, SinkEvent.LEAD, (), _STARTING),
        *(TransitionRow(state, SinkEvent.STOP, (), _STOPPED) for state in SinkState if state is not _STOPPED),
    )
)


def sink_state_after(state: SinkState, event: SinkEvent) -> SinkState | None:
    """Returns the next state; None if the event has no effect."""
    return next((row.to for row in SINK_TABLE.of(state, event)), None)


@dataclass(slots=True)
class SinkCounters:
    """What a runner has done since it was made.

    Attributes:
        batches: Batches that the target has accepted.
        changes: Changes in them.
        failures: Attempts that failed and are retried.
        given_up: Batches whose last allowed attempt has failed.
        rejected: Changes that the target refused for good.
        dropped: Of these, changes that were left out, as the options say.
        dead_letters: Of these, changes that were written to the dead letters first.
    """

    batches: int = 0
    changes: int = 0
    failures: int = 0
    given_up: int = 0
    rejected: int = 0
    dropped: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The status of one sink at this moment.

    Attributes:
        name: The name of the sink.
        state: The state of its runner.
        reason: Why it is paused, off, lost, completed or stopped; else None.
        last_error: The last error, also after a success; None without one.
        last_error_age: Seconds since the last error; None without one.
        attempt: The number of the next attempt of a failed batch; 0 without one.
        retry_in: Seconds until that attempt; None without one.
        circuit_open: Whether so many attempts failed that the target must answer before the next batch is sent.
        position: The stored position, from which a restart continues; for a sink that is off or completed, its last one. None before.
        confirmed: The position behind the last change that the target has confirmed; None before the first.
        lag: How far ``position`` is behind the log; None until the slot exists.
        gap: The range left out while the sink was off, until the target has confirmed it; None without one.
        epoch: The epoch of the lease that the sink sends under; None on standby, or without a lease.
        counters: The counters of the runner.
    """

    name: str
    state: SinkState
    reason: str | None
    last_error: str | None
    attempt: int
    retry_in: float | None
    circuit_open: bool
    position: Position | None
    confirmed: Position | None
    lag: SubscriptionLag | None
    epoch: int | None = None
    last_error_age: float | None = None
    gap: SinkGap | None = None
    counters: SinkCounters = field(default_factory=SinkCounters)

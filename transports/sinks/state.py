"""The states of a sink's runner, in one table."""

import enum
from typing import Final, NamedTuple

__all__ = ["RUNNING", "SINK_TABLE", "SinkEvent", "SinkRow", "SinkState", "sink_state_after"]


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


class SinkRow(NamedTuple):
    """One row of the table.

    Attributes:
        state: The state.
        event: The event.
        to: The next state.
    """

    state: SinkState
    event: SinkEvent
    to: SinkState


_STARTING, _SNAPSHOT, _STREAMING, _RETRYING, _PAUSED, _OFF, _LOST, _COMPLETED, _STANDBY, _STOPPED = SinkState
RUNNING: Final = (_STARTING, _SNAPSHOT, _STREAMING, _RETRYING)
"""The states in which the runner carries changes or retries."""

SINK_TABLE: Final = (
    *(SinkRow(state, SinkEvent.WORK, _STREAMING) for state in RUNNING),
    *(SinkRow(state, SinkEvent.ROWS, _SNAPSHOT) for state in RUNNING),
    *(SinkRow(state, SinkEvent.FAIL, _RETRYING) for state in RUNNING),
    *(SinkRow(state, SinkEvent.REFUSE, _PAUSED) for state in RUNNING),
    *(SinkRow(state, SinkEvent.PAUSE, _PAUSED) for state in RUNNING),
    SinkRow(_PAUSED, SinkEvent.RESUME, _STARTING),
    SinkRow(_RETRYING, SinkEvent.RESUME, _STARTING),
    SinkRow(_LOST, SinkEvent.SEEK, _STARTING),
    *(SinkRow(state, SinkEvent.SWITCH_OFF, _OFF) for state in (*RUNNING, _PAUSED, _LOST, _COMPLETED)),
    SinkRow(_OFF, SinkEvent.SWITCH_ON, _STARTING),
    *(SinkRow(state, SinkEvent.COMPLETE, _COMPLETED) for state in RUNNING),
    SinkRow(_COMPLETED, SinkEvent.AGAIN, _STARTING),
    *(SinkRow(state, SinkEvent.LOSE, _LOST) for state in (*RUNNING, _PAUSED)),
    *(SinkRow(state, SinkEvent.YIELD, _STANDBY) for state in (*RUNNING, _PAUSED, _OFF, _LOST, _COMPLETED)),
    SinkRow(_STANDBY, SinkEvent.LEAD, _STARTING),
    *(SinkRow(state, SinkEvent.STOP, _STOPPED) for state in SinkState if state is not _STOPPED),
)
"""An event that has no row for a state leaves the state unchanged."""

_rows: Final = {(row.state, row.event): row.to for row in SINK_TABLE}


def sink_state_after(state: SinkState, event: SinkEvent) -> SinkState | None:
    """Returns the next state; None if the event has no effect."""
    return _rows.get((state, event))

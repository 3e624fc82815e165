"""The states of a sink's runner, in one table."""

import enum
from typing import Final, NamedTuple

__all__ = ["RUNNING", "SINK_TABLE", "SinkEvent", "SinkRow", "SinkState", "sink_state_after"]


class SinkState(enum.Enum):
    """The state of a runner."""

    STARTING = "it opens its slot and its target"
    SNAPSHOT = "it carries the rows of a state, and the changes between them"
    STREAMING = "it carries changes"
    RETRYING = "the target has failed, and is tried again at a time that the status tells"
    PAUSED = "it does nothing until it is resumed: an operator or a refusal of the target has paused it"
    OFF = "it was switched off: nothing is carried, and no history held for it, until it is switched on"
    LOST = "its history is gone: the target needs a bootstrap, and the sink a seek"
    COMPLETED = "it has carried its rows, which was all: nothing more is carried, and no history held for it"
    STANDBY = "another one holds the lease, and sends"
    STOPPED = "it has ended"


class SinkEvent(enum.Enum):
    """An event that may change the state."""

    WORK = "slot and target are open, or have taken a batch"
    ROWS = "the same, and what is carried are rows"
    FAIL = "something failed that may work later"
    REFUSE = "something was refused for good"
    PAUSE = "an operator pauses it"
    RESUME = "an operator resumes it"
    SEEK = "an operator moves it"
    SWITCH_OFF = "an operator switches it off, or it finds that it is"
    SWITCH_ON = "an operator switches it on"
    COMPLETE = "the rows that it is for are carried"
    AGAIN = "an operator wants these rows once more"
    LOSE = "the history that it had to read is gone"
    YIELD = "the lease is not held, or another one has taken the slot by it"
    LEAD = "the lease was gained"
    STOP = "it is closed, its log is, or another one has taken its slot"


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

"""The states of a sink's runner, in one table."""

import enum
from typing import Any, Final

from publishers.model.transitions import TransitionRow, TransitionTable

__all__ = ["RUNNING", "SINK_TABLE", "SinkEvent", "SinkState", "sink_state_after"]


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

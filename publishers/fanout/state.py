"""The states of a subscription, in one table, and the measures of its progress and lag.

The table is the only place that decides: code that changes a state asks it for a row, and carries that out.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from publishers.model.position import Position
from publishers.model.transitions import TransitionRow, TransitionTable

__all__ = [
    "SUBSCRIPTIONS",
    "Checkpoint",
    "Guard",
    "MaxLag",
    "Occurrence",
    "Phase",
    "PhaseAction",
    "PhaseRow",
    "State",
    "SubscriptionLag",
]

MaxLag = int | timedelta
"""How far a subscription may lag before writers wait for it: in changes, or as the age of the oldest change not delivered."""


class State(Enum):
    """The public form of a subscription's phase: the source of its changes, or that it is paused.

    JOINING and WAITING appear as RESYNC. A paused subscription appears as LIVE or RESYNC to its subscriber and in its
    checkpoints.
    """

    LIVE = "LIVE"
    """From the ring."""

    RESYNC = "RESYNC"
    """From the WAL, because the ring does not cover its position."""

    PAUSED = "PAUSED"
    """An operator has paused it. Only statistics show this state."""


class Phase(Enum):
    """The state of a subscription. The holder of the drain's flag owns its cursor; while JOINING, the replayer owns it."""

    LIVE = "it reads from the ring, without I/O, until the ring evicts a chunk that it has not read"
    RESYNC = "the ring does not cover its position; it waits for demand"
    JOINING = "the replayer owns its cursor and reads from the WAL; it has a place in the ring if the ring covers its position"
    WAITING = "it has read everything visible without a ring, and is in the list of the next advance"
    PAUSED = "an operator has paused it: it reads nothing, and keeps demand, position and, until eviction, its place in the ring"
    ENDED = "it has left the ring, the registry and all lists; this state is final"


class Occurrence(Enum):
    """An event that may change the state."""

    ENTER = "it tries to enter the ring"
    READ = "it has demand, and its next frame is not in memory"
    JOIN = "a slice begins, and the ring must keep the position behind the watermark"
    YIELD = "a slice ends without a match, and more is visible"
    REST = "a slice has filled the queue, the demand is used up, or a seek, a pause or an end came"
    PARK = "everything visible is read, and the ring does not cover its position"
    ADVANCE = "it was woken, and looks for visible changes"
    EVICT = "the ring evicted or refused a chunk that it has not read, or restarted"
    PAUSE = "an operator pauses it"
    RESUME = "an operator resumes it"
    SEEK = "its position changes: a seek, a gap, or a batch that was read before a pause and not delivered"
    END = "its drain has ended: cancelled, completed or failed"


class Guard(Enum):
    """A condition for a row of the table."""

    COVERED = "the ring covers its position"
    HELD = "it is marked as paused"
    FREE = "it is not marked as paused"
    MORE = "visible changes are unread"


class PhaseAction(Enum):
    """An action of a row. The first five run under the ring's lock, together with the change of state; the others after it."""

    LIFT = "leave the ring"
    GO = "set the new position"
    STAND = "take a place in the ring"
    HOLD = "mark it as paused"
    RELEASE = "remove the mark"
    ENLIST = "enter the queue of the replayer"
    LIST = "enter the list of the next advance"
    SIGNAL = "signal the drain"


_LIVE, _RESYNC, _JOINING, _WAITING, _PAUSED, _ENDED = Phase
_COVERED, _HELD, _FREE, _MORE = ((guard,) for guard in Guard)
_LIFT, _GO, _STAND, _HOLD, _RELEASE, _ENLIST, _LIST, _SIGNAL = PhaseAction

PhaseRow = TransitionRow[Phase, Occurrence, Guard, PhaseAction]

SUBSCRIPTIONS: Final[TransitionTable[Phase, Occurrence, Guard, PhaseAction]] = TransitionTable(
    (
        TransitionRow(_LIVE, Occurrence.EVICT, (), _RESYNC, (_LIFT, _GO)),
        TransitionRow(_LIVE, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
        TransitionRow(_LIVE, Occurrence.SEEK, (), _RESYNC, (_LIFT, _GO)),
        TransitionRow(_RESYNC, Occurrence.ENTER, _COVERED, _LIVE, (_STAND,)),
        TransitionRow(_RESYNC, Occurrence.READ, (), _JOINING, (_ENLIST,)),
        TransitionRow(_RESYNC, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
        TransitionRow(_RESYNC, Occurrence.SEEK, (), _RESYNC, (_GO,)),
        TransitionRow(_JOINING, Occurrence.ENTER, _HELD + _COVERED, _PAUSED, (_STAND, _SIGNAL)),
        TransitionRow(_JOINING, Occurrence.ENTER, _COVERED, _LIVE, (_STAND, _SIGNAL)),
        TransitionRow(_JOINING, Occurrence.JOIN, _COVERED, _JOINING, (_STAND,)),
        TransitionRow(_JOINING, Occurrence.YIELD, (), _JOINING, (_LIFT,)),
        TransitionRow(_JOINING, Occurrence.EVICT, (), _JOINING, (_LIFT,)),
        TransitionRow(_JOINING, Occurrence.SEEK, (), _JOINING, (_LIFT, _GO)),
        TransitionRow(_JOINING, Occurrence.PAUSE, _FREE, _JOINING, (_HOLD,)),
        TransitionRow(_JOINING, Occurrence.RESUME, _HELD, _JOINING, (_RELEASE,)),
        TransitionRow(_JOINING, Occurrence.REST, _HELD, _PAUSED, (_LIFT, _SIGNAL)),
        TransitionRow(_JOINING, Occurrence.REST, (), _RESYNC, (_LIFT, _SIGNAL)),
        TransitionRow(_JOINING, Occurrence.PARK, _HELD, _PAUSED, (_LIFT, _SIGNAL)),
        TransitionRow(_JOINING, Occurrence.PARK, (), _WAITING, (_LIFT, _LIST, _SIGNAL)),
        TransitionRow(_WAITING, Occurrence.ADVANCE, _MORE, _RESYNC, ()),
        TransitionRow(_WAITING, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
        TransitionRow(_WAITING, Occurrence.SEEK, (), _RESYNC, (_GO,)),
        TransitionRow(_PAUSED, Occurrence.ENTER, _COVERED, _PAUSED, (_STAND,)),
        TransitionRow(_PAUSED, Occurrence.EVICT, (), _PAUSED, (_LIFT, _GO)),
        TransitionRow(_PAUSED, Occurrence.SEEK, (), _PAUSED, (_LIFT, _GO)),
        TransitionRow(_PAUSED, Occurrence.RESUME, _COVERED, _LIVE, (_RELEASE, _STAND, _SIGNAL)),
        TransitionRow(_PAUSED, Occurrence.RESUME, (), _RESYNC, (_RELEASE, _SIGNAL)),
        *(
            TransitionRow(phase, Occurrence.END, (), _ENDED, (_LIFT,))
            for phase in Phase
            if phase is not _ENDED
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a subscription.

    Attributes:
        position: The position to resume at: every change before it was delivered or did not match.
        head: The position after the watermark.
        state: LIVE or RESYNC.
    """

    position: Position
    head: Position
    state: State


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """The lag of a subscription behind the watermark. A measure that is not known, or no longer remembered, is None.

    Attributes:
        versions: Versions that it has not finished.
        changes: Changes of the log in these versions.
        nbytes: Their stored bytes.
        seconds: Age of the oldest of these versions since its commit. If the log no longer remembers that commit time, the
            age of the last frame read for the subscription.
    """

    versions: int
    changes: int | None
    nbytes: int | None
    seconds: float | None

"""The states of a subscription, in one table; how far it is, and how far behind.

The table decides: whatever changes the state of a subscription asks `step`, and does what the row says.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, NamedTuple

from publishers.model.position import Position

__all__ = [
    "TABLE",
    "Checkpoint",
    "Deed",
    "Guard",
    "MaxLag",
    "Occurrence",
    "Phase",
    "State",
    "StateRow",
    "SubscriptionLag",
    "indexed",
    "step",
]

MaxLag = int | timedelta
"""How far a subscription may lag before writers wait for it: changes, or the age of the oldest one that it has not taken."""


class State(Enum):
    """From where a subscription reads, or that it does not: what is shown of its phase.

    One that joins or waits is shown as RESYNC, one that is paused as LIVE or RESYNC to its subscriber and in checkpoints.
    """

    LIVE = "LIVE"
    """From the ring."""

    RESYNC = "RESYNC"
    """From the WAL, because the ring has moved on without it."""

    PAUSED = "PAUSED"
    """An operator has paused it. Statistics say so; its subscriber and its checkpoints know of the other two only."""


class Phase(Enum):
    """The state of a subscription. But for JOINING, its cursor belongs to the holder of the drain's flag."""

    LIVE = "the ring serves it, without I/O; the ring alone moves it aside"
    RESYNC = "the ring has moved on, and it rests until there is demand"
    JOINING = "its cursor is the replayer's, which reads from the WAL and keeps its place in the ring, if that covers it"
    WAITING = "it has read everything visible, no ring serves it, and it is listed for the next advance"
    PAUSED = "an operator has paused it: it takes nothing, and keeps demand and place, in the ring too until that moves on"
    ENDED = "it has left ring, registry and lists; no state follows"


class Occurrence(Enum):
    """What may change the state."""

    ENTER = "it wants to be served by the ring"
    READ = "there is demand, and the frame is not in memory"
    JOIN = "a slice begins: the place behind the watermark is to be kept"
    YIELD = "a slice has found nothing, and more is visible"
    REST = "a slice has filled the queue, or a seek, a pause or an end came, or the demand is used up"
    PARK = "everything visible is read, and the ring does not cover the place"
    ADVANCE = "it was woken, and looks for something to read"
    EVICT = "a chunk was evicted or refused that it has not taken, or the ring restarted"
    PAUSE = "an operator pauses it"
    RESUME = "an operator resumes it"
    SEEK = "it goes elsewhere: a seek, a gap, or what was read before a pause and not given"
    END = "its drain has ended: cancelled, completed, failed"


class Guard(Enum):
    """What must hold besides."""

    COVERED = "the ring covers the place"
    HELD = "an operator has paused it meanwhile"
    FREE = "no operator has"
    MORE = "something is visible that it has not read"


class Deed(Enum):
    """What is done; the first five under the ring's lock with the change of the state, the others after it."""

    LIFT = "leave the ring"
    GO = "take the new place"
    STAND = "take a place in the ring"
    HOLD = "note the pause"
    RELEASE = "forget the pause"
    ENLIST = "take a turn at the replayer"
    LIST = "be listed for the next advance"
    SIGNAL = "signal the drain"


class StateRow(NamedTuple):
    """One row of the table.

    Attributes:
        phase: In which state.
        event: What happens.
        when: What must hold; of several rows for one event the first counts that holds.
        to: The state that follows.
        then: What is done, in this order.
    """

    phase: Phase
    event: Occurrence
    when: tuple[Guard, ...]
    to: Phase
    then: tuple[Deed, ...]


_LIVE, _RESYNC, _JOINING, _WAITING, _PAUSED, _ENDED = Phase
_COVERED, _HELD, _FREE, _MORE = ((guard,) for guard in Guard)
_LIFT, _GO, _STAND, _HOLD, _RELEASE, _ENLIST, _LIST, _SIGNAL = Deed

TABLE: Final = (
    StateRow(_LIVE, Occurrence.EVICT, (), _RESYNC, (_LIFT, _GO)),
    StateRow(_LIVE, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
    StateRow(_LIVE, Occurrence.SEEK, (), _RESYNC, (_LIFT, _GO)),
    StateRow(_RESYNC, Occurrence.ENTER, _COVERED, _LIVE, (_STAND,)),
    StateRow(_RESYNC, Occurrence.READ, (), _JOINING, (_ENLIST,)),
    StateRow(_RESYNC, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
    StateRow(_RESYNC, Occurrence.SEEK, (), _RESYNC, (_GO,)),
    StateRow(_JOINING, Occurrence.ENTER, _HELD + _COVERED, _PAUSED, (_STAND, _SIGNAL)),
    StateRow(_JOINING, Occurrence.ENTER, _COVERED, _LIVE, (_STAND, _SIGNAL)),
    StateRow(_JOINING, Occurrence.JOIN, _COVERED, _JOINING, (_STAND,)),
    StateRow(_JOINING, Occurrence.YIELD, (), _JOINING, (_LIFT,)),
    StateRow(_JOINING, Occurrence.EVICT, (), _JOINING, (_LIFT,)),
    StateRow(_JOINING, Occurrence.SEEK, (), _JOINING, (_LIFT, _GO)),
    StateRow(_JOINING, Occurrence.PAUSE, _FREE, _JOINING, (_HOLD,)),
    StateRow(_JOINING, Occurrence.RESUME, _HELD, _JOINING, (_RELEASE,)),
    StateRow(_JOINING, Occurrence.REST, _HELD, _PAUSED, (_LIFT, _SIGNAL)),
    StateRow(_JOINING, Occurrence.REST, (), _RESYNC, (_LIFT, _SIGNAL)),
    StateRow(_JOINING, Occurrence.PARK, _HELD, _PAUSED, (_LIFT, _SIGNAL)),
    StateRow(_JOINING, Occurrence.PARK, (), _WAITING, (_LIFT, _LIST, _SIGNAL)),
    StateRow(_WAITING, Occurrence.ADVANCE, _MORE, _RESYNC, ()),
    StateRow(_WAITING, Occurrence.PAUSE, (), _PAUSED, (_HOLD,)),
    StateRow(_WAITING, Occurrence.SEEK, (), _RESYNC, (_GO,)),
    StateRow(_PAUSED, Occurrence.ENTER, _COVERED, _PAUSED, (_STAND,)),
    StateRow(_PAUSED, Occurrence.EVICT, (), _PAUSED, (_LIFT, _GO)),
    StateRow(_PAUSED, Occurrence.SEEK, (), _PAUSED, (_LIFT, _GO)),
    StateRow(_PAUSED, Occurrence.RESUME, _COVERED, _LIVE, (_RELEASE, _STAND, _SIGNAL)),
    StateRow(_PAUSED, Occurrence.RESUME, (), _RESYNC, (_RELEASE, _SIGNAL)),
    *(StateRow(phase, Occurrence.END, (), _ENDED, (_LIFT,)) for phase in Phase if phase is not _ENDED),
)
"""What is not in it means nothing: the state stays, and nothing is done."""


def indexed(rows: Iterable[StateRow]) -> dict[tuple[Phase, Occurrence], list[StateRow]]:
    """The rows by state and event."""
    found: dict[tuple[Phase, Occurrence], list[StateRow]] = {}
    for row in rows:
        found.setdefault((row.phase, row.event), []).append(row)
    return found


_rows: Mapping[tuple[Phase, Occurrence], list[StateRow]] = indexed(TABLE)


def step(phase: Phase, event: Occurrence, holds: Callable[[Guard], bool]) -> StateRow | None:
    """The row that counts when an event comes, or None if it means nothing now."""
    for row in _rows.get((phase, event), ()):
        if all(map(holds, row.when)):
            return row
    return None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a subscription is.

    Attributes:
        position: Everything before it was delivered, or did not match: the place to resume.
        head: The position after the watermark.
        state: LIVE or RESYNC.
    """

    position: Position
    head: Position
    state: State


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """How far a subscription is behind the watermark. What is not known, or no longer remembered, is None.

    Attributes:
        versions: Versions that it has not finished.
        changes: Changes of the log in them.
        nbytes: Their stored bytes.
        seconds: How long ago the oldest of them was committed; for one that reads on from far behind, the last one read.
    """

    versions: int
    changes: int | None
    nbytes: int | None
    seconds: float | None

"""The states of a subscription, in one table, and the measures of its progress and lag.

The table is the only place that decides: code that changes a state calls `step` and carries out the row.
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


class Deed(Enum):
    """An action of a row. The first five run under the ring's lock, together with the change of state; the others after it."""

    LIFT = "leave the ring"
    GO = "set the new position"
    STAND = "take a place in the ring"
    HOLD = "mark it as paused"
    RELEASE = "remove the mark"
    ENLIST = "enter the queue of the replayer"
    LIST = "enter the list of the next advance"
    SIGNAL = "signal the drain"


class StateRow(NamedTuple):
    """One row of the table.

    Attributes:
        phase: The state before.
        event: The event.
        when: Conditions that must all hold. If several rows fit an event, the first one counts.
        to: The state after.
        then: The actions, in this order.
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
"""An event without a row changes nothing: the state stays, and no action runs."""


def indexed(rows: Iterable[StateRow]) -> dict[tuple[Phase, Occurrence], list[StateRow]]:
    """The rows by state and event."""
    found: dict[tuple[Phase, Occurrence], list[StateRow]] = {}
    for row in rows:
        found.setdefault((row.phase, row.event), []).append(row)
    return found


_rows: Mapping[tuple[Phase, Occurrence], list[StateRow]] = indexed(TABLE)


def step(phase: Phase, event: Occurrence, holds: Callable[[Guard], bool]) -> StateRow | None:
    """The first row for a state and an event whose conditions hold; None if there is none."""
    for row in _rows.get((phase, event), ()):
        if all(map(holds, row.when)):
            return row
    return None


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

"""The states of a log's leadership, in one table.

At most one commit leads: it takes the waiting commits, and writes them. The table is the only place that decides who leads next:
`CommitQueue` takes a row under its lock for everything that happens, and appoints a leader only where a row says APPOINTED.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final

from publishers.model.transitions import TransitionRow, TransitionTable

__all__ = ["LEADERSHIP", "Leadership", "LeadershipEvent", "LeadershipGuard"]


class Leadership(Enum):
    """Whether a commit leads."""

    FREE = "no commit leads, and none waits"
    APPOINTED = "the first waiting commit leads, and has not begun"
    LEADING = "the leader writes its group, or the one commit that skipped the queue"
    RETURNING = "no commit leads until the threads of the last group have run, or the time for it is over"

    __hash__: ClassVar[Callable[[object], int]] = (
        object.__hash__
    )  # that of Enum is written in Python, and each commit would pay for it


class LeadershipEvent(Enum):
    """What may change the leadership. BEGIN, YIELD, END and QUIT count only if they come from the leader."""

    ENTER = "a commit has entered the queue"
    SKIP = "a commit wants to lead without entering the queue"
    BEGIN = "the leader takes its group"
    YIELD = "the group is written, and is about to be published"
    END = "the group is published, or has failed"
    BACK = "the threads of the last group have run, or the time for it is over"
    QUIT = "the leader has left the queue before it began"

    __hash__: ClassVar[Callable[[object], int]] = object.__hash__  # as above


class LeadershipGuard(Enum):
    """A condition for a row of the table."""

    WAITING = "commits wait"
    AWAY = "threads of the group are asleep, and not more than have proved to run in time"


_FREE, _APPOINTED, _LEADING, _RETURNING = Leadership
_WAITING, _AWAY = ((guard,) for guard in LeadershipGuard)

LEADERSHIP: Final[TransitionTable[Leadership, LeadershipEvent, LeadershipGuard, Any]] = TransitionTable(
    (
        TransitionRow(_FREE, LeadershipEvent.ENTER, (), _APPOINTED),
        TransitionRow(_FREE, LeadershipEvent.SKIP, (), _LEADING),
        TransitionRow(_APPOINTED, LeadershipEvent.BEGIN, (), _LEADING),
        TransitionRow(_APPOINTED, LeadershipEvent.QUIT, _WAITING, _APPOINTED),
        TransitionRow(_APPOINTED, LeadershipEvent.QUIT, (), _FREE),
        TransitionRow(_LEADING, LeadershipEvent.YIELD, _WAITING, _APPOINTED),
        TransitionRow(_LEADING, LeadershipEvent.YIELD, (), _FREE),
        TransitionRow(_LEADING, LeadershipEvent.END, _AWAY, _RETURNING),
        TransitionRow(_LEADING, LeadershipEvent.END, _WAITING, _APPOINTED),
        TransitionRow(_LEADING, LeadershipEvent.END, (), _FREE),
        TransitionRow(_RETURNING, LeadershipEvent.BACK, _WAITING, _APPOINTED),
        TransitionRow(_RETURNING, LeadershipEvent.BACK, (), _FREE),
    )
)

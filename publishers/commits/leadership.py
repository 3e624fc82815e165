"""The states of a log's leadership, in one table.

At most one commit leads: it takes the waiting commits, and writes them. The table is the only place that decides who leads next:
`CommitQueue` takes a row under its lock for everything that happens, and appoints a leader only where a row says APPOINTED.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["ROWS", "TABLE", "Leadership", "LeadershipEvent", "LeadershipGuard", "LeadershipRow", "indexed"]


class Leadership(Enum):
    """Whether a commit leads."""

    FREE = "no commit leads, and none waits"
    APPOINTED = "the first waiting commit leads, and has not begun"
    LEADING = "the leader writes its group, or the one commit that skipped the queue"
    RETURNING = "no commit leads until the threads of the last group have run, or the time for it is over"

    __hash__ = object.__hash__  # that of Enum is written in Python, and each commit would pay for it


class LeadershipEvent(Enum):
    """What may change the leadership. BEGIN, YIELD, END and QUIT count only if they come from the leader."""

    ENTER = "a commit has entered the queue"
    SKIP = "a commit wants to lead without entering the queue"
    BEGIN = "the leader takes its group"
    YIELD = "the group is written, and is about to be published"
    END = "the group is published, or has failed"
    BACK = "the threads of the last group have run, or the time for it is over"
    QUIT = "the leader has left the queue before it began"

    __hash__ = object.__hash__  # as above


class LeadershipGuard(Enum):
    """A condition for a row of the table."""

    WAITING = "commits wait"
    AWAY = "threads of the group are asleep, and not more than have proved to run in time"


class LeadershipRow(NamedTuple):
    """One row of the table.

    Attributes:
        state: The state before.
        event: The event.
        when: Conditions that must all hold. If several rows fit an event, the first one counts.
        to: The state after.
    """

    state: Leadership
    event: LeadershipEvent
    when: tuple[LeadershipGuard, ...]
    to: Leadership


_FREE, _APPOINTED, _LEADING, _RETURNING = Leadership
_WAITING, _AWAY = ((guard,) for guard in LeadershipGuard)

TABLE: Final = (
    LeadershipRow(_FREE, LeadershipEvent.ENTER, (), _APPOINTED),
    LeadershipRow(_FREE, LeadershipEvent.SKIP, (), _LEADING),
    LeadershipRow(_APPOINTED, LeadershipEvent.BEGIN, (), _LEADING),
    LeadershipRow(_APPOINTED, LeadershipEvent.QUIT, _WAITING, _APPOINTED),
    LeadershipRow(_APPOINTED, LeadershipEvent.QUIT, (), _FREE),
    LeadershipRow(_LEADING, LeadershipEvent.YIELD, _WAITING, _APPOINTED),
    LeadershipRow(_LEADING, LeadershipEvent.YIELD, (), _FREE),
    LeadershipRow(_LEADING, LeadershipEvent.END, _AWAY, _RETURNING),
    LeadershipRow(_LEADING, LeadershipEvent.END, _WAITING, _APPOINTED),
    LeadershipRow(_LEADING, LeadershipEvent.END, (), _FREE),
    LeadershipRow(_RETURNING, LeadershipEvent.BACK, _WAITING, _APPOINTED),
    LeadershipRow(_RETURNING, LeadershipEvent.BACK, (), _FREE),
)
"""An event without a row changes nothing."""


def indexed(rows: Iterable[LeadershipRow]) -> dict[tuple[Leadership, LeadershipEvent], list[LeadershipRow]]:
    """The rows by state and event."""
    found: dict[tuple[Leadership, LeadershipEvent], list[LeadershipRow]] = {}
    for row in rows:
        found.setdefault((row.state, row.event), []).append(row)
    return found


ROWS: Final = indexed(TABLE)
"""The rows as `CommitQueue` looks them up."""

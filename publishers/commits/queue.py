"""The queue of a log: commits that wait to be written, and the leader that writes them.

A commit that enters while there is no leader leads. A leader takes the waiting commits and passes leadership to the first
commit that came meanwhile. A commit that finds no room waits outside the queue, and enters again when there is room.
`publishers.commits.leadership` has the states and what changes them.

Threads that commit in a loop come back as soon as they run. So after a group is written and published, the next leader is
appointed when all threads of that group have run, or when as much time has passed as the write took. Otherwise two
halves of the callers would take turns at the disk, and each sync would serve one half only. The queue neither waits for a
thread that does something else, nor for more threads than have proved to run in that time. If more commits wait than the
group had, waiting gains nothing, and leadership is passed on before the group is published.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from publishers.commits.leadership import LEADERSHIP, Leadership, LeadershipEvent, LeadershipGuard
from publishers.commits.pending import CommitStage, Pending
from publishers.errors import LogClosed, LogFailed
from publishers.options import MIB, LogOptions

__all__ = ["GROUP_BYTES", "GROUP_TRANSACTIONS", "CommitQueue"]

_FREE, _APPOINTED, _LEADING, _RETURNING = Leadership
_WAITING, _TAKEN = CommitStage.WAITING, CommitStage.TAKEN
GROUP_BYTES: Final = 8 * MIB
"""Most bytes that one group commit writes: the last caller of a group waits for all of it, and more bytes make a sync no cheaper."""

GROUP_TRANSACTIONS: Final = 1024
"""Most transactions in one group commit; a sync is then a small part of what each of them costs."""

_PROMPT: Final = 16.0
"""Initial number of threads of a group to wait for, until it is known how many run in time."""
_AGAIN: Final = 1 / 8
"""Growth of that number for each group that was larger than it."""


class CommitQueue:
    """The commits that wait. Thread-safe.

    Args:
        options: The bound of the queue.
        deferring: Whether something is withheld when the log is opened.
        now: Returns the monotonic time in seconds.

    Attributes:
        lock: Guards every change of the attributes below.
        state: Whether a commit leads.
        leader: A commit of the queue, or the transaction of a commit that skipped it; None if there is none. Only the commit
            itself, or for a submitted one the thread of `Arrivals`, may act on it, because that is where it was appointed.
        deferring: Whether anything is withheld, or a queued commit asks to be withheld.
        failed: Why the queue admits nothing any more; None while it does.
        closed: Whether the queue admits nothing because the log is closed.
        outside: Commits for which there is no room yet. While there are any, others wait inside.
    """

    def __init__(self, options: LogOptions, *, deferring: bool, now: Callable[[], float] = monotonic) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.state: Leadership = _FREE
        self.leader: object = None
        self.deferring: bool = deferring
        self.failed: str | None = None
        self.closed: bool = False
        self.outside: deque[Pending] = deque()
        self._options = options
        self._waiting: deque[Pending] = deque()
        self._bytes = 0
        self._away: set[Pending] = set()  # entries of the last group whose threads are asleep
        self._now = now
        self._until = 0.0
        self._prompt = _PROMPT  # this many threads run within the time of a write

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes of the waiting commits."""
        return self._bytes

    def enter(self, pending: Pending) -> None:
        """Admits a commit if there is room; else puts it outside, to be roused when it should enter again.

        An entry with neither a transaction nor a task is always admitted.

        Raises:
            LogClosed: If the log was closed, perhaps while the commit waited outside.
            LogFailed: If the log has failed.
        """
        with self.lock:
            if pending.transaction is not None or pending.task is not None:
                if self.closed:
                    raise LogClosed
                if self.failed is not None:
                    raise LogFailed("refused", self.failed)
                if self._waiting and self._bytes + pending.size > self._options.queue_bytes:
                    self.outside.append(pending)
                    return
            pending.stage = _WAITING
            if pending.hidden:
                self.deferring = True
            self._waiting.append(pending)
            self._bytes += pending.size
            if self.state is _FREE:  # else there is no row for it
                self._move(LeadershipEvent.ENTER)
            elif self.state is _RETURNING and self._now() >= self._until:
                self._move(LeadershipEvent.BACK)

    def skip(self, transaction: object) -> bool:
        """Makes the commit of an ordinary transaction lead without entering the queue, if nothing else is going on."""
        with self.lock:
            if self.state is not _FREE or self.deferring or self.failed is not None or self.closed:
                return False
            # The row of SKIP, inlined, because each commit would pay for the look-up.
            self.state = _LEADING
            self.leader = transaction
            return True

    def begin(self, leader: Pending, group: list[Pending]) -> None:
        """Begins a leadership: moves the next group, with the leader at its head, from the queue to a list.

        Raises:
            RuntimeError: If the entry was not appointed, or has begun before; nothing has changed.
        """
        nbytes = 0
        with self.lock:
            if self.leader is not leader or not self._move(LeadershipEvent.BEGIN):
                raise RuntimeError(
                    f"{leader!r} must not lead: the leader is {self.leader!r}, and {self.state.value}"
                )
            while self._waiting and len(group) < GROUP_TRANSACTIONS:
                first = self._waiting[0]
                if group and nbytes + first.size > GROUP_BYTES:
                    break
                self._waiting.popleft()
                first.stage = _TAKEN
                group.append(first)
                nbytes += first.size
            self._bytes -= nbytes
            self._call_in()

    def pass_on(self, leader: object, beyond: int = -1) -> None:
        """Passes leadership to the first waiting commit if more than ``beyond`` wait; no effect if it was passed on before."""
        with self.lock:
            if self.leader is leader and len(self._waiting) > beyond:
                if self._waiting:
                    self._move(LeadershipEvent.YIELD)
                else:
                    # The last row of YIELD, inlined as in `skip`.
                    self.state = _FREE
                    self.leader = None

    def end(self, leader: object, group: Iterable[Pending], until: float) -> None:
        """Ends a leadership that was not passed on; the next leader is appointed when the threads of the group have run.

        Args:
            leader: The leader.
            group: The entries that it has written; each is roused afterwards.
            until: Monotonic time in seconds at which waiting for the threads ends.
        """
        with self.lock:
            if self.leader is leader:
                self._away = {one for one in group if one.asleep}
                self._until = until
                if len(self._away) > self._prompt or not self._away:
                    self._prompt += _AGAIN
                self._move(LeadershipEvent.END)

    def returned(self, pending: Pending) -> None:
        """Notes that the thread of a commit runs again."""
        with self.lock:
            self._returned(pending)

    def _returned(self, pending: Pending) -> None:
        pending.asleep = False
        self._away.discard(pending)
        if self.state is _RETURNING:
            late = self._now() >= self._until
            if late:
                self._prompt = max(self._prompt - len(self._away) - 1, 0.0)
            if late or not self._away:
                self._move(LeadershipEvent.BACK)

    def settle(self, *, withheld: bool) -> None:
        """Notes whether something is withheld; called when that may have changed."""
        with self.lock:
            self.deferring = withheld or any(member.hidden for member in self._waiting)

    def leave(self, pending: Pending) -> None:
        """Removes a commit whose thread has stopped waiting, unless a leader has taken it.

        One that waits outside stays there until commits are called in, which does it no harm.
        """
        with self.lock:
            if pending in self._waiting:
                self._waiting.remove(pending)
                self._bytes -= pending.size
                self._call_in()
                if self.leader is pending:
                    self._move(LeadershipEvent.QUIT)
            self._returned(pending)

    def close(self) -> None:
        """Admits nothing any more, and wakes the commits that wait outside, however long the leader takes."""
        with self.lock:
            self.closed = True
            self._call_in()

    def _move(self, event: LeadershipEvent) -> bool:
        """Takes the row for an event, if there is one; nothing else appoints a leader."""
        row = LEADERSHIP.row(self.state, event, self._holds)
        if row is None:
            return False
        self.state = row.to
        if row.to is _APPOINTED:
            self.leader = first = self._waiting[0]
            first.appoint()
        elif row.to is not _LEADING:
            self.leader = None
        return True

    def _holds(self, guard: LeadershipGuard) -> bool:
        if guard is LeadershipGuard.WAITING:
            return bool(self._waiting)
        return 0 < len(self._away) <= self._prompt

    def _call_in(self) -> None:
        while self.outside:
            self.outside.popleft().rouse()

"""The queue of a log: commits that wait to be written, and the leader that writes them.

A commit that enters while there is no leader leads. A leader takes the waiting commits and passes leadership to the first
commit that came meanwhile. A commit that finds no room waits outside the queue, and enters again when there is room.

Threads that commit in a loop come back as soon as they run. So after a group is written and published, the next leader is
appointed when all threads of that group have run, or when as much time has passed as the write took. Otherwise two
halves of the callers would take turns at the disk, and each sync would serve one half only. The queue neither waits for a
thread that does something else, nor for more threads than have proved to run in that time. If more commits wait than the
group had, waiting gains nothing, and leadership is passed on before the group is published.
"""

import threading
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Final

from publishers.commits.pending import Pending
from publishers.errors import LogClosed, LogFailed
from publishers.options import LogOptions

__all__ = ["CommitQueue"]

_RETURNING: Final = object()
"""Stands for the leader while threads of the last written group have yet to run."""
_PROMPT: Final = 16.0
"""Initial number of threads of a group to wait for, until it is known how many run in time."""
_AGAIN: Final = 1 / 8
"""Growth of that number for each group that was larger than it."""


class CommitQueue:
    """The commits that wait. Thread-safe.

    Args:
        options: Bounds of groups and of the queue.
        deferring: Whether something is withheld when the log is opened.

    Attributes:
        lock: Guards every change of the attributes below.
        leader: A commit of the queue, the transaction of a commit that skipped the queue, or the sentinel for a group whose
            threads are coming back; None if there is none.
        deferring: Whether anything is withheld, or a queued commit asks to be withheld.
        failed: Why the queue admits nothing any more; None while it does.
        closed: Whether the queue admits nothing because the log is closed.
        outside: Commits for which there is no room yet.
    """

    def __init__(self, options: LogOptions, *, deferring: bool) -> None:
        self.lock = threading.Lock()
        self.leader: object = None
        self.deferring = deferring
        self.failed: str | None = None
        self.closed = False
        self.outside: deque[Pending] = deque()
        self._options = options
        self._waiting: deque[Pending] = deque()
        self._bytes = 0
        self._returning: set[Pending] = set()
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
            pending.inside = True
            if pending.hidden:
                self.deferring = True
            self._waiting.append(pending)
            self._bytes += pending.size
            if self.leader is None:
                self.leader = pending
                pending.leads = True
            elif self.leader is _RETURNING and monotonic() >= self._until:
                self._appoint()

    def gather(self, group: list[Pending]) -> None:
        """Moves the next group from the head of the queue to a list, within the bounds of a group."""
        options = self._options
        nbytes = 0
        with self.lock:
            while self._waiting and len(group) < options.group_transactions:
                first = self._waiting[0]
                if group and nbytes + first.size > options.group_bytes:
                    break
                self._waiting.popleft()
                first.taken = True
                group.append(first)
                nbytes += first.size
            self._bytes -= nbytes
            self._call_in()

    def pass_on(self, leader: object, beyond: int = -1) -> None:
        """Passes leadership to the first waiting commit if more than ``beyond`` wait; no effect if it was passed on before."""
        with self.lock:
            if self.leader is leader and len(self._waiting) > beyond:
                self.leader = None
                if self._waiting:  # a commit without contention skips this step
                    self._appoint()

    def end(self, leader: object, group: Iterable[Pending], until: float) -> None:
        """Ends a leadership that was not passed on; the next leader is appointed when the threads of the group have run.

        Args:
            leader: The leader.
            group: The entries that it has written; each is roused afterwards.
            until: Monotonic time in seconds at which waiting for the threads ends.
        """
        with self.lock:
            if self.leader is leader:
                self._returning = {one for one in group if one.asleep}
                self._until = until
                if 0 < len(self._returning) <= self._prompt:
                    self.leader = _RETURNING
                else:
                    self._prompt += _AGAIN
                    self._appoint()

    def returned(self, pending: Pending) -> None:
        """Notes that the thread of a commit runs again."""
        with self.lock:
            self._returned(pending)

    def _returned(self, pending: Pending) -> None:
        pending.asleep = False
        self._returning.discard(pending)
        if self.leader is _RETURNING:
            late = monotonic() >= self._until
            if late:
                self._prompt = max(self._prompt - len(self._returning) - 1, 0.0)
            if late or not self._returning:
                self._appoint()

    def settle(self, *, withheld: bool) -> None:
        """Notes whether something is withheld; called when that may have changed."""
        with self.lock:
            self.deferring = withheld or any(member.hidden for member in self._waiting)

    def leave(self, pending: Pending) -> None:
        """Removes a commit whose thread has stopped waiting, unless a leader has taken it."""
        with self.lock:
            if pending in self.outside:
                self.outside.remove(pending)
            if pending in self._waiting:
                self._waiting.remove(pending)
                self._bytes -= pending.size
                self._call_in()
            if self.leader is pending:
                self._appoint()
            self._returned(pending)

    def close(self) -> None:
        """Admits nothing any more, and wakes the commits that wait outside."""
        with self.lock:
            self.closed = True
            self._call_in()

    def _appoint(self) -> None:
        self.leader = first = self._waiting[0] if self._waiting else None
        if first is not None:
            first.leads = True
            first.rouse()

    def _call_in(self) -> None:
        while self.outside:
            self.outside.popleft().rouse()

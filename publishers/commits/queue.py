"""The queue of a log: who waits for a turn to be written, and who leads.

A commit that enters while none leads leads; a leader takes all that wait, and passes leadership on to the first of those that
came meanwhile. A commit that finds no room waits outside, and enters again when there is some.

Threads that commit again and again come back as soon as they run. So when a group has been written and published, the next
leader is appointed once all of its threads have run, or as much time has passed as the group took to be written: else two
halves of the callers would take turns at the disk, and each sync would be for one of them only. Nobody waits for a thread that
does something else meanwhile, nor for more threads than were found to run in that time. Where more commits wait than were written there is nothing to gain, and leadership is passed on
before the group is published.
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
"""Leads while threads of the group that was written last have yet to run."""
_PROMPT: Final = 16.0
"""Threads of a group that are waited for as long as nobody knows how many are prompt."""
_AGAIN: Final = 1 / 8
"""By how much more are waited for one day, with each group that had too many."""


class CommitQueue:
    """The commits that wait. Thread-safe.

    Args:
        options: Bounds of groups and of the queue.
        deferring: Whether something is withheld at the opening.

    Attributes:
        lock: Held for every change of what follows.
        leader: What leads: a commit of the queue, the transaction of one that met no other, or what stands for those that
            are coming back; None if there is none.
        deferring: Whether withheld versions concern the next group, or whoever is in the queue wants to be withheld.
        failed: Why nobody is let in any more; None while all is well.
        closed: Whether nobody is let in because the log is closed.
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
        self._prompt = _PROMPT  # as many threads run within the time of a write

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes of those who wait."""
        return self._bytes

    def enter(self, pending: Pending) -> None:
        """Lets a commit in if there is room; else it is roused when it should try again.

        One with neither a transaction nor a task is let in always.

        Raises:
            LogClosed: If the log was closed, meanwhile perhaps.
            LogFailed: If it has failed.
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
        """Moves the next group to a list: from the first who waits on, within the bounds of a group."""
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
        """Hands leadership to the first who waits, if more than ``beyond`` do; does nothing if it was passed on before."""
        with self.lock:
            if self.leader is leader and len(self._waiting) > beyond:
                self.leader = None
                if self._waiting:  # so that a commit that meets no other takes one step less
                    self._appoint()

    def end(self, leader: object, group: Iterable[Pending], until: float) -> None:
        """Ends a leadership, if it was not passed on: the next leader is appointed when those of the group have run.

        Args:
            leader: Whose it is.
            group: What it has written; each is roused after this.
            until: When nobody is waited for any more.
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
        """The thread of a commit runs again, and waits for it no more."""
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
        """Notes whether something is withheld, when that may have changed."""
        with self.lock:
            self.deferring = withheld or any(member.hidden for member in self._waiting)

    def leave(self, pending: Pending) -> None:
        """Takes out a commit whose thread waits no longer, unless a leader has taken it."""
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
        """Lets nobody in any more; those who waited for room are told."""
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

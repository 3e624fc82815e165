"""The queue of a log: who waits for a turn to be written, and who leads.

Whoever enters while nobody leads leads; a leader takes all that wait, and passes leadership on to the first of those who
came meanwhile. Any of it may be interrupted at any place and is then put right by `Queue.leave`, which may be repeated.
"""

import threading
from collections import deque
from collections.abc import Sequence

from publishers.commits.pending import Pending
from publishers.errors import LogClosed, LogFailed
from publishers.options import LogOptions

__all__ = ["Queue"]


class Queue:
    """Those who wait. Thread-safe.

    Args:
        options: Bounds of groups and of the queue.
        deferring: Whether something is withheld at the opening.

    Attributes:
        leader: Who leads; None if nobody does.
        deferring: Whether withheld versions concern the next group, or whoever is in the queue wants to be withheld.
        failed: Why nobody is let in any more; None while all is well.
        closed: Whether nobody is let in because the log is closed.
    """

    def __init__(self, options: LogOptions, *, deferring: bool) -> None:
        self.leader: Pending | None = None
        self.deferring = deferring
        self.failed: str | None = None
        self.closed = False
        self._options = options
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting: deque[Pending] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes of those who wait."""
        return self._bytes

    def enter(self, pending: Pending) -> None:
        """Lets somebody in as soon as there is room; who brings neither a transaction nor a task is let in always.

        Raises:
            LogClosed: If the log was closed, meanwhile perhaps.
            LogFailed: If it has failed.
        """
        size, bound = pending.size, self._options.queue_bytes
        with self._lock:
            while pending.transaction is not None or pending.task is not None:
                if self.closed:
                    raise LogClosed
                if self.failed is not None:
                    raise LogFailed("refused", self.failed)
                if not self._waiting or self._bytes + size <= bound:
                    break
                self._room.wait()
            if pending.hidden:
                self.deferring = True
            self._waiting.append(pending)
            self._bytes += size
            if self.leader is None:
                self.leader = pending
                pending.leads = True

    def gather(self, leader: Pending) -> list[Pending]:
        """Gives a leader the next group: from the first who waits on, within the bounds of a group."""
        options = self._options
        group = leader.group
        nbytes = 0
        with self._lock:
            while self._waiting and len(group) < options.group_transactions:
                first = self._waiting[0]
                if group and nbytes + first.size > options.group_bytes:
                    break
                # In this order, so that an interrupt in between leaves nobody out.
                first.taken = True
                group.append(first)
                self._waiting.popleft()
                nbytes += first.size
            self._bytes -= nbytes
            self._room.notify_all()
        return group

    def pass_on(self, leader: Pending) -> None:
        """Hands leadership to the first who waits; does nothing if it was passed on before."""
        with self._lock:
            if self.leader is not leader:
                return
            self.leader = self._waiting[0] if self._waiting else None
            if self.leader is not None:
                self.leader.lead()

    def settle(self, *, withheld: bool) -> None:
        """Notes whether something is withheld, when that may have changed."""
        with self._lock:
            self.deferring = withheld or any(member.hidden for member in self._waiting)

    def leave(self, pending: Pending, group: Sequence[Pending]) -> None:
        """Takes out somebody who was interrupted, with the group that he had taken, and finds another leader."""
        with self._lock:
            self._waiting = deque(one for one in self._waiting if one is not pending and one not in group)
            self._bytes = sum(one.size for one in self._waiting)
            self._room.notify_all()
            if self.leader is pending:
                self.leader = self._waiting[0] if self._waiting else None
            if self.leader is not None:  # it may not have heard of it
                self.leader.lead()

    def close(self) -> None:
        """Lets nobody in any more; those who waited for room are told."""
        with self._lock:
            self.closed = True
            self._room.notify_all()

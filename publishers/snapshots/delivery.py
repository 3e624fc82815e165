"""The delivery of the rows of one snapshot, and of the changes between them."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from flow.contracts import Subscriber, Subscription
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import INLINE, Executor, executor_of
from publishers.errors import LogClosed, LogError, LogExhausted, SnapshotGone
from publishers.fanout.service import Service
from publishers.model.change import Change
from publishers.snapshots.reader import Entry, SnapshotReader
from publishers.snapshots.signals import SnapshotChange, delivering
from publishers.wal import Hold

__all__ = ["Paying", "RowDelivery"]

_T = TypeVar("_T")


@runtime_checkable
class Paying(Protocol):
    """An executor of subscriptions whose owner pays for the processor time of reading rows for them."""

    @property
    def heavy(self) -> bool:
        """Whether the owner has taken more than its share of the processor, so that one of all such reads at a time."""
        ...

    def charged(self, work: Callable[[], _T]) -> _T:
        """Does work that the owner is charged for, and returns its result."""
        ...


class RowDelivery:
    """Delivers rows and the changes between them, and completes after the last row.

    With demand, the replayer's threads read the rows, one page at a time; only that page is kept in memory, and not even that
    while others need the memory that the log has for pages.

    Args:
        service: The log's replayer and clock.
        reader: Determines the next page or changes.
        subscriber: Gets the signals.
        hold: Holds the history to read; None for a follower.
        prepare: Called where rows are read, when all of them were: prepares what follows, in time of the size of the criteria.
        executor: Where the signals run.
        batch_events: Most changes of one read.
        batch_bytes: Likewise in bytes.

    Attributes:
        detached: Whether other subscriptions are served first.
        reader: As given.
    """

    detached = False

    def __init__(
        self,
        service: Service,
        reader: SnapshotReader,
        subscriber: Subscriber[Change],
        hold: Hold | None,
        prepare: Callable[[], None],
        *,
        executor: Executor | asyncio.AbstractEventLoop | None,
        batch_events: int,
        batch_bytes: int,
    ) -> None:
        self.reader = reader
        self._service = service
        self._hold = hold
        self._prepare = prepare
        self._bounds = (batch_events, batch_bytes)
        self._executor = executor_of(executor)
        self._paying = self._executor if isinstance(self._executor, Paying) else None
        self._began = service.clock.monotonic()
        self._signals = 0
        self._closed = False
        self._completed = False
        self._reading = False
        self._gone = False
        self._letting_go = threading.Lock()
        self._taking = threading.Lock()
        self._entries: deque[Entry] = deque()
        self._fetched = 0  # entries of the last read
        self._drain: Drain[Change] = Drain(subscriber, self, executor=self._executor, turn=batch_events)

    def request(self, n: int, /) -> None:
        """Requests ``n`` more rows and changes (Reactive Streams §3.8)."""
        self._drain.request(n)

    def cancel(self) -> None:
        """Ends it without a further signal (Reactive Streams §3.12)."""
        self._drain.cancel()

    @property
    def heavy(self) -> bool:
        """See `Replayable`."""
        return self._paying is not None and self._paying.heavy

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._drain.ended

    # For the log.

    def start(self, subscription: Subscription) -> None:
        """Calls ``on_subscribe``, and begins."""
        self._service.guests.add(self)
        self._drain.start(subscription)

    def wake(self) -> None:
        """Ends it, because the log was closed."""
        self._run(self._drain.signal)

    def close(self) -> None:
        """Ends it as if the log were closed."""
        self._closed = True
        self._run(self._drain.signal)

    # For its drain.

    def pull(self, limit: int, /) -> Sequence[Change]:
        """Returns rows and changes that were read; does no I/O."""
        taken: list[Change] = []
        with self._taking:
            if self._reading or self._ending:
                return ()
            self._deliver_signals(wake=False)
            entries = self._entries
            while entries and len(taken) < limit and isinstance(first := entries[0], SnapshotChange):
                taken.append(first)
                entries.popleft()
            reads = self._reading = not taken and not entries and not self.reader.done
            nbytes = self.reader.page_bytes
        if reads:
            self._service.replayer.enlist(self)
        elif taken:
            self._service.pages.note(self, nbytes)
        return taken

    def outcome(self) -> Outcome | None:
        """Whether all rows were delivered, or the log was closed."""
        with self._taking:
            if self._reading:
                return None
            if self._ending:
                return Failed(self._service.reason or LogClosed())
            self._deliver_signals(wake=True)
            self._completed = self.reader.done and not self._entries
            return COMPLETED if self._completed else None

    def release(self) -> None:
        """Releases the page, and the hold unless it ended after the rows."""
        self._service.guests.discard(self)
        self.reader.pages.leave()
        with self._taking:
            self._entries = deque()
            self._gone = True
        self._service.pages.note(self, 0)
        if not self._completed:
            self.let_go()

    def _deliver_signals(self, *, wake: bool) -> None:
        entries = self._entries
        while entries and not isinstance(signal := entries[0], SnapshotChange):
            entries.popleft()
            self._signals += 1  # under a key of its own, as none may replace another
            self._drain.notify(("snapshot", self._signals), delivering(signal), wake=wake)

    @property
    def _ending(self) -> bool:
        return self._service.closed or self._closed

    # For the replayer.

    def replay(self) -> bool:
        """Reads the next page or changes into the queue; returns whether to continue at once."""
        return self._replay() if self._paying is None else self._paying.charged(self._replay)

    def _replay(self) -> bool:
        events, nbytes = self._bounds
        room = min(self._drain.demand, events)
        if self._drain.ended:
            return False
        if room and not self._ending:
            try:
                self._check_age()
                hold, pages = self._hold, self._service.pages
                if hold is not None:
                    hold.move(self.reader.position)  # what follows may have to be read again
                entries = self.reader.read(room, nbytes, sparing=pages.scarce)
                if self.reader.done:
                    self._prepare()
                if entries is None:
                    self.reader.pages.listen(self._come)
                    return False
            except LogExhausted as error:
                self._service.replayer.rest(error)
                return True
            except Exception as error:  # noqa: BLE001 - the subscriber must get every error
                if isinstance(error, OSError):
                    error = LogError(f"the snapshot could not be read: {error}")
                self._run(partial(self._drain.fail, self._service.explain(error)))
                return False
            if not entries:
                return True
            self._keep(entries)
        self.replay_stopped()
        return False

    def _keep(self, entries: Sequence[Entry]) -> None:
        """Queues what was read; on the thread that reads."""
        reader = self.reader
        with self._taking:
            gone = self._gone
            if not gone:
                self._entries.extend(entries)
                self._fetched = len(self._entries)
        if not gone:
            self._service.pages.note(self, reader.page_bytes + reader.entry_bytes)
            if self._gone:  # it has ended meanwhile
                self._service.pages.note(self, 0)

    def give_up(self) -> int:
        """See `HeldPages.note`; a wake-up is on its way if anything was to be delivered, and reads again."""
        reader = self.reader
        with self._taking:
            if self._reading:
                return reader.page_bytes + reader.entry_bytes
            untouched = len(self._entries) == self._fetched and any(
                isinstance(one, SnapshotChange) for one in self._entries
            )
            reader.give_up(entries=untouched)
            if untouched:
                self._entries.clear()
            return reader.entry_bytes if self._entries else 0

    def _check_age(self) -> None:
        most = self._service.options.snapshot_max_duration
        if self._service.clock.monotonic() - self._began > most:
            raise SnapshotGone(self._service.oldest, self.reader.id, f"it has taken longer than {most:g} s")

    def replay_stopped(self) -> None:
        """Continues, also if the log was closed while it waited for its turn."""
        self._reading = False
        self._run(self._drain.signal)

    def _come(self) -> None:
        """Continues, because a page can be read or the source has ended."""
        self._service.replayer.enlist(self)

    def _run(self, signal: Callable[[], None]) -> None:
        if self._executor is INLINE:
            self._service.run_aside(signal)
        else:
            signal()

    def let_go(self) -> None:
        """Releases the hold: the changes after the rows have their own, or need none."""
        with self._letting_go:
            hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

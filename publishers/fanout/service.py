"""The objects that all subscriptions of one log share."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from flow.executors import Executor
from publishers.background import HERE
from publishers.errors import HistoryPruned, LogForked, WalCorrupted
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.dispatch import DispatchPool
from publishers.fanout.gating import Gating
from publishers.fanout.group import DeliveryGroup
from publishers.fanout.held_pages import HeldPages
from publishers.fanout.ports import Subscribed, Wakeable
from publishers.fanout.registry import Registry
from publishers.fanout.replayer import FrameCache, Replayer
from publishers.fanout.ring import Ring
from publishers.fanout.stretches import Stretches
from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark
from publishers.losses import log_lost_history
from publishers.model.position import Position
from publishers.options import LogOptions

if TYPE_CHECKING:
    from flow.clock import Clock
    from publishers.wal import Reader

__all__ = ["COUNTED_TYPES", "DETACHED_SHARE", "DISPATCH_THREADS_MAX", "REPLAY_THREADS", "Service"]

REPLAY_THREADS: Final = 2
"""Threads that serve subscribers from the WAL: one reads the disk while the other decodes, and more only share the interpreter's lock."""

DETACHED_SHARE: Final = 0.1
"""Share of one thread's time for the subscriptions of all detached publishers, whose criteria cost most: what they take, others lack."""

DISPATCH_THREADS_MAX: Final = 64
"""Most threads that deliver to subscribers without an executor if these block; ``dispatch_threads`` counts if that is more."""

COUNTED_TYPES: Final = 1_000
"""Most entity types whose deliveries are counted one by one; all further types are counted together, so figures have a bound too."""

_LOG: Final = logging.getLogger("penstock.follower")


class Service:
    """What a subscription needs from its log: watermark, registry, frames of the WAL, threads.

    Attributes:
        options: The options of the log.
        clock: The log's clock.
        watermark: The newest visible version.
        registry: The shared publishers and their subscriptions.
        frames: The cache of verified frames of the WAL; three quarters of ``replay_bytes``.
        stretches: Stretches of the WAL that subscriptions of one publisher share; the other quarter.
        replayer: The threads that serve subscriptions from the WAL.
        waiting: Subscriptions to wake after an advance even if nothing matches.
        admission: Makes writers wait for gating subscriptions, and measures lags.
        deliveries: Counts delivered changes.
        pages: What snapshots have read and their subscribers have not taken.
        guests: Further objects to wake when the log is closed.
        closed: Whether the log was closed.
        reason: The error with which every subscription ends; None if the log was closed normally.
        explain: Translates an error of a read into the error for the subscriber, such as that the log was dropped.
        publish_event: Called with each event of the log in this process, by an upper-case word; of a log of a store only.
        inherited: The error to raise in a child of ``fork``; None in the process that opened the log.
        log_name: The log's name in lines of the logger.
        damage: The first damage that a read has found; None if there is none.
    """

    def __init__(
        self, *, visible: int, reader: "Reader", options: LogOptions, clock: "Clock", name: str
    ) -> None:
        self.options = options
        self.clock = clock
        self.watermark: Watermark = Watermark(visible)
        self.registry: Registry = Registry(visible, options, self.watermark)
        shared = options.replay_bytes // 4
        self.frames: FrameCache = FrameCache(reader, options.replay_bytes - shared, self.note_damage)
        self.stretches: Stretches = Stretches(shared)
        self.replayer: Replayer = Replayer(REPLAY_THREADS, name, DETACHED_SHARE)
        self.waiting: WaitingList = WaitingList(self.watermark)
        self.admission: Gating = Gating(visible, clock, self._gating)
        self.deliveries: DeliveryCounters = DeliveryCounters(COUNTED_TYPES)
        self.pages: HeldPages = HeldPages(options.snapshot_bytes)
        self.guests: set[Wakeable] = set()
        self.closed: bool = False
        self.reason: Exception | None = None
        self.explain: Callable[[Exception], Exception] = lambda error: error
        self.publish_event: Callable[[str, Mapping[str, Any]], None] = lambda _what, _body: None
        self.inherited: LogForked | None = None
        self.damage: WalCorrupted | None = None
        self._reader = reader
        self._name = name
        self.log_name: str = name.removeprefix("penstock-")
        self._lock = threading.Lock()
        self._pool: DispatchPool | None = None

    def check_here(self) -> None:
        """Checks that this process opened the log.

        Raises:
            LogForked: In a child of ``fork``.
        """
        if self.inherited is not None:
            raise self.inherited

    def abandon(self, inherited: LogForked) -> None:
        """Marks the service closed in a child of ``fork``, without a signal to any subscription.

        Subscriptions, threads and locks belong to the parent process.
        """
        self.inherited = self.reason = inherited
        self.closed = True

    @property
    def oldest(self) -> Position:
        """The oldest kept position."""
        return Position(self._reader.oldest, 0)

    @property
    def head(self) -> Position:
        """The position after the watermark."""
        return Position(self.watermark.visible + 1, 0)

    @property
    def pool(self) -> DispatchPool:
        """The thread pool for subscribers that named no executor and run on no event loop; created on first use."""
        with self._lock:
            pool = self._pool
            if pool is None:
                pool = DispatchPool(
                    self.options.dispatch_threads, DISPATCH_THREADS_MAX, f"{self._name}-dispatch"
                )
                if not self.closed:  # else only the subscriptions that it serves refer to it
                    self._pool = pool
            return pool

    @property
    def dispatch_threads(self) -> int:
        """Most threads of the pool now; 0 until the pool is used."""
        pool = self._pool
        return 0 if pool is None else pool.threads

    def group(self, ring: Ring, executor: Executor | None) -> DeliveryGroup:
        """Creates a delivery group for a ring and an executor."""
        return DeliveryGroup(
            ring,
            executor,
            watermark=self.watermark,
            counters=self.deliveries,
            run_aside=self.run_aside,
        )

    def run_aside(self, run: Callable[[], None]) -> None:
        """Runs a callable that may reach a subscriber's code: at once, or in the pool if this is one of the log's threads."""
        if HERE.background:
            with contextlib.suppress(RuntimeError):  # the pool was just shut down; then this thread runs it
                self.pool.submit(run)
                return
        run()

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """A context for a read, which notes damage that the read finds; see `note_damage`."""
        try:
            yield
        except WalCorrupted as error:
            self.note_damage(error)
            raise

    def note_damage(self, error: WalCorrupted) -> None:
        """Remembers and logs the first damage that a read finds, unless the log was replaced or dropped."""
        if self.damage is None and isinstance(self.explain(error), WalCorrupted):
            with self._lock:
                first = self.damage is None
                self.damage = self.damage or error
            if first:
                _LOG.error("the log %s is corrupt: %s", self.log_name, error)

    def lost(self, subscription: Subscribed, oldest: Position) -> HistoryPruned:
        """Logs that a subscription has lost history; returns the error with which it may end."""
        log_lost_history(self.log_name, subscription.name, subscription.cursor.next.version, oldest.version)
        return HistoryPruned(oldest)

    def forget(self, subscription: Subscribed) -> None:
        """Removes a subscription that has ended; once the log is closed, the last one shuts the pool down."""
        self.waiting.discard(subscription)
        if self.closed:
            self.registry.if_empty(self._dismiss)

    def close(self, wake: Callable[[Iterable[Wakeable]], None]) -> None:
        """Ends every subscription: completed if it has read everything visible, else with ``LogClosed``.

        If ``reason`` is set, every subscription ends with that error, whatever it has read.
        """
        self.closed = True
        self.admission.closed = True
        self.admission.nudge()
        self.replayer.close()
        if self.reason is not None:
            for subscription in self.registry.subscriptions():
                subscription.fail(self.reason)
        wake([*self.registry.subscriptions(), *self.guests])
        self.frames.clear()
        self.stretches.clear()
        # A woken subscription may need several turns to read what is visible. The last one to end shuts the pool down.
        self.registry.if_empty(self._dismiss)

    def _dismiss(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _gating(self) -> list[Subscribed]:
        return [one for one in self.registry.subscriptions() if one.max_lag is not None and not one.paused]

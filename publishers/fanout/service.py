"""What all subscriptions of one log share."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from flow.executors import Executor
from publishers.background import HERE
from publishers.errors import HistoryPruned, LogForked, WalCorrupted
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.dispatch import DispatchPool
from publishers.fanout.gating import Gating
from publishers.fanout.group import DeliveryGroup
from publishers.fanout.ports import Subscribed, Wakeable
from publishers.fanout.registry import Registry
from publishers.fanout.replayer import FrameCache, Replayer
from publishers.fanout.ring import Ring
from publishers.fanout.stretches import Stretches
from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark
from publishers.losses import tell_history
from publishers.model.position import Position
from publishers.options import LogOptions

if TYPE_CHECKING:
    from flow.clock import Clock
    from publishers.wal import Reader

__all__ = ["Service"]

_LOG: Final = logging.getLogger("penstock.follower")


class Service:
    """The rooms that a subscription needs: watermark, registry, WAL frames, threads.

    Attributes:
        clock: What time it is.
        watermark: What may be delivered.
        registry: Who wants what.
        frames: Verified frames of the WAL.
        stretches: What laggards of one publisher have read from these.
        replayer: Serves those who lag.
        waiting: The subscriptions that an advance concerns although nothing may match.
        admission: Makes writers wait for gating subscribers, and knows how far behind who is.
        deliveries: Counts what subscribers get.
        guests: Those who are to be woken when the log was closed, beside all subscriptions.
        closed: Whether the log was closed.
        reason: Why it was closed, if that is more than that: with what every subscription ends.
        explain: Makes of an error of a read what the reader should know, such as that the log was dropped.
        inherited: What to raise in a child of ``fork``; None in the process that opened the log.
        log_name: What lines of log call the log.
        damage: The first damage that a read has met; None as long as none has.
    """

    def __init__(
        self, *, visible: int, reader: "Reader", options: LogOptions, clock: "Clock", name: str
    ) -> None:
        self.options = options
        self.clock = clock
        self.watermark = Watermark(visible)
        self.registry = Registry(visible, options, self.watermark)
        shared = options.replay_bytes // 4
        self.frames = FrameCache(reader, options.replay_bytes - shared, self.note_damage)
        self.stretches = Stretches(shared)
        self.replayer = Replayer(options.replay_threads, name, options.detached_share)
        self.waiting = WaitingList(self.watermark)
        self.admission = Gating(visible, clock, self._gating)
        self.deliveries = DeliveryCounters(options.counted_types)
        self.guests: set[Wakeable] = set()
        self.closed = False
        self.reason: Exception | None = None
        self.explain: Callable[[Exception], Exception] = lambda error: error
        self.inherited: LogForked | None = None
        self.damage: WalCorrupted | None = None
        self._reader = reader
        self._name = name
        self.log_name = name.removeprefix("penstock-")
        self._lock = threading.Lock()
        self._pool: DispatchPool | None = None

    def check_here(self) -> None:
        """Refuses in a child of ``fork``.

        Raises:
            LogForked: There.
        """
        if self.inherited is not None:
            raise self.inherited

    def abandon(self, inherited: LogForked) -> None:
        """Is as closed, in a child of ``fork``, but ends nobody: subscriptions, threads and locks are the parent's."""
        self.inherited = self.reason = inherited
        self.closed = True

    @property
    def oldest(self) -> Position:
        """The oldest position that is kept."""
        return Position(self._reader.oldest, 0)

    @property
    def head(self) -> Position:
        """The position after the watermark."""
        return Position(self.watermark.visible + 1, 0)

    @property
    def pool(self) -> DispatchPool:
        """Where signals run for subscribers that named no executor and run on no event loop."""
        with self._lock:
            pool = self._pool
            if pool is None:
                options = self.options
                pool = DispatchPool(
                    options.dispatch_threads, options.dispatch_threads_max, f"{self._name}-dispatch"
                )
                if not self.closed:  # else it goes with whom it serves
                    self._pool = pool
            return pool

    @property
    def dispatch_threads(self) -> int:
        """How many threads the pool allows itself now; 0 as long as nobody needs it."""
        pool = self._pool
        return 0 if pool is None else pool.threads

    def group(self, ring: Ring, executor: Executor | None) -> DeliveryGroup:
        """Makes a group of subscriptions that are served together."""
        return DeliveryGroup(
            ring,
            executor,
            watermark=self.watermark,
            counters=self.deliveries,
            run_aside=self.run_aside,
        )

    def run_aside(self, run: Callable[[], None]) -> None:
        """Runs what may reach a subscriber's code: here and now, or in the pool if this thread serves everybody."""
        if HERE.background:
            with contextlib.suppress(RuntimeError):  # the pool was just shut down: nobody subscribes any more
                self.pool.submit(run)
                return
        run()

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Stands around a read; see `note_damage`."""
        try:
            yield
        except WalCorrupted as error:
            self.note_damage(error)
            raise

    def note_damage(self, error: WalCorrupted) -> None:
        """Remembers and logs the first damage that a read meets, unless the log was replaced or dropped."""
        if self.damage is None and isinstance(self.explain(error), WalCorrupted):
            with self._lock:
                first = self.damage is None
                self.damage = self.damage or error
            if first:
                _LOG.error("the log %s is corrupt: %s", self.log_name, error)

    def lost(self, subscription: Subscribed, oldest: Position) -> HistoryPruned:
        """Writes a line of log about history that a subscription has lost; answers what it may end with."""
        tell_history(self.log_name, subscription.name, subscription.cursor.next.version, oldest.version)
        return HistoryPruned(oldest)

    def forget(self, subscription: Subscribed) -> None:
        """Drops one who has ended."""
        self.waiting.discard(subscription)
        if self.closed:
            self.registry.if_empty(self._dismiss)

    def close(self, wake: Callable[[Iterable[Wakeable]], None]) -> None:
        """Ends every subscription: completed if it has everything that is visible, else with ``LogClosed``.

        If there is a ``reason``, every one ends with that, whatever it has.
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
        # Who was woken may need several turns to take what is visible; the last one out shuts the pool down.
        self.registry.if_empty(self._dismiss)

    def _dismiss(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _gating(self) -> list[Subscribed]:
        return [one for one in self.registry.subscriptions() if one.max_lag is not None and not one.paused]

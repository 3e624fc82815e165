"""The one executor of a connection: it runs deliveries only while the socket can take them.

Every subscription of a connection delivers through a ``Lane`` of the connection's ``Outbound``. The executor runs on the
event loop, serves one frame per subscription in turn, stops at a window of unsent bytes, and does not run while the link is
paused. A slow client thus causes no polls: its cursors stay where they are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from threading import get_ident
from typing import Final, TypeVar

from flow.executors import LoopExecutor, loop_executor
from transports.limits import Limits
from transports.server.link import SocketLink
from transports.tcp.shares import SHARES
from transports.tcp.turns import turns_of

__all__ = ["Lane", "Outbound"]

_T = TypeVar("_T")
_FRAMES: Final = 64  # after as many frames the loop gets its turn

Task = Callable[[], None]


class Outbound:
    """Runs the deliveries of one connection, in turns.

    Args:
        loop: The loop of the link.
        link: The link to which deliveries are written.
        limits: Bounds of the connection.
        blocked: Whether something other than the link holds deliveries back.

    Attributes:
        executor: The executor of the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: SocketLink,
        limits: Limits,
        blocked: Callable[[], bool] | None = None,
    ) -> None:
        self._loop = loop
        self.executor: LoopExecutor = loop_executor(loop)
        self._link = link
        self._blocked = blocked
        self._window = limits.window_bytes
        self._share = limits.late_share
        self._arrived: deque[tuple[Lane, Task]] = deque()
        self._ready: deque[tuple[Lane, Task]] = deque()
        self._running = False
        self._behind = False  # whether it waits for its turn
        self._thread = 0
        self._again: asyncio.Handle | None = None
        self._flushing = False
        self._closed = False

    def lane(self, batch_bytes: int, linger: float) -> "Lane":
        """Makes the executor of one subscription.

        Args:
            batch_bytes: The bytes that one of its frames may add to the unsent bytes.
            linger: Seconds to wait for more events before a frame is made.
        """
        return Lane(self, batch_bytes, linger)

    def put(self, lane: "Lane", task: Task) -> None:
        """Queues a task of a lane; from any thread.

        Raises:
            RuntimeError: If the loop is closed.
        """
        self._arrived.append((lane, task))
        # ``run`` sorts new arrivals after each task, so a task that submits another needs no wake-up.
        if not self._running or get_ident() != self._thread:
            self.executor.submit(self.run)

    def busy(self, nbytes: int) -> bool:
        """Whether a frame of ``nbytes`` has to wait for its turn or for the link; call it on the loop."""
        return bool(
            self._closed
            or self._running
            or self._ready
            or self._arrived
            or self._link.paused
            or self._link.unsent + nbytes > self._window
            or (self._blocked is not None and self._blocked())
        )

    def settle(self) -> None:
        """Flushes what was written past the lanes at the end of this turn of the loop, in one write."""
        if not self._running and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._link.flush()

    @property
    def payer(self) -> Hashable:
        """Who pays for the connection."""
        return self._link.payer

    @property
    def heavy(self) -> bool:
        """Whether its payer has taken more than its share of the processor."""
        return SHARES.beyond(self._link.payer, self._share)

    def close(self) -> None:
        """Runs waiting and later tasks without regard to the link, which is gone."""
        self._closed = True
        self.run()

    def run(self) -> None:
        """Runs tasks while the link has room for what they write; on the loop, and of a heavy payer when it has its turn."""
        if not self._closed and self.heavy:
            if not self._behind:
                self._behind = True
                turns_of(self._loop).later(self._link.payer, self._share, self._go_on)
        else:
            self._run()

    def _go_on(self) -> None:
        self._behind = False
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        self._thread = get_ident()
        try:
            self._sort()
            self._work()
        finally:
            self._running = False

    def _sort(self) -> None:
        while self._arrived:
            lane, task = self._arrived.popleft()
            if lane.linger and not lane.eager and not self._closed:
                self._loop.call_later(lane.linger, self._enter, lane, task)
            else:
                self._ready.append((lane, task))

    def _enter(self, lane: "Lane", task: Task) -> None:
        self._ready.append((lane, task))
        self.run()

    def _work(self) -> None:
        link = self._link
        link.flush()
        for _ in range(_FRAMES):
            if not self._closed and (
                not self._ready
                or link.paused
                or link.unsent + self._ready[0][0].batch_bytes > self._window
                or (self._blocked is not None and self._blocked())
            ):
                break
            if not self._ready:
                return
            self._ready.popleft()[1]()
            # A lane with more work comes back through put(), behind the other lanes: they take turns.
            if self._arrived:
                self._sort()
        link.flush()
        held = link.paused or (self._blocked is not None and self._blocked())
        if self._ready and (self._closed or not held) and self._again is None:
            self._again = self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._again = None
        self.run()


class Lane:
    """The executor of one subscription of a connection: a `flow.executors.Branch`.

    A delivery that the log makes to all connections of a loop bypasses `submit`, unless the lane is busy.

    Attributes:
        trunk: The executor of the loop.
        batch_bytes: The bytes that one of its frames may add to the unsent bytes.
        linger: Seconds to wait for more events before a frame is made.
        eager: Whether the next task runs without lingering.
    """

    __slots__ = ("_outbound", "batch_bytes", "eager", "linger", "trunk")

    def __init__(self, outbound: Outbound, batch_bytes: int, linger: float) -> None:
        self._outbound = outbound
        self.trunk: LoopExecutor = outbound.executor
        self.batch_bytes: int = batch_bytes
        self.linger: float = linger
        self.eager: bool = True

    def submit(self, task: Task, /) -> None:
        """Queues a task; from any thread.

        Raises:
            RuntimeError: If the loop is closed.
        """
        self._outbound.put(self, task)

    def busy(self) -> bool:
        """Whether a batch has to come through `submit`; call it on the loop."""
        return (self.linger > 0 and not self.eager) or self._outbound.busy(self.batch_bytes)

    @property
    def payer(self) -> Hashable:
        """Who pays for its connection."""
        return self._outbound.payer

    @property
    def heavy(self) -> bool:
        """See `publishers.snapshots.delivery.Paying`."""
        return self._outbound.heavy

    def charged(self, work: Callable[[], _T]) -> _T:
        """See `publishers.snapshots.delivery.Paying`."""
        return SHARES.charged(self._outbound.payer, work)

    def settle(self) -> None:
        """Flushes what was written, perhaps past `submit`; on the loop."""
        self._outbound.settle()

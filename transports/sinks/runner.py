"""Runs one sink: steps its machine on a thread of its own, and passes on the orders of other threads."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.criteria.criteria import Criteria
from publishers.model.position import Position, Start
from publishers.slots.slots import check_slot_name
from transports.sinks.errors import SinkStopped, plain_error
from transports.sinks.lease import Lease
from transports.sinks.machine import SinkMachine
from transports.sinks.options import SinkOptions
from transports.sinks.sink import Sink, SinkLog
from transports.sinks.state import SinkCounters, SinkState, SinkStatus

__all__ = ["SinkRunner"]


T = TypeVar("T")


class SinkOrders:
    """A queue of calls, each with a future of its result.

    Args:
        name: The name of the sink.
        wake: Called when an order arrives.
    """

    def __init__(self, name: str, wake: Callable[[], object]) -> None:
        self._name, self._wake = name, wake
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closed = False

    def give(self, work: Callable[[], T]) -> "Future[T]":
        """Queues a call; its future raises ``SinkStopped`` if the runner has stopped."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(SinkStopped(self._name))
                return future
            self._waiting.append((work, future))
        self._wake()
        return future

    def waits(self) -> bool:
        """Whether a call is queued."""
        return bool(self._waiting)

    def obey(self) -> None:
        """Makes the queued calls, in order."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                work, future = self._waiting.popleft()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - passed on to the ordering thread
                future.set_exception(plain_error(error))

    def close(self) -> None:
        """Refuses the queued calls, and all later ones."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            future.set_exception(SinkStopped(self._name))


_LOG: Final = logging.getLogger("penstock.sinks")


class SinkRunner:
    """One sink of a log, with a slot of the sink's name, which is created if missing.

    ``start`` starts a thread that steps it. Without a thread, the caller steps it by ``step``, as tests do.

    Args:
        log: An open log that this process owns.
        name: The name of the sink and of its slot: 1 to 64 lowercase letters, digits, ``_`` and ``-``.
        sink: The sink.
        options: Its options; ``SinkOptions()`` if None.
        lease: Decides which of several runners sends: the runner stands by while the lease is not held here. With each gain it
            takes the slot over, and reads again from the stored position. It is not closed here. None to send always.
        clock: The clock of the runner.
        stopped: Called with the runner when it has stopped, on the thread that steps it.

    Attributes:
        name: The name of the sink.
        machine: The state machine.

    Raises:
        InvalidOption: If the name is invalid, or the options do not fit the sink.
    """

    def __init__(
        self,
        log: SinkLog,
        name: str,
        sink: Sink,
        options: SinkOptions | None = None,
        *,
        lease: Lease | None = None,
        clock: Clock = SYSTEM_CLOCK,
        stopped: "Callable[[SinkRunner], object] | None" = None,
    ) -> None:
        check_slot_name(name)
        self.name = name
        self._awake = threading.Event()
        self._orders = SinkOrders(name, self._awake.set)
        self._thread: threading.Thread | None = None
        self.machine: SinkMachine = SinkMachine(
            log,
            name,
            sink,
            options or SinkOptions(),
            lease=lease,
            clock=clock,
            wake=self._awake.set,
            ended=self._end,
            interrupted=self._orders.waits,
        )
        self._stopped = stopped

    # Called from any thread.

    def start(self) -> Self:
        """Starts the thread that steps the sink."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{self.name}", daemon=True)
            self._thread.start()
        return self

    def pause(self) -> Future[None]:
        """Pauses the sink until ``resume``, also across restarts. The batch in flight is finished."""
        return self._orders.give(self.machine.pause)

    def resume(self) -> Future[None]:
        """Resumes the sink at once, also with changes that the target refused or that wait for their next attempt."""
        return self._orders.give(self.machine.resume)

    def seek(self, since: Any) -> Future[Position]:
        """Moves the sink forward or back; a lost sink works again.

        Args:
            since: As for ``ChangeLog.changes``.

        Returns:
            The position. The future raises ``PositionError`` for a position that cannot be read; nothing has changed then.
        """
        return self._orders.give(lambda: self.machine.seek(since))

    def switch_off(self) -> Future[None]:
        """Stops sending and retains no history until ``switch_on``, also across restarts. The target then gets the missing range as a gap."""
        return self._orders.give(self.machine.switch_off)

    def switch_on(self, since: Any = Start.LATEST) -> Future[Position]:
        """Starts the sink after ``switch_off``; the first batch carries the gap, and the status shows it until that batch is confirmed.

        Args:
            since: The position to start at, as for ``ChangeLog.changes``; the next version by default.

        Returns:
            The position. The future raises ``PositionError`` for a position that cannot be read; nothing has changed then.
        """
        return self._orders.give(lambda: self.machine.switch_on(since))

    def refresh(self, *criteria: Any, after: str | None = None, until: str | None = None) -> Future[None]:
        """Sends rows of the current state once more, with the changes between them, and then changes again: to repair a target.

        A restart in the middle starts the rows again.

        Args:
            criteria: The ``Criterion`` objects that select the rows; none for all that match the sink.
            after: The key behind which the rows begin, with one entity type in ``criteria``; None for the first.
            until: The last key; None for no bound.

        Returns:
            A future that is done when the rows have begun.
        """
        return self._orders.give(lambda: self.machine.refresh(Criteria.of(*criteria), after, until))

    def try_out(self) -> Future[str]:
        """Sends an example to the target, if that is harmless; returns the answer."""
        return self._orders.give(self.machine.try_out)

    @property
    def state(self) -> SinkState:
        """The state of the sink."""
        return self.machine.state

    @property
    def counters(self) -> SinkCounters:
        """The counters of the sink."""
        return self.machine.counters

    @property
    def failed(self) -> bool:
        """Whether the sink has stopped because its target refused a batch, with ``on_failure="stop"``."""
        return self.machine.failed

    def statistics(self) -> SinkStatus:
        """Returns the status of the sink."""
        return self.machine.status()

    def close(self, timeout: float = 60.0) -> None:
        """Stops the sink after the batch in flight, and stores its position. Idempotent.

        Args:
            timeout: Seconds to wait for the thread, which may be waiting for the target.
        """
        thread, stopping = self._thread, self._orders.give(lambda: self.machine.stop(None))
        if thread is None:
            self._orders.obey()
        elif thread is not threading.current_thread():
            thread.join(timeout)
        with contextlib.suppress(SinkStopped):
            if stopping.done():
                stopping.result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SinkRunner {self.name!r} {self.state.name}>"

    def _end(self) -> None:
        self._orders.close()
        if self._stopped is not None:
            self._stopped(self)

    # The thread.

    def _run(self) -> None:
        while self.state is not SinkState.STOPPED:
            self._awake.clear()
            try:
                delay = self.step()
            except BaseException as error:  # noqa: BLE001 - a defect here: logged, and ends this sink only
                _LOG.exception("sink %s has failed", self.name)
                self.machine.stop(f"internal error: {type(error).__name__}: {error}")
                return
            if delay > 0:
                self._awake.wait(delay)

    def step(self) -> float:
        """Does the work that is due, at most one batch; called by one thread at a time.

        Returns:
            Seconds until the next work is due unless the sink is woken before; 0 if work is due now.
        """
        self._orders.obey()
        return self.machine.step()

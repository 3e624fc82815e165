"""Carries the changes of one slot to one target: on a thread of its own, with orders of others."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Self

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.criteria.criteria import Criteria
from publishers.model.position import Position, Start
from publishers.slots.slots import check_slot_name
from transports.sinks.errors import SinkStopped
from transports.sinks.lease import Lease
from transports.sinks.machine import SinkMachine
from transports.sinks.options import SinkOptions
from transports.sinks.orders import SinkOrders
from transports.sinks.sink import Sink, SinkLog
from transports.sinks.state import SinkState
from transports.sinks.status import SinkCounters, SinkStatus

__all__ = ["SinkRunner"]

_LOG: Final = logging.getLogger("penstock.sinks")


class SinkRunner:
    """One sink of a log, with a slot of the sink's name, which is made if it is not there.

    ``start`` gives it a thread of its own. Without one, ``step`` does what there is to do now, which is how tests drive it.

    Args:
        log: An open log, whose owner this process is.
        name: Of the sink and of its slot: 1 to 64 small letters, digits, ``_`` and ``-``.
        sink: Where the changes go.
        options: How; ``SinkOptions()`` if None.
        lease: Says which of several runners sends: as long as it is not held here, this one stands by. With each gain it takes
            the slot over, and reads again from the stored place. It is not closed here. None for one that always sends.
        clock: What time it is.
        stopped: Called with this when it has stopped, on the thread that steps it.

    Attributes:
        name: Of the sink.
        machine: What is stepped.

    Raises:
        InvalidOption: If the name is none, or the options do not fit the sink.
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
        self.machine = SinkMachine(
            log,
            name,
            sink,
            options or SinkOptions(),
            lease=lease,
            clock=clock,
            wake=self._awake.set,
            ended=self._end,
        )
        self._stopped = stopped

    # What may be asked, from any thread.

    def start(self) -> Self:
        """Begins, on a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{self.name}", daemon=True)
            self._thread.start()
        return self

    def pause(self) -> Future[None]:
        """Carries nothing until ``resume``, over restarts too. What is on its way to the target is finished."""
        return self._orders.give(self.machine.pause)

    def resume(self) -> Future[None]:
        """Goes on, at once: also with what the target refused, and with what waits for its next attempt."""
        return self._orders.give(self.machine.resume)

    def seek(self, place: Any) -> Future[Position]:
        """Goes on elsewhere, forward or back; a sink that has lost its history is good again.

        Args:
            place: As ``since`` of ``ChangeLog.changes``.

        Returns:
            The position. It raises ``PositionError`` for a place that cannot be read from, and nothing has changed then.
        """
        return self._orders.give(lambda: self.machine.seek(place))

    def switch_off(self) -> Future[None]:
        """Carries nothing and holds no history until ``switch_on``, over restarts too. What it misses is told to the target then."""
        return self._orders.give(self.machine.switch_off)

    def switch_on(self, place: Any = Start.LATEST) -> Future[Position]:
        """Goes on after ``switch_off``; the first batch tells what was left out, and so does the status until it is confirmed.

        Args:
            place: Where, as ``since`` of ``ChangeLog.changes``: the next version by default.

        Returns:
            The position. It raises ``PositionError`` for a place that cannot be read from, and nothing has changed then.
        """
        return self._orders.give(lambda: self.machine.switch_on(place))

    def again(self, *wishes: Any, after: str | None = None, until: str | None = None) -> Future[None]:
        """Carries rows of the present once more, with the changes between them, and then goes on: to repair a target.

        It begins anew after a restart in the middle.

        Args:
            wishes: Of which rows: ``Criterion`` objects; none for all that the sink is for.
            after: The key behind which they begin, with one entity type in ``wishes``; None for the first.
            until: The last key; None for no bound.

        Returns:
            When it has begun.
        """
        return self._orders.give(lambda: self.machine.again(Criteria.of(*wishes), after, until))

    def try_out(self) -> Future[str]:
        """Sends an example to the target, where that harms nothing; answers what it says."""
        return self._orders.give(self.machine.try_out)

    @property
    def state(self) -> SinkState:
        """What it does."""
        return self.machine.state

    @property
    def counters(self) -> SinkCounters:
        """What it has done."""
        return self.machine.counters

    @property
    def failed(self) -> bool:
        """Whether it has stopped because its target refused something, as ``on_failure`` says."""
        return self.machine.failed

    def statistics(self) -> SinkStatus:
        """What it tells of itself."""
        return self.machine.status()

    def close(self, timeout: float = 60.0) -> None:
        """Ends it after the batch that is on its way, and stores its place. Idempotent.

        Args:
            timeout: Seconds to wait for the thread, which may wait for the target.
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
            except Exception as error:  # noqa: BLE001 - a mistake here: it is told, and ends this sink only
                _LOG.exception("sink %s has failed", self.name)
                self.machine.stop(f"internal error: {type(error).__name__}: {error}")
                return
            if delay > 0:
                self._awake.wait(delay)

    def step(self) -> float:
        """Does what there is to do now, at most one batch; for one thread at a time.

        Returns:
            Seconds until something is to be done if nothing comes before; 0 if there is more to do now.
        """
        self._orders.obey()
        return self.machine.step()

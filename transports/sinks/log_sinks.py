"""The sinks of one log: added, ordered and closed together."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidOption
from publishers.model.position import Position, Start
from transports.codec.starts import start_of_text
from transports.sinks.errors import NoSuchSink
from transports.sinks.lease import Lease
from transports.sinks.notes import SinkNotes
from transports.sinks.options import SinkOptions
from transports.sinks.runner import SinkRunner
from transports.sinks.sink import Sink, SinkLog
from transports.sinks.state import SinkStatus

__all__ = ["LogSinks", "order_of"]

SINKS_MOST: Final = 64
"""The most sinks of one log, because each has a thread and a label in the metrics."""


class LogSinks(Mapping[str, SinkRunner]):
    """Runners by the names of their sinks. A context manager that closes them; close it before the log.

    Args:
        log: An open log that this process owns.
        lease: Decides which of several processes sends, for all sinks; not closed here. None to send always.
        clock: The clock of the runners.
        on_failure: Called on the thread of a sink, with its name, when it has stopped because its target refused a batch, with
            ``on_failure="stop"`` in its options.

    Attributes:
        log_name: The name of the log.
    """

    def __init__(
        self,
        log: SinkLog,
        *,
        lease: Lease | None = None,
        clock: Clock = SYSTEM_CLOCK,
        on_failure: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._on_failure = on_failure
        self.log_name: str = log.name
        self._log, self._lease, self._clock = log, lease, clock
        self._lock = threading.Lock()
        self._runners: dict[str, SinkRunner] = {}

    def add(self, name: str, sink: Sink, options: SinkOptions | None = None) -> SinkRunner:
        """Starts to carry changes to a sink, on a thread of its own.

        Args:
            name: The name of the sink and of its slot.
            sink: The sink.
            options: Its options; ``SinkOptions()`` if None.

        Raises:
            InvalidOption: If the name is invalid or used, or the log has 64 sinks.
        """
        runner = SinkRunner(
            self._log, name, sink, options, lease=self._lease, clock=self._clock, stopped=self._stopped
        )
        with self._lock:
            if name in self._runners:
                raise InvalidOption("name", name, "another name for each sink of a log")
            if len(self._runners) == SINKS_MOST:
                raise InvalidOption("name", name, f"at most {SINKS_MOST} sinks of a log")
            self._runners = {**self._runners, name: runner}
        return runner.start()

    def remove(self, name: str) -> None:
        """Stops a sink and stores its position; its slot stays, and retains history.

        Raises:
            NoSuchSink: If there is no sink of that name.
        """
        runner = self[name]
        runner.close()
        with self._lock:
            self._runners = {key: one for key, one in self._runners.items() if one is not runner}

    def _stopped(self, runner: SinkRunner) -> None:
        if runner.failed:
            self._on_failure(runner.name)

    def drop(self, name: str) -> None:
        """Stops a sink, and drops its slot and notes; the data at the target stays.

        Raises:
            NoSuchSink: If there is no sink of that name.
        """
        self.remove(name)
        if name in self._log.slots:
            self._log.slots.drop(name)
        SinkNotes(self._log.path, name).clear()

    def try_out(self, name: str, timeout: float = 60.0) -> str:
        """Sends an example to a target, if that is harmless, and returns the answer.

        Raises:
            NoSuchSink: If there is no sink of that name.
            TargetUnavailable, TargetRefused, OSError: If the target does not accept it.
        """
        return self[name].try_out().result(timeout)

    def order(
        self,
        name: str,
        do: str,
        place: Any = None,
        timeout: float = 30.0,
        *,
        criteria: Criteria | None = None,
        after: str | None = None,
        until: str | None = None,
    ) -> SinkStatus:
        """Orders a runner to do something, and waits until it is done.

        Args:
            name: The name of the sink.
            do: ``pause``, ``resume``, ``seek``, ``off``, ``on`` or ``again``.
            place: The position for ``seek`` and ``on``: as ``since`` of ``ChangeLog.changes``.
            criteria: The rows for ``again``; None for all that match the sink.
            after: For ``again``, the key behind which the rows begin.
            until: For ``again``, the last key.
            timeout: Seconds to wait; then raises ``TimeoutError``, and the order is carried out once the target answers.

        Raises:
            NoSuchSink: If there is no sink of that name.
            InvalidOption: If ``do`` is another word.
            SinkStopped, SinkStandsBy, PositionError: As for ``SinkRunner``.
        """
        runner = self[name]
        if do == "pause":
            runner.pause().result(timeout)
        elif do == "resume":
            runner.resume().result(timeout)
        elif do == "seek":
            runner.seek(place).result(timeout)
        elif do == "off":
            runner.switch_off().result(timeout)
        elif do == "on":
            runner.switch_on(Start.LATEST if place is None else place).result(timeout)
        elif do == "again":
            runner.refresh(criteria, after=after, until=until).result(timeout)
        else:
            raise InvalidOption("do", do, "'pause', 'resume', 'seek', 'off', 'on' or 'again'")
        return runner.statistics()

    def told(self) -> dict[str, dict[str, Any]]:
        """Returns the statistics of each sink as JSON values, with the names that ``/statistics`` uses."""
        return {name: _status_json(runner.statistics()) for name, runner in self._runners.items()}

    def close(self) -> None:
        """Stops all sinks, and stores their positions. Idempotent."""
        runners = list(self._runners.values())
        for runner in runners:
            runner.close(0.0)  # stops all before it waits for any
        for runner in runners:
            runner.close()

    def __getitem__(self, name: str) -> SinkRunner:
        found = self._runners.get(name)
        if found is None:
            raise NoSuchSink(name, self._runners)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._runners)

    def __len__(self) -> int:
        return len(self._runners)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LogSinks of {self.log_name!r}: {', '.join(self._runners)}>"


def order_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """Parses the arguments of an order.

    Raises:
        InvalidOption, InvalidCriteria: If a value is invalid.
    """
    for key, value in order.items():
        if key not in ("place", "criteria", "after", "until"):
            raise InvalidOption("key", key, "place, criteria, after or until")
        if key != "criteria" and not isinstance(value, str):
            raise InvalidOption(key, value, "a text")
    found = dict(order)
    if "place" in order:
        found["place"] = start_of_text("place", order["place"])
    if "criteria" in order:
        found["criteria"] = Criteria.from_json(order["criteria"])
    return found


def _status_json(status: SinkStatus) -> dict[str, Any]:
    lag, counters = status.lag, status.counters
    return {
        "state": status.state.name,
        "reason": status.reason,
        "lastError": status.last_error,
        "lastErrorAge": status.last_error_age,
        "attempt": status.attempt,
        "retryIn": status.retry_in,
        "circuitOpen": status.circuit_open,
        "position": _text(status.position),
        "confirmed": _text(status.confirmed),
        "gap": None if status.gap is None else status.gap._asdict(),
        "epoch": status.epoch,
        "lag": None
        if lag is None
        else {"versions": lag.versions, "changes": lag.changes, "bytes": lag.nbytes, "seconds": lag.seconds},
        "batches": counters.batches,
        "changes": counters.changes,
        "failures": counters.failures,
        "givenUp": counters.given_up,
        "rejected": counters.rejected,
        "dropped": counters.dropped,
        "deadLetters": counters.dead_letters,
    }


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)

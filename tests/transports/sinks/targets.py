"""Targets that a test holds in its hand, a clock that it moves, and a log with a sink on it."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from publishers import ChangeLog, upsert
from publishers.views.view import Images
from tests.harness.constants import without_bounds
from tests.harness.inside import intake_of, progress_of, target_of
from tests.publishers.support import wait_until
from transports.sinks import RetryPolicy, SinkOptions, SinkRunner, SinkState

QUICK = {"sync": "os", "fill_step": 0}


class HandClock:
    """Stands still but for a test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_us(self) -> int:
        return 1_764_000_000_000_000 + int(self.now * 1e6)


class GoingClock(HandClock):
    """Goes on by itself, so that what a sink waits for has an end; what a receiver compares with its own wall clock is this machine's."""

    def monotonic(self) -> float:
        return self.now + time.monotonic()

    def now_us(self) -> int:
        return time.time_ns() // 1000


class Target:
    """A sink that takes everything, or does what it is told to do next."""

    stores_position = False
    idempotent = False
    partial = True
    ordered = True
    images: Images | None = None

    def __init__(self, stores: bool = False) -> None:
        self.stores_position = stores  # type: ignore[misc]  # each test has its own
        self.plan: list[Any] = []  # what the next writes do: an error to raise, or results
        self.opening: list[Exception] = []
        self.flushing: list[Exception] = []
        self.tried: list[Any] = []
        self.taken: list[Any] = []  # batches that count
        self.put_off: list[Any] = []  # of each of these what it did not take: it may come after them
        self.behind: Any = None  # everything before it is taken
        self.place: Any = None
        self.answers = True
        self.asked = self.flushes = self.opens = self.closes = 0
        self.opened = False
        self.moves: list[Any] = []
        self.context: Any = None

    @property
    def positions(self) -> list[Any]:
        return [change.position for batch in self.taken for change in batch.changes]

    @property
    def keys(self) -> list[Any]:
        return [change.key for batch in self.taken for change in batch.changes if change.key]

    def open(self, context: Any) -> Any:
        self.context = context
        self.opens += 1
        self.opened = True
        if self.opening:
            raise self.opening.pop(0)
        return self.place

    def write(self, batch: Any) -> Any:
        self.tried.append(batch)
        told = self.plan.pop(0) if self.plan else None
        if isinstance(told, BaseException):
            raise told
        gone = {one.place for one in told or ()}
        self.taken.append(batch.only(set(range(len(batch))) - gone))
        self.put_off.append(left := batch.only(gone))
        self.behind = left.first if gone else batch.next
        return told

    def flush(self) -> None:
        self.flushes += 1
        if self.flushing:
            raise self.flushing.pop(0)
        if self.stores_position and self.behind is not None:
            self.place = self.behind

    def move(self, position: Any) -> None:
        self.moves.append(position)
        self.place = self.behind = position

    def close(self) -> None:
        self.closes += 1
        self.opened = False

    def alive(self) -> bool:
        self.asked += 1
        return self.answers


class Rig:
    """A log, a target, and a runner that is driven by hand."""

    def __init__(self, path: Path, target: Any = None, **options: Any) -> None:
        self.path = path
        self.log_options = {**QUICK, **options.pop("log", {})}
        self.log = ChangeLog.open(path, **without_bounds(self.log_options))
        self.clock = options.pop("clock", None) or HandClock()
        self.target = target or Target()
        self.options = {
            "since": "earliest",
            "linger": 0.0,
            "retry": RetryPolicy(jitter=lambda: 1.0),
            **options,
        }
        self.runner = self.made()

    def made(self, target: Any = None) -> SinkRunner:
        return SinkRunner(
            self.log, "stock", target or self.target, SinkOptions(**self.options), clock=self.clock
        )

    def commit(self, *keys: object) -> None:
        self.log.commit([upsert("order", str(key), {"n": str(key)}) for key in keys])

    def until(self, condition: Any) -> None:
        """Steps until something holds."""

        def held() -> bool:
            self.runner.step()
            return bool(condition())

        wait_until(held, self.runner.statistics)

    def worked(self) -> None:
        """Steps until the target was asked, or there is nothing to ask it for: changes are read on other threads."""
        tried = len(self.target.tried)

        def asked() -> bool:
            machine = self.runner.machine
            slot, due = intake_of(machine).slot, machine._failures.due
            more = slot is not None and due is None and slot.delivered < self.log.head
            return not more or self.runner.state is not SinkState.STREAMING or len(self.target.tried) > tried

        self.until(asked)

    def drained(self) -> None:
        """Steps until the target has everything."""
        self.until(
            lambda: (
                progress_of(self.runner.machine).confirmed is not None
                and progress_of(self.runner.machine).confirmed >= self.log.head
            )
        )

    def later(self, seconds: float) -> None:
        self.clock.now += seconds

    def stored(self) -> Any:
        """The place that a restart begins at, after it was stored."""
        self.later(2.0)
        self.runner.step()
        return self.log.slots.info("stock").position

    def again(self) -> None:
        """Closes the log and opens it once more, with a new runner of the same target."""
        self.runner.close()
        self.log.close()
        self.log = ChangeLog.open(self.path, **self.log_options)
        self.runner = self.made()

    def died(self) -> None:
        """As `again`, but whatever was not stored is lost."""
        progress_of(self.runner.machine).unsaved = False
        target_of(self.runner.machine).opened = False
        self.again()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.runner.close()
        self.log.close()


@contextlib.contextmanager
def rigged(path: Path, target: Any = None, **options: Any) -> Iterator[Rig]:
    rig = Rig(path, target, **options)
    try:
        yield rig
    finally:
        rig.close()

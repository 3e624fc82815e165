"""Logs, subscribers and waits that the tests of this package share."""

import asyncio
import atexit
import contextlib
import os
import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import flow
from penstock_cdc.types import Batch
from publishers import Change, ChangeLog, Position, upsert
from tests.harness.constants import without_bounds
from tests.harness.inside import files_of, writer_of

QUICK = {"sync": "os", "fill_step": 65_536}
"""Options of a log that tests can make by the thousand."""


def wait_until(condition: Any, state: Any = None, timeout: float = 60.0) -> None:
    """Returns once the condition holds; fails after the deadline, with the state."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    delay = 0.0002
    while not condition():
        assert time.monotonic() < deadline, (
            f"it did not come to hold; {state() if callable(state) else state}"
        )
        pause.wait(delay)
        delay = min(delay * 1.5, 0.01)


def scratch() -> Path:
    """A new directory, in memory where the machine has such a place; gone with this process at the latest."""
    path = Path(mkdtemp(prefix="penstock-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@contextlib.contextmanager
def opened(**options: Any) -> Iterator[ChangeLog]:
    """A new log that is closed and removed at the end."""
    path = scratch()
    try:
        with ChangeLog.open(path / "log", **without_bounds({**QUICK, **options})) as log:
            yield log
    finally:
        shutil.rmtree(path, ignore_errors=True)


def order(number: object, kind: str = "order") -> Any:
    return upsert(kind, str(number), {"n": str(number)})


def fill(log: ChangeLog, versions: int, changes: int = 1, kind: str = "order") -> None:
    for _ in range(versions):
        log.commit([order(n, kind) for n in range(changes)])


def everything(log: ChangeLog, *wishes: Any) -> list[Position]:
    """Every position that fulfils the wishes, straight from the WAL."""
    return [change.position for change in log.history(wishes or None, limit=1_000_000).changes]


class CountedLock:
    """A lock that counts how often it was acquired."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.taken = 0

    def __enter__(self) -> Any:
        self.taken += 1
        return self.lock.__enter__()

    def __exit__(self, *error: object) -> Any:
        return self.lock.__exit__(*error)


class Probe:
    """Records what it is told, and what would break a rule."""

    def __init__(self, first: int = 0, each: int = 0) -> None:
        self.first = first
        self.each = each
        self.subscription: Any = None
        self.changes: list[Change] = []
        self.positions: list[Position] = []
        self.states: list[str] = []
        self.error: Exception | None = None
        self.completed = False
        self.terminals = 0
        self.ended = threading.Event()
        self.requested = 0
        self.overlaps = 0
        self.excess = 0
        self.after_end = 0
        self.deepest = 0
        self._depth = 0
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def _signal(self) -> Iterator[None]:
        taken = self._busy.acquire(blocking=False)
        self.overlaps += not taken
        self.after_end += bool(self.terminals)
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        try:
            yield
        finally:
            self._depth -= 1
            if taken:
                self._busy.release()

    def request(self, n: int) -> None:
        self.requested += n
        self.subscription.request(n)

    def on_subscribe(self, subscription: Any, /) -> None:
        with self._signal():
            self.subscription = subscription
            if self.first:
                self.request(self.first)

    def on_next(self, change: Change, /) -> None:
        with self._signal():
            self.take(change)
            if self.each:
                self.request(self.each)

    def take(self, change: Change) -> None:
        self.changes.append(change)
        self.positions.append(change.position)
        self.excess += len(self.positions) > self.requested

    def on_state(self, state: Any) -> None:
        with self._signal():
            self.states.append(state.value)

    def on_error(self, error: Exception, /) -> None:
        with self._signal():
            self.error = error
        self.terminals += 1
        self.ended.set()

    def on_complete(self) -> None:
        with self._signal():
            self.completed = True
        self.terminals += 1
        self.ended.set()

    @property
    def clean(self) -> bool:
        """Whether every rule of the contract held so far."""
        return not (self.overlaps or self.excess or self.after_end) and self.terminals <= 1

    def state(self) -> str:
        one = self.subscription
        what = (
            f"{one.state} at {one.position} demand {one.demand} ended {one.ended}"
            if hasattr(one, "state")
            else "no subscription"
        )
        last = self.positions[-1] if self.positions else None
        return f"{len(self.positions)} changes to {last}, error {self.error!r}, {what}"

    def wait_for(self, count: int, timeout: float = 60.0) -> None:
        wait_until(lambda: len(self.positions) >= count or self.terminals, self.state, timeout)
        assert len(self.positions) >= count, self.state()

    def wait_for_end(self, timeout: float = 60.0) -> None:
        assert self.ended.wait(timeout), self.state()


class BatchProbe(Probe):
    """Takes batches."""

    def __init__(self, first: int = 0, each: int = 0) -> None:
        super().__init__(first, each)
        self.batches: list[Batch] = []

    def on_next_batch(self, batch: Batch, /) -> None:
        with self._signal():
            self.batches.append(batch)
            for change in batch:
                self.take(change)
            if self.each:
                self.request(self.each)


class ManualExecutor:
    """Keeps what is submitted until the test runs it; above its room it is full."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.tasks: list[Any] = []
        self.room = room
        self.refused = 0
        self.submitted = 0
        self._lock = threading.Lock()

    def submit(self, task: Any, /) -> None:
        with self._lock:
            if len(self.tasks) >= self.room:
                self.refused += 1
                raise flow.Rejected
            self.submitted += 1
            self.tasks.append(task)

    def run_one(self) -> bool:
        with self._lock:
            if not self.tasks:
                return False
            task = self.tasks.pop(0)
        task()
        return True

    def run_all(self) -> int:
        count = 0
        while self.run_one():
            count += 1
        return count


class SteppedLoop(asyncio.AbstractEventLoop):
    """An event loop that turns when the test says so, and counts how often it is woken."""

    def __init__(self) -> None:
        self.ready: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self.woken = 0
        self.gone = False
        self._turning = False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.ready.append((callback, args))

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.woken += 1
        self.call_soon(callback, *args)

    def is_closed(self) -> bool:
        return self.gone

    def close(self) -> None:
        self.gone = True
        self.ready.clear()

    def run_one(self) -> bool:
        """Turns once: runs what is ready now; answers whether anything was."""
        if self._turning or not self.ready:
            return False
        self._turning = True
        try:
            for _ in range(len(self.ready)):
                callback, args = self.ready.popleft()
                callback(*args)
        finally:
            self._turning = False
        return True

    def run_all(self) -> int:
        count = 0
        while self.run_one():
            count += 1
        return count


def stalled(log: ChangeLog, feed: Any, ring_events: int, **kwargs: Any) -> Probe:
    """A subscriber without demand that the ring has left behind."""
    probe = Probe()
    feed.subscribe(probe, executor=flow.INLINE, **kwargs)
    fill(log, ring_events + 1)
    assert probe.subscription.state.value == "RESYNC", probe.state()
    return probe


def in_threads(*bodies: Any, timeout: float = 60.0) -> None:
    """Runs callables at the same time; the first error of one is raised here."""
    errors: list[BaseException] = []

    def guarded(body: Any) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert errors or not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def chance(seed: int) -> random.Random:
    return random.Random(seed)


class Held:
    """Keeps the first leader inside the WAL until the test lets it go on."""

    def __init__(self, log, monkeypatch):
        self.inside, self.go = threading.Event(), threading.Event()
        self.sizes = []
        writer = writer_of(files_of(log))
        original = writer.append

        def held(transactions):
            self.sizes.append(len(transactions))
            self.inside.set()
            assert self.go.wait(60)
            return original(transactions)

        monkeypatch.setattr(writer, "append", held)

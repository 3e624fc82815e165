"""Subscribers, feeds and executors that the tests of this package watch."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flow
from flow import hooks


def wait_until(condition: Callable[[], object], timeout: float = 60.0) -> None:
    """Return once the condition holds; fail after the deadline."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold"
        pause.wait(0.0005)


class Probe:
    """Records every signal, and what would break a rule: overlaps, depth, signals after the end."""

    def __init__(self, first: Any = 0, each: Any = 0, on_item: Callable[[Any], object] | None = None) -> None:
        self.first = first
        self.each = each
        self.on_item = on_item
        self.subscription: flow.Subscription | None = None
        self.signals: list[str] = []
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.completed = False
        self.ended = threading.Event()
        self.threads: set[str] = set()
        self.overlaps = 0
        self.deepest = 0
        self._busy = threading.Lock()
        self._depth = 0

    @contextlib.contextmanager
    def _signal(self, name: str) -> Iterator[None]:
        self.threads.add(threading.current_thread().name)
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            yield
            return
        self.signals.append(name)
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        try:
            yield
        finally:
            self._depth -= 1
            self._busy.release()

    def on_subscribe(self, subscription: flow.Subscription, /) -> None:
        with self._signal("subscribe"):
            self.subscription = subscription
            if self.first:
                subscription.request(self.first)

    def on_next(self, item: Any, /) -> None:
        with self._signal("next"):
            self.items.append(item)
            if self.on_item is not None:
                self.on_item(item)
            if self.each:
                assert self.subscription is not None
                self.subscription.request(self.each)

    def on_error(self, error: Exception, /) -> None:
        with self._signal("error"):
            self.error = error
            self.ended.set()

    def on_complete(self) -> None:
        with self._signal("complete"):
            self.completed = True
            self.ended.set()

    def request(self, n: Any) -> None:
        assert self.subscription is not None
        self.subscription.request(n)

    def cancel(self) -> None:
        assert self.subscription is not None
        self.subscription.cancel()


class BatchProbe(Probe):
    """Takes batches."""

    def __init__(self, first: Any = 0, each: Any = 0) -> None:
        super().__init__(first, each)
        self.batches: list[Sequence[Any]] = []

    def on_next_batch(self, items: Sequence[Any], /) -> None:
        with self._signal("batch"):
            self.batches.append(items)
            self.items.extend(items)
            if self.each:
                assert self.subscription is not None
                self.subscription.request(self.each)


class QueueFeed:
    """A feed that tests fill by hand, from any thread."""

    def __init__(self, items: Sequence[Any] = (), *, complete: bool = False) -> None:
        self._lock = threading.Lock()
        self._items = deque(items)
        self._outcome: flow.Outcome | None = flow.COMPLETED if complete else None
        self.released = 0
        self.limits: list[int] = []
        self.on_pull: Callable[[], object] | None = None

    def push(self, *items: Any) -> None:
        with self._lock:
            self._items.extend(items)

    def end(self, outcome: flow.Outcome) -> None:
        with self._lock:
            self._outcome = outcome

    def pull(self, limit: int, /) -> Sequence[Any]:
        self.limits.append(limit)
        if self.on_pull is not None:
            self.on_pull()
        with self._lock:
            return [self._items.popleft() for _ in range(min(limit, len(self._items)))]

    def outcome(self) -> flow.Outcome | None:
        with self._lock:
            return None if self._items else self._outcome

    def release(self) -> None:
        self.released += 1


class ManualExecutor:
    """Keeps what is submitted until the test runs it; refuses on wish."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.tasks: deque[Callable[[], None]] = deque()
        self.room = room
        self.refusal: type[BaseException] | BaseException | None = None
        self.submitted = 0
        self.refused = 0
        self._lock = threading.Lock()

    def submit(self, task: Callable[[], None], /) -> None:
        with self._lock:
            if self.refusal is not None:
                self.refused += 1
                raise self.refusal
            if len(self.tasks) >= self.room:
                self.refused += 1
                raise flow.Rejected
            self.submitted += 1
            self.tasks.append(task)

    def run_one(self) -> bool:
        with self._lock:
            if not self.tasks:
                return False
            task = self.tasks.popleft()
        task()
        return True

    def run_all(self) -> int:
        count = 0
        while self.run_one():
            count += 1
        return count


class On:
    """A source on a fixed executor."""

    def __init__(self, source: Any, executor: Any) -> None:
        self.source = source
        self.executor = executor

    def subscribe(self, subscriber: Any, /) -> None:
        self.source.subscribe(subscriber, executor=self.executor)


class Dropped:
    """What went to `flow.hooks.on_dropped_error`."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def __call__(self, error: Exception, subscriber: object, /) -> None:
        self.errors.append(error)


@contextlib.contextmanager
def dropped_errors() -> Iterator[Dropped]:
    """Collect dropped errors instead of logging them."""
    dropped, before = Dropped(), hooks.on_dropped_error
    hooks.on_dropped_error = dropped
    try:
        yield dropped
    finally:
        hooks.on_dropped_error = before


def run_whole(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then end it as `asyncio.run` does: tasks are cancelled and awaited, and it is closed."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()

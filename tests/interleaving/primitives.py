"""Locks, conditions, events, semaphores and queues whose every use is a step of the run; and their places in the modules."""

import contextlib
import queue
import sys
import threading
import time
from _thread import LockType
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from publishers.log import changelog
from publishers.log.housekeeping import TIMER, LogTimer
from tests.interleaving.scheduler import Scheduler

__all__ = [
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Semaphore",
    "SimpleQueue",
    "installed",
    "monotonic",
    "step",
]

_PATCHED: Final = ("flow", "publishers", "transports", "concurrent.futures")

_runs: Final[list[Scheduler]] = []
"""The run that goes on; empty outside of one."""


def _point(at: str) -> None:
    if _runs:
        _runs[-1].point(at)


def step(at: str) -> None:
    """A step of what has no lock: a write to a disk, a signal to a subscriber."""
    _point(at)


def _until(wanted: Callable[[], bool], at: str, timeout: float | None = None) -> bool:
    if not _runs:
        assert wanted(), f"outside of a run, nothing would end this wait: {at}"
        return True
    return _runs[-1].until(wanted, at, timeout)


def _me() -> str:
    return threading.current_thread().name


class Lock:
    """As `threading.Lock`."""

    def __init__(self) -> None:
        frame = sys._getframe(1)
        self._made = f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno}"
        self._owner: str | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            _point(f"try lock of {self._made}")
            free = self._owner is None
        else:
            free = _until(self._free, f"lock of {self._made}", None if timeout < 0 else timeout)
        if free:
            self._owner = _me()
        return free

    def release(self) -> None:
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._owner = None
        _point(f"released lock of {self._made}")

    def locked(self) -> bool:
        return self._owner is not None

    def _free(self) -> bool:
        return self._owner is None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lock of {self._made}, {'free' if self._owner is None else f'held by {self._owner}'}>"


class RLock:
    """As `threading.RLock`."""

    def __init__(self) -> None:
        self._owner = 0
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()

        def free() -> bool:
            return self._depth == 0 or self._owner == me

        mine = _until(free, "rlock", None if timeout < 0 else timeout) if blocking else free()
        if mine:
            self._owner = me
            self._depth += 1
        return mine

    def release(self) -> None:
        if self._owner != threading.get_ident() or not self._depth:
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        _point("released rlock")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """As `threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: deque[list[bool]] = deque()

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiters.append(told)
        self._lock.release()
        try:
            if not _until(lambda: told[0], "wait for a condition", timeout):
                self._waiters.remove(told)
            return told[0]
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout) and timeout is not None:
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._waiters.popleft()[0] = True
        _point("notified a condition")

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        _point("set an event")

    def clear(self) -> None:
        self._set = False
        _point("cleared an event")

    def wait(self, timeout: float | None = None) -> bool:
        return _until(self.is_set, "wait for an event", timeout)


class Semaphore:
    """As `threading.Semaphore`."""

    def __init__(self, value: int = 1) -> None:
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        _until(lambda: self._value > 0, "semaphore", timeout if blocking else 0)
        if self._value:
            self._value -= 1
            return True
        return False

    def release(self, n: int = 1) -> None:
        self._value += n
        _point("released a semaphore")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimpleQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def __class_getitem__(cls, _item: object) -> type:
        return cls

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        _point("put into a queue")

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not _until(lambda: bool(self._items), "get from a queue", timeout if block else 0):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


def monotonic() -> float:
    return _runs[-1].now


def sleep(seconds: float) -> None:
    _until(lambda: False, "sleep", seconds)


class _Instead(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, original: ModuleType, **replaced: object) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(original.__dict__, **replaced)


_PRIMITIVES: Final = {
    "Lock": Lock,
    "RLock": RLock,
    "Condition": Condition,
    "Event": Event,
    "Semaphore": Semaphore,
}
_TIMES: Final = {"monotonic": monotonic, "sleep": sleep, "thread_time": monotonic}
_REPLACED: Final[dict[int, Any]] = {
    **{id(getattr(threading, name)): new for name, new in _PRIMITIVES.items()},
    **{id(getattr(time, name)): new for name, new in _TIMES.items()},
    id(queue.SimpleQueue): SimpleQueue,
    id(threading): _Instead(threading, **_PRIMITIVES),
    id(time): _Instead(time, **_TIMES),
    id(queue): _Instead(queue, SimpleQueue=SimpleQueue),
}


@lru_cache(1)
def _places(_modules: int) -> list[tuple[dict[str, Any], str, Any]]:
    """Where the modules of the product hold something that is replaced: their globals, and locks among these."""
    found = []
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_PATCHED) and module is not None:
            names = vars(module)
            for name, value in list(names.items()):
                if id(value) in _REPLACED:
                    found.append((names, name, _REPLACED[id(value)]))
                elif type(value) is LockType:
                    found.append((names, name, Lock()))
    return found


@contextlib.contextmanager
def installed(run: Scheduler) -> Iterator[None]:
    """Lets the modules of the product, and the futures of the standard library, use what stands in this module, for one run."""
    places = _places(len(sys.modules))
    originals = [(names, name, names[name]) for names, name, _ in places]
    start, join = threading.Thread.start, threading.Thread.join

    def starts(thread: threading.Thread) -> None:
        run.start(thread)

    def joins(thread: threading.Thread, timeout: float | None = None) -> None:
        run.join(thread, timeout)

    _runs.append(run)
    try:
        for names, name, new in places:
            names[name] = new
        threading.Thread.start, threading.Thread.join = starts, joins  # type: ignore[method-assign]  # restored below
        changelog.TIMER = LogTimer()  # type: ignore[misc]  # the process's own threads take no part
        yield
    finally:
        threading.Thread.start, threading.Thread.join = start, join  # type: ignore[method-assign]  # the originals
        changelog.TIMER = TIMER  # type: ignore[misc]
        for names, name, original in originals:
            names[name] = original
        _runs.clear()

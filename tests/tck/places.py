"""Where publishers under test signal: on the caller, on a pool, on an event loop in a thread of its own."""

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flow.probes import run_whole

UVLOOP = importlib.util.find_spec("uvloop") is not None
needs_uvloop = pytest.mark.skipif(not UVLOOP, reason="uvloop is not installed")

SILENCE = 0.02
"""Seconds that count as silence in these certifications."""


class On:
    """A source whose signals run somewhere."""

    def __init__(self, source: Any, executor: Any) -> None:
        self.source = source
        self.executor = executor

    def subscribe(self, subscriber: Any, /) -> None:
        self.source.subscribe(subscriber, executor=self.executor)


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    loop = asyncio.new_event_loop()
    loop.set_debug(kind == "debug")
    loop.slow_callback_duration = 60
    return loop


@contextlib.contextmanager
def running_loop(kind: str = "plain") -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in another thread; ``kind`` is plain, debug or uvloop."""
    loop = new_loop(kind)
    thread = threading.Thread(target=run_whole, args=(loop,), daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextlib.contextmanager
def place(kind: str) -> Iterator[Any]:
    """An executor of a kind: inline, pool, plain, debug or uvloop."""
    if kind == "inline":
        yield None
    elif kind == "pool":
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            pool.submit(int).result()  # it has a thread from now on, whichever test needs it first
            yield pool
    else:
        with running_loop(kind) as loop:
            yield loop


def closed(kind: str) -> Any:
    """One that takes nothing any more."""
    if kind == "pool":
        pool = concurrent.futures.ThreadPoolExecutor(1)
        pool.shutdown()
        return pool
    loop = new_loop(kind)
    loop.close()
    return loop


class Placed:
    """Keeps one executor of a ``kind`` for all tests of a class."""

    kind = "inline"

    @classmethod
    def setup_class(cls) -> None:
        cls.stack = contextlib.ExitStack()
        cls.executor = cls.stack.enter_context(place(cls.kind))

    @classmethod
    def teardown_class(cls) -> None:
        cls.stack.close()

"""Children of ``fork``, for tests of what they inherit."""

import contextlib
import os
import pickle
import select
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Child", "child", "in_child"]

PATIENCE = 120.0


def fork() -> int:
    """``os.fork``; newer interpreters warn of it in a process with threads, which is what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Child:
    """A child that runs something, and then tells how that ended."""

    def __init__(self, pid: int, receiving: int) -> None:
        self.pid = pid
        self._receiving = receiving
        self._reaped = False

    def result(self) -> Any:
        """What it returned; fails with its traceback, or if it hangs."""
        told = b""
        while True:
            ready, _, _ = select.select([self._receiving], [], [], PATIENCE)
            assert ready, "the child hangs"
            part = os.read(self._receiving, 1 << 16)
            if not part:
                break
            told += part
        self.end()
        assert told, "the child died"
        error, value = pickle.loads(told)
        assert error is None, error
        return value

    def end(self) -> None:
        """Kills it, if it has not ended."""
        if not self._reaped:
            self._reaped = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._receiving)


@contextlib.contextmanager
def child(run: Callable[[], Any]) -> Iterator[Child]:
    """Runs something in a child of this process, which is killed at the end."""
    receiving, sending = os.pipe()
    pid = fork()
    if pid == 0:
        _run(run, sending)
    os.close(sending)
    forked = Child(pid, receiving)
    try:
        yield forked
    finally:
        forked.end()


def in_child(run: Callable[[], Any]) -> Any:
    """What something returns in a child of this process."""
    with child(run) as forked:
        return forked.result()


def _run(run: Callable[[], Any], sending: int) -> None:
    """Runs it and ends the process: nothing of the test goes on in the child."""
    try:
        told = (None, run())
    except BaseException:
        told = (traceback.format_exc(), None)
    try:
        os.write(sending, pickle.dumps(told))
    finally:
        os._exit(0)


@contextlib.contextmanager
def threads(*loops: Callable[[], object]) -> Iterator[None]:
    """Runs each function again and again on a thread of its own, until the end."""
    stop = threading.Event()

    def repeat(run: Callable[[], object]) -> None:
        while not stop.is_set():
            run()

    workers = [threading.Thread(target=repeat, args=(run,)) for run in loops]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()

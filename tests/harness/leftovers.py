"""What a test leaves behind is found at that test: threads, processes, descriptors, and tasks of loops that are closed.

Fixtures of a module or a session may keep what they like: they are set up before the look that is taken here.
"""

import asyncio
import contextlib
import gc
import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["arrow_has_its_pipe", "nothing_is_left_behind", "possessions"]

PATIENCE = float(os.environ.get("PENSTOCK_TEST_PATIENCE", "120"))
"""Seconds within which whatever was asked to end has ended, on any machine."""

KEPT = ("thread asyncio_", "thread flow-resubmit", "thread flow-timers")
"""Threads that serve the whole process, or end by themselves when nothing waits for them."""

OWNED = re.compile(r"thread (ThreadPoolExecutor-\d+|penstock-.+?)[-_](house|dispatch_\d+|replay-\d+|\d+) ")
"""Threads that begin on need; they are no news where their pool or log is older than the test."""

SEGMENT = re.compile(r"descriptor \d+ of (.+)/wal-\d+\.log")
"""Readers of a log open its segments on need, and keep some open for each other."""

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fails the test that leaves something behind."""
    before = possessions()
    yield
    if not _left(before):
        return
    gc.collect()
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while left := _left(before):
        if time.monotonic() > end:
            pytest.fail(f"left behind: {', '.join(sorted(left))}")
        pause.wait(0.01)


@pytest.fixture(scope="session", autouse=True)
def arrow_has_its_pipe() -> None:
    """Arrow makes a pipe for interrupts when it first reads CSV, and keeps it for the process: no test is to be blamed for it."""
    with contextlib.suppress(ImportError):
        from pyarrow import csv

        csv.read_csv(io.BytesIO(b"column\n1\n"))


def _left(before: set[str]) -> set[str]:
    left = possessions() - before
    owners = {owner for what in before if (owner := _owner(what))} if left else set()
    return {what for what in left if _owner(what) not in owners}


def _owner(what: str) -> str | None:
    found = OWNED.match(what) or SEGMENT.match(what)
    return found and found[1]


def possessions() -> set[str]:
    """What this process has now, in words."""
    return {
        what
        for what in (*_threads(), *_processes(), *_descriptors(), *_orphans())
        if not what.startswith(KEPT)
    }


def _threads() -> Iterator[str]:
    for thread in threading.enumerate():
        target = getattr(thread, "_target", None)
        if getattr(target, "__module__", "").startswith("py4j."):
            continue  # a connection from Java, which PySpark keeps for the session
        yield f"thread {thread.name} ({thread.ident})"


def _processes() -> Iterator[str]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # the common case, and a cheap one
    own = str(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                name, _, rest = Path(entry.path, "stat").read_text().partition(" (")[2].rpartition(") ")
            except OSError:  # it has ended meanwhile
                continue
            if rest.split()[1] == own:
                yield f"process {name} ({entry.name})"


def _descriptors() -> Iterator[str]:
    if not DESCRIPTORS.exists():
        return
    for number in os.listdir(DESCRIPTORS):
        try:
            file = os.readlink(DESCRIPTORS / number)
        except OSError:  # that of the listing itself
            continue
        if not (
            file.startswith("socket:") and "py4j.java_gateway" in sys.modules
        ):  # PySpark keeps those it makes
            yield f"descriptor {number} of {file}"


def _orphans() -> Iterator[str]:
    known = (
        "_scheduled_tasks" if hasattr(asyncio.tasks, "_scheduled_tasks") else "_all_tasks"
    )  # from Python 3.12 on
    for task in list(getattr(asyncio.tasks, known)):
        if not task.done() and task.get_loop().is_closed():
            yield f"task {task.get_name()} of a closed loop, at {task.get_coro()}"

"""Fails a test that leaves threads, processes, descriptors, or tasks of closed loops behind.

Fixtures of a module or a session may keep resources: they are set up before the snapshot at the start of the test.
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

from publishers.wal.disk.descriptors import DESCRIPTORS as RESERVE

__all__ = ["arrow_has_its_pipe", "nothing_is_left_behind", "possessions"]

PATIENCE = float(os.environ.get("PENSTOCK_TEST_PATIENCE", "120"))
"""Seconds within which resources must end after a test, on any machine."""

KEPT = (
    "thread asyncio_",
    "thread flow-resubmit",
    "thread flow-timers",
    *(
        f"thread penstock-{pool} (" for pool in ("append", "gather", "judge", "prepare", "scan")
    ),  # of a server
)
"""Prefixes of threads that serve the whole process, or end by themselves when idle."""

OWNED = re.compile(r"thread (ThreadPoolExecutor-\d+|penstock-.+?)[-_](house|dispatch_\d+|replay-\d+|\d+) ")
"""Threads that start on demand; they are allowed if their pool or log is older than the test."""

SEGMENT = re.compile(r"descriptor \d+ of (.+)/wal-\d+\.log")
"""Readers of a log open segments on demand, and keep some open for other readers."""

DESCRIPTORS = "/proc/self/fd"  # no `Path`: each test reads every descriptor twice


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test if it leaves resources behind; waits up to `PATIENCE` for them to end.

    A test that has failed already is not judged: what it left may be what its failure skipped.
    """
    RESERVE.fill()  # which stays as long as the process, once a log was opened
    before, failed = possessions(), request.session.testsfailed
    yield
    if request.session.testsfailed > failed or not _left(before):
        return
    gc.collect()
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while left := _left(before):
        if time.monotonic() > end:
            pytest.fail(f"left behind: {', '.join(sorted(left))}")
        pause.wait(0.01)


@pytest.fixture(scope="session", autouse=True)
def arrow_has_its_pipe() -> None:
    """Makes Arrow open its process-wide interrupt pipe, so that no test is blamed for it; Arrow opens it at its first CSV read."""
    with contextlib.suppress(ImportError):
        from pyarrow import csv

        csv.read_csv(io.BytesIO(b"column\n1\n"))


def _left(before: set[str]) -> set[str]:
    left = possessions() - before
    owners = {owner for what in before if (owner := _owner(what))} if left else set()
    # A log has its segments open as long as it is open; its threads, of which one may be the first, bear its name.
    owners |= {
        f"penstock-{Path(found[1]).name}" for what in before if left and (found := SEGMENT.match(what))
    }
    return {what for what in left if _owner(what) not in owners}


def _owner(what: str) -> str | None:
    found = OWNED.match(what) or SEGMENT.match(what)
    return found and found[1]


def possessions() -> set[str]:
    """Returns descriptions of the resources that this process holds now."""
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
            except OSError:  # the process has ended meanwhile
                continue
            if rest.split()[1] == own:
                yield f"process {name} ({entry.name})"


def _descriptors() -> Iterator[str]:
    if not os.path.isdir(DESCRIPTORS):
        return
    for number in os.listdir(DESCRIPTORS):
        try:
            file = os.readlink(f"{DESCRIPTORS}/{number}")
        except OSError:  # the descriptor of the listing itself
            continue
        if not (
            file.startswith("socket:") and "py4j.java_gateway" in sys.modules
        ):  # PySpark keeps its sockets
            yield f"descriptor {number} of {file}"


def _orphans() -> Iterator[str]:
    known = (
        "_scheduled_tasks" if hasattr(asyncio.tasks, "_scheduled_tasks") else "_all_tasks"
    )  # from Python 3.12 on
    for task in list(getattr(asyncio.tasks, known)):
        if not task.done() and task.get_loop().is_closed():
            yield f"task {task.get_name()} of a closed loop, at {task.get_coro()}"

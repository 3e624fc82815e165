"""From a commit to another process: to its reader of frames, and to ``on_next``, against a poll of 1 ms and a reader that spins.

``perf_counter`` is one clock for all processes of a machine. Commits come at random times, some milliseconds apart, so that a
reader is asleep, and a poll is hit at any phase. A bare datagram between two processes shows the limit of the machine.
"""

import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Table, Variant, compare, percentile
from publishers import ChangeLog, Content, Criterion, Position, upsert
from publishers.wal import Follower, RealFileSystem
from publishers.wal.disk.notify import PollingListener, listen

COMMITS = 300
BULK = 100_000
FINDING = 0.6
"""Seconds until the owner has found a new reader's socket."""
READERS = {
    "frames, poll of 1 ms": ("tail", "poll"),
    "frames, inotify": ("tail", "inotify"),
    "frames, datagram": ("tail", "datagram"),
    "frames, spinning": ("tail", "spinning"),
    "on_next, poll of 1 ms": ("follow", "poll"),
    "on_next, inotify": ("follow", "inotify"),
    "on_next, datagram": ("follow", "datagram"),
}
BESIDE = {"a reader that polls": "poll", "a reader by inotify": "inotify", "a reader by datagram": "datagram"}
_BARE = "a bare datagram, no log"
_HANDED = "a bare datagram and another thread, no log"
_STAMP = struct.Struct("<q")


class Spinning(PollingListener):
    """A listener that never waits; its process uses a whole CPU core."""

    def wait(self, timeout: float, /) -> bool:
        return False


class Hearing(RealFileSystem):
    """A file system that gives a reader one certain kind of listener."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def listen(self, directory: Path, /) -> Any:
        if self.kind in ("datagram", "inotify"):
            listener = listen(directory, [self.kind])
            assert listener.kind == self.kind
            return listener
        return Spinning() if self.kind == "spinning" else PollingListener()


class Stamping:
    """Reports the time of each change; of many changes, only the arrival of the last one."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.seen = 0

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(2**62)

    def on_next(self, change: object) -> None:
        now = time.perf_counter_ns()
        self.seen += 1
        if self.expected == 1 or self.seen == self.expected:
            os.write(1, _STAMP.pack(now))
            self.seen = 0

    def on_next_batch(self, batch: Any) -> None:
        now = time.perf_counter_ns()
        self.seen += len(batch)
        if self.seen == self.expected or self.expected == 1:
            os.write(1, _STAMP.pack(now))
            self.seen = 0

    def on_error(self, error: Exception) -> None:
        raise error

    def on_complete(self) -> None: ...


def follow(path: str, kind: str, expected: int) -> None:
    """A reader in a process of its own."""
    log = ChangeLog.open(path, read_only=True, filesystem=Hearing(kind), tail_poll=0.001)
    feed = log.changes(Criterion(entity_types={"flight"}), content=Content.BODY)
    feed.subscribe(Stamping(expected))
    os.write(1, _STAMP.pack(0))
    sys.stdin.read()
    log.close()


def tail(path: str, kind: str) -> None:
    """A reader of frames, with nothing above the write-ahead log."""
    listener = Hearing(kind).listen(Path(path))
    follower = Follower.open(path)
    location = follower.reader.locate(follower.visible + 1)
    closed = threading.Event()
    threading.Thread(target=lambda: closed.set() if sys.stdin.read() == "" else None).start()
    os.write(1, _STAMP.pack(0))
    while not closed.is_set():
        listener.wait(0.001 if kind == "poll" else 0.1)
        follower.refresh()
        while frame := follower.reader.read(location):
            assert frame.header.count == 1
            os.write(1, _STAMP.pack(time.perf_counter_ns()))
            location = frame.next
    listener.close()
    follower.close()


def receive(path: str, *, handed: bool) -> None:
    """A process that only receives datagrams; with ``handed`` it passes each to a second thread, as executors do."""

    def stamp() -> None:
        os.write(1, _STAMP.pack(time.perf_counter_ns()))

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound, ThreadPoolExecutor(1) as second:
        bound.bind(path)
        os.write(1, _STAMP.pack(0))
        while bound.recv(16) != b"end":
            if handed:
                second.submit(stamp)
            else:
                stamp()


class Reader:
    """A reader, seen from the process that writes."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tailing", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
            bufsize=0,
        )
        self.stamp()

    def stamp(self) -> int:
        assert self.process.stdout is not None
        data = self.process.stdout.read(_STAMP.size)
        assert data is not None
        assert len(data) == _STAMP.size, "the reader has ended"
        return int(_STAMP.unpack(data)[0])

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def latencies(write: Any, reader: Reader, chance: random.Random) -> list[float]:
    """Microseconds from the beginning of each write to the reader's stamp."""
    pause = threading.Event()
    found = []
    for _ in range(COMMITS):
        pause.wait(chance.uniform(0.001, 0.004))
        began = time.perf_counter_ns()
        write()
        found.append((reader.stamp() - began) / 1000)
    return found


def latency(place: Path) -> dict[str, Table]:
    """One commit of one change, ``sync="os"``; in each round each reader is alone."""
    log = ChangeLog.open(place / "log", sync="os")
    row = [upsert("flight", "B6/1", b'{"status":"DEPARTED","n":1}')]
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bare = str(place / "bare.sock")
    names = [*READERS, _BARE, _HANDED]
    rounds: dict[str, list[list[float]]] = {name: [] for name in names}
    chance = random.Random(51)
    for number in range(harness.ROUNDS):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if name in READERS:
                how, kind = READERS[name]
                reader = Reader(how, place / "log", kind, 1)
                write: Any = lambda: log.commit(row)  # noqa: E731 - one of two ways to write
            else:
                reader = Reader("receive", bare, name)
                write = lambda: sender.sendto(b"1", bare)  # noqa: E731 - the other one
            threading.Event().wait(FINDING)
            rounds[name].append(latencies(write, reader, chance))
            if name not in READERS:
                sender.sendto(b"end", bare)
            reader.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(bare)
        harness.progress(f"latency: round {number + 1} of {harness.ROUNDS}")
    harness.progress()
    sender.close()
    log.close()
    sizes = "S=1, B=1, C=1, P=1; left to the operating system"
    p50, p99 = (
        Table(
            f"from a commit to another process, {what} within",
            "us",
            {name: [percentile(round_, part) for round_ in rounds[name]] for name in names},
            sizes,
        ).show()
        for what, part in (("half of all", 0.5), ("99 of 100", 0.99))
    )
    p50.reach("on_next, datagram", "<=", 3, _HANDED)
    for name in ("frames, inotify", "frames, datagram"):
        p50.reach(name, "<=", 0.15, "frames, poll of 1 ms")
        p99.reach(name, "<=", 5000)
    print()
    return {"latency, p50": p50, "latency, p99": p99}


def throughput(place: Path) -> Table:
    """Ten changes a commit, at the writer's full speed; the clock stops when the reader has the last change."""
    columns = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED","n":1}') for n in range(10)]
    log = ChangeLog.open(place / "bulk", sync="os")

    def write_only() -> tuple[int, float]:
        began = time.perf_counter()
        for _ in range(BULK // 10):
            log.commit(columns)
        return BULK, time.perf_counter() - began

    def beside(kind: str) -> tuple[int, float]:
        reader = Reader("follow", place / "bulk", kind, BULK)
        threading.Event().wait(FINDING)
        began = time.perf_counter_ns()
        for _ in range(BULK // 10):
            log.commit(columns)
        ended = reader.stamp()
        reader.close()
        return BULK, (ended - began) / 1e9

    figures = compare(
        "ten changes a commit, to the last one in the other process",
        "changes/s",
        [
            Variant("the writer alone", write_only),
            *(Variant(name, lambda kind=kind: beside(kind)) for name, kind in BESIDE.items()),  # type: ignore[misc]  # bound early
        ],
        sizes="S=1, B=10, C=1, P=1; left to the operating system",
    )
    log.close()
    return figures


class Counting:
    """Receives batches until it has all changes."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.done = threading.Event()

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(2**62)

    def on_next(self, change: object) -> None:
        raise AssertionError

    def on_next_batch(self, batch: Any) -> None:
        self.left -= len(batch)
        if self.left <= 0:
            self.done.set()

    def on_error(self, error: Exception) -> None:
        raise error

    def on_complete(self) -> None: ...


def catching_up(place: Path) -> Table:
    """The rate of a reader that catches up with an existing log of ten changes a commit."""
    log = ChangeLog.open(place / "backlog", sync="os")
    rows = [upsert("flight", f"B6/{n}", b'{"status":"DEPARTED","n":1}') for n in range(10)]
    for _ in range(BULK // 10):
        log.commit(rows)
    follower = ChangeLog.open(place / "backlog", read_only=True, replay_bytes=1)
    feed = follower.changes(Criterion(entity_types={"flight"}), since=Position(1), content=Content.BODY)

    def frames() -> tuple[int, float]:
        files = Follower.open(place / "backlog")
        began, seen, location = time.perf_counter(), 0, files.reader.locate(1)
        while frame := files.reader.read(location):
            seen += frame.header.count
            location = frame.next
        assert seen == BULK
        files.close()
        return seen, time.perf_counter() - began

    def batches() -> tuple[int, float]:
        reader = Counting(BULK)
        began = time.perf_counter()
        feed.subscribe(reader)
        assert reader.done.wait(120)
        return BULK, time.perf_counter() - began

    figures = compare(
        "a read-only opening catches up, ten changes a commit",
        "changes/s",
        [Variant("frames, verified", frames), Variant("on_next_batch", batches)],
        sizes="S=1, B=10, P=1; read from the page cache",
    )
    figures.reach("on_next_batch", ">=", 1_000_000)
    print()
    follower.close()
    log.close()
    return figures


def run(directory: Path) -> dict[str, Table]:
    """Latency and throughput of a reader in another process."""
    place = Path(tempfile.mkdtemp(dir=directory))
    return {**latency(place), "throughput": throughput(place), "catching up": catching_up(place)}


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "follow":
        follow(rest[0], rest[1], int(rest[2]))
    elif name == "tail":
        tail(rest[0], rest[1])
    else:
        receive(rest[0], handed=rest[1] == _HANDED)

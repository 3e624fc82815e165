"""Starting, killing and judging processes."""

import os
import selectors
import signal
import time
from pathlib import Path
from typing import Any, Self

from publishers import Area, ChangeLog
from tests.harness.prefork import Server

CHILDREN = Path(__file__).with_name("children.py")

SERVER: list[Server] = []
"""The one that forks the processes, while tests of this folder run."""

NEVER: dict[str, Any] = {"tail_poll": 60.0, "tail_idle": 3600.0}
"""Options of a follower that learns of commits by being told, or not within the time of a test."""


def hearing(kind: str, place: Path) -> Path:
    """Where to put a log that followers hear of in that way: no socket has a path of so many bytes."""
    path = place / ("deep" * 25) / "log" if kind == "inotify" else place / "log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Child:
    """A process of `children`; its lines are read as they come."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.process = SERVER[0].start(f"tests.crash.children:{name}", *arguments)
        self.lines: list[list[str]] = []
        self._rest = b""
        self._errors = ""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)

    def read(self, timeout: float = 0.0) -> bool:
        """Takes what is there; answers whether more may come."""
        if not self._selector.select(timeout):
            return True
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        if newline:
            self.lines += [line.split() for line in whole.decode().split("\n")]
        return bool(data)

    def wait_for(self, word: str, count: int = 1, timeout: float = 60.0) -> None:
        """Reads until so many lines begin with a word."""
        deadline = time.monotonic() + timeout
        while sum(line[0] == word for line in self.lines) < count:
            more = self.read(0.05)
            assert more, f"it ended: {self.lines[-5:]} {self.errors()}"
            assert time.monotonic() < deadline, f"no {word} in {self.lines[-5:]}"

    def run_for(self, seconds: float) -> None:
        """Reads for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self.read(left):
            pass

    def kill(self, sign: int = signal.SIGKILL) -> None:
        self.process.send_signal(sign)

    def finish(self, timeout: float = 60.0) -> int:
        """Reads to the end and reaps."""
        deadline = time.monotonic() + timeout
        while self.read(0.1):
            assert time.monotonic() < deadline, f"it does not end: {self.lines[-5:]}"
        code = self.process.wait(timeout)
        self._errors = self.process.stderr.read().decode()
        self.close()
        return code

    def close(self) -> None:
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def errors(self) -> str:
        """What it wrote to standard error, once it has ended."""
        return self._errors

    def said(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == word]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.close()


def judge(
    log: ChangeLog, acknowledged: dict[tuple[str, int], int], *, since: int = 1
) -> dict[tuple[str, int], int]:
    """Checks that the log is whole from a version on and holds what was acknowledged; answers what it holds.

    Versions follow each other, transactions are whole, nothing is there twice, and each acknowledged sequence of a
    producer is in the version that was told.
    """
    from publishers import Position

    found: dict[tuple[str, int], int] = {}
    version, left = since - 1, 0
    for change in (
        log.history(since=Position(since), limit=1_000_000).changes if log.head.version > since else ()
    ):
        if change.area is Area.INFRASTRUCTURE:
            assert left == 0, f"version {version} lacks {left} changes"
            assert (change.version, change.index) == (version + 1, 0)
            version, left = change.version, change.count - 1
            assert left > 0
            continue
        assert change.version == version
        assert change.index == change.count - left
        left -= 1
        assert change.entity_type is not None
        assert change.key is not None
        sequence, place, count = map(int, change.key.split("/"))
        assert (place, count) == (change.index - 1, change.count - 1), f"half a transaction: {change}"
        if place == 0:
            key = (change.entity_type, sequence)
            assert key not in found, f"{key} is in {found[key]} and in {version}"
            found[key] = version
    assert left == 0
    assert version == log.head.version - 1
    for key, told in acknowledged.items():
        assert told < since or found.get(key) == told, (
            f"{key} was acknowledged as {told}, found {found.get(key)}"
        )
    return found


def acknowledged_by(child: Child) -> dict[tuple[str, int], int]:
    return {(name, int(sequence)): int(version) for name, sequence, version, _, _ in child.said("done")}

"""A process that goes through the life of a store again and again, and is killed at another step each time.

It starts no thread itself, so that it may fork: one child lives until its step, the next looks at what it has left.
"""

import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from publishers import ChangeStore, LogOptions, upsert
from publishers.wal.disk.filesystem import RealFile, RealFileSystem

QUICK = {"sync": "os", "fill_step": 0}
STATES = [
    [],
    ["orders"],
    ["orders", "users"],
    ["sales", "users"],
    ["sales", "users"],
    ["sales"],
    ["orders", "sales"],
    ["orders"],
    [],
]
"""The names after each step of ``life``."""


def life(store: ChangeStore, done) -> None:
    done(store.create("orders").commit([upsert("order", "1", {})]).version)
    done(store.create("users"))
    done(store.rename("orders", "sales"))
    done(store.retype("sales", type="journal"))
    done(store.drop("users"))
    done(store.create("orders"))
    done(store.drop("sales"))
    done(store.drop("orders"))


class DeadlyFile(RealFile):
    """Counts what changes something."""

    __slots__ = ("deadly",)

    def pwrite(self, data, offset, /):
        self.deadly.step("inside")
        return super().pwrite(data, offset)

    def sync(self):
        self.deadly.step("inside")
        super().sync()


class Deadly(RealFileSystem):
    """Kills the process at one of the operations of its main thread."""

    __slots__ = ("count", "fatal", "kinds", "root")

    def __init__(self, root: Path, fatal: int) -> None:
        self.root, self.fatal, self.count = root, fatal, 0
        self.kinds: list[str] = []

    def step(self, kind: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.count += 1
            self.kinds.append(kind)
            if self.count == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def _at(self, path: Path) -> str:
        return (
            "store"
            if path in (self.root, path) and path.parent in (self.root, self.root.parent)
            else "inside"
        )

    def open(self, path, mode, /):
        if mode in ("create", "private"):
            self.step(self._at(path))
        file = super().open(path, mode)
        deadly = DeadlyFile(os.dup(file._fd), writable=mode != "read")
        deadly.deadly = self
        if path.name == "LOCK" and mode == "private":
            return file  # a lock belongs to what it was taken with
        file.close()
        return deadly


def _counting(name):
    def method(self, path, *rest):
        self.step(self._at(path))
        return getattr(super(Deadly, self), name)(path, *rest)

    return method


for _name in ("make_directory", "sync_directory", "rename", "unlink", "remove_directory"):
    setattr(Deadly, _name, _counting(_name))


def forked(run) -> int:
    """Runs something in a child; returns how that ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException as error:
            os.write(1, f"error {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def live(root: Path, fatal: int, log: Path) -> None:
    system = Deadly(root, fatal)
    with log.open("ab", buffering=0) as file, ChangeStore.open(root, filesystem=system, **QUICK) as store:
        life(store, lambda _: file.write(b"."))
    log.with_suffix(".kinds").write_text(" ".join(system.kinds))


def look(root: Path, done: int) -> None:
    """What a dead process has left is what it had done, or that and the step it was at; and nothing is in between."""
    for _ in range(2):
        with ChangeStore.open(root, **QUICK) as store:
            names = list(store)
            assert names in STATES[done : done + 2], f"{names} after {done} steps"
            assert all(store[name].head.version >= 1 for name in names)
            known = {store.entry(name).directory for name in names}
            there = {path.name for path in root.iterdir()}
            assert there == known | {"LOCK", ".system"}, f"{there} for {known}"
            with ChangeStore.open(root, read_only=True) as other:
                assert list(other) == names
                assert all(other[name].log_id == store[name].log_id for name in names)
    with ChangeStore.open(root, **QUICK) as store:
        store.create("after")
        store.drop("after")


def main(root: str, stride: int) -> None:
    LogOptions()
    place = Path(root)
    assert forked(lambda: live(place / "whole", 0, place / "whole.log")) == 0
    kinds = (place / "whole.kinds").read_text().split()
    found: Counter = Counter()
    for fatal, kind in enumerate(kinds, 1):
        if kind == "inside" and fatal % stride:
            continue
        store, log = place / f"at{fatal}", place / f"at{fatal}.log"
        code = forked(lambda store=store, fatal=fatal, log=log: live(store, fatal, log))
        done = log.stat().st_size
        assert code == -signal.SIGKILL, f"step {fatal} ended with {code}"
        assert forked(lambda store=store, done=done: look(store, done)) == 0, f"killed at {fatal}, {kind}"
        found[done] += 1
    os.write(1, f"done {len(kinds)} {sum(found.values())} {len(found)}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

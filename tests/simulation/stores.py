"""Row ``store``: the steps of a store meet power cuts, the death of the process, EIO and ENOSPC at each operation.

One workload makes logs, renames, retypes and drops them, and uses a directory again. Whatever strikes, the system log is
the truth afterwards: every step that was answered is there, the one that was interrupted is there wholly or not at all,
a log that it knows opens with what was acknowledged, nothing is left of any other, and what somebody else has put into
the directory is untouched. Opening the store again may be struck as well.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from penstock_cdc.errors import LogFailed
from publishers import Area, ChangeStore, Criterion, upsert
from publishers.errors import PenstockError
from publishers.log.housekeeping import LogTimer
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

__all__ = ["KINDS", "run", "total"]

SHOP = Path("/var/shop")
FOREIGN = {"notes": b"mine", "elsewhere/report": b"also mine"}
KINDS = ("crash", "crash", "crash", "crash", "kill", "EIO", "ENOSPC")
"""What strikes; a crash draws another power cut each time."""

OPTIONS: dict[str, Any] = {"fill_step": 0, "sync": "always"}

Known = dict[str, tuple[str | None, dict[str, str], list[str]]]
"""Logs by name: type, labels, and what was committed."""


class Hands:
    """A clock that goes on by itself, a millisecond at each look."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def now_us(self) -> int:
        self.now += 1000
        return self.now

    def monotonic(self) -> float:
        return self.now_us() / 1e6


class _Still(LogTimer):
    """A timer that never runs anything: what it would do is tried by T1, and here nothing runs beside the workload."""

    def _start(self) -> None:
        pass


@contextlib.contextmanager
def alone() -> Iterator[None]:
    with mock.patch("publishers.log.changelog.TIMER", _Still()):
        yield


@dataclass
class Owner:
    """Drives a store, beside what must be there.

    Attributes:
        sure: What was answered.
        perhaps: What is there as well if the step under way was done; None between two steps.
        events: What the system log must tell; ``under_way`` is told as well if it was done.
        foreign: What somebody else has put there.
    """

    system: SimulatedFileSystem
    clock: Hands = field(default_factory=Hands)
    sure: Known = field(default_factory=dict)
    perhaps: Known | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    under_way: tuple[str, str] | None = None
    foreign: dict[str, bytes] = field(default_factory=dict)

    def open(self) -> ChangeStore:
        return ChangeStore.open(SHOP, filesystem=self.system, clock=self.clock, **OPTIONS)

    @contextlib.contextmanager
    def step(self, event: str, name: str, after: Known) -> Iterator[None]:
        self.perhaps, self.under_way = after, (event, name)
        yield
        self.sure, self.perhaps, self.under_way = after, None, None
        self.events.append((event, name))

    def create(self, store: ChangeStore, name: str, **labels: str) -> None:
        with self.step("CREATED", name, {**self.sure, name: ("journal", labels, [])}):
            store.create(name, type="journal", labels=labels)

    def rename(self, store: ChangeStore, old: str, new: str) -> None:
        rest = {name: known for name, known in self.sure.items() if name != old}
        with self.step("RENAMED", new, {**rest, new: self.sure[old]}):
            store.rename(old, new)

    def retype(self, store: ChangeStore, name: str, kind: str) -> None:
        _, labels, bodies = self.sure[name]
        with self.step("RETYPED", name, {**self.sure, name: (kind, labels, bodies)}):
            store.retype(name, type=kind)

    def drop(self, store: ChangeStore, name: str) -> None:
        rest = {known: value for known, value in self.sure.items() if known != name}
        with self.step("DROPPED", name, rest):
            store.drop(name)

    def commit(self, store: ChangeStore, name: str, body: str) -> None:
        kind, labels, bodies = self.sure[name]
        self.perhaps = {**self.sure, name: (kind, labels, [*bodies, body])}
        store[name].commit([upsert("order", "1", {"n": body})])
        self.sure, self.perhaps = self.perhaps, None

    def intrude(self) -> None:
        """Somebody else puts something there."""
        self.system.make_directory(SHOP / "elsewhere")
        for name, data in FOREIGN.items():
            self.system.replace(SHOP / name, data)
        self.foreign = FOREIGN

    # --- afterwards ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        store = self.open()
        found = {
            name: (store.entry(name).type, dict(store.entry(name).labels), _bodies(store[name]))
            for name in store
        }
        assert found in (self.sure, self.perhaps), f"{found}, not {self.sure} or {self.perhaps}"
        told = [
            ((change.meta or {})["event"], change.key)
            for change in store.system.history(Criterion(areas={Area.ENGINE}), limit=100).changes
        ]
        possible = [self.events] if self.under_way is None else [self.events, [*self.events, self.under_way]]
        assert told in possible, f"the system log tells {told}, not one of {possible}"
        directories = {store.entry(name).directory for name in store}
        expected = {"LOCK", ".system", *directories, *(name.split("/")[0] for name in self.foreign)}
        present = set(self.system.listing(SHOP))
        if not self.foreign:
            present.discard("elsewhere")
        assert present == expected, f"{present} instead of {expected}"
        for name, data in self.foreign.items():
            assert self.system.content(SHOP / name) == data, f"{name} was touched"
        store.create("after", type="journal").commit([upsert("order", "1", {"n": "on"})])
        store.close()
        store = self.open()
        assert _bodies(store["after"]) == ["on"]
        store.close()


def _bodies(log: Any) -> list[str]:
    return [change.body["n"] for change in log.history(limit=100, content="BODY").changes if change.index]


def workload(owner: Owner) -> None:
    store = owner.open()
    owner.intrude()
    owner.create(store, "orders", team="sales")
    owner.commit(store, "orders", "first")
    owner.create(store, "users")
    owner.rename(store, "orders", "sales")
    owner.commit(store, "sales", "second")
    owner.retype(store, "sales", "ledger")
    owner.create(store, "orders")
    owner.drop(store, "users")
    owner.create(store, "users", team="crm")
    owner.commit(store, "users", "third")
    store.close()
    store = owner.open()
    owner.drop(store, "sales")
    owner.rename(store, "users", "people")
    store.close()


@cache
def _operations() -> int:
    with alone():
        system = SimulatedFileSystem(directories=True)
        workload(Owner(system))
    return system.operations


def total() -> int:
    """Operations x what strikes."""
    return _operations() * len(KINDS)


def run(seed: int, trace: list[str] | None = None) -> dict[str, int]:
    number, at = divmod(seed % total(), len(KINDS))
    number += 1
    kind = KINDS[at]
    system = SimulatedFileSystem(seed, trace=trace is not None, directories=True)
    system.faults[number] = "crash" if kind == "kill" else kind
    owner = Owner(system)
    struck = 0
    try:
        with alone():
            _struck(lambda: workload(owner))
            _end(system, killed=kind == "kill")
            while True:
                # What opens it again may be struck too, more and more seldom.
                system.faults.clear()
                if system.random.random() < 0.5:
                    system.faults[system.operations + system.random.randint(1, 60)] = "crash"
                if not _struck(lambda: owner.open().close()):
                    break
                struck += 1
                _end(system, killed=system.random.random() < 0.2)
            system.faults.clear()
            _end(system, killed=system.random.random() < 0.5)
            owner.check()
    except BaseException as error:
        error.add_note(f"{kind} at operation {number} of {_operations()}")
        raise
    finally:
        if trace is not None:
            trace.extend(system.trace or ())
    return {"steps under way": owner.perhaps is not None, "openings struck": struck}


def _struck(work: Any) -> bool:
    """Whether something kept it from its end."""
    try:
        work()
    except (PowerCut, LogFailed, PenstockError, OSError):
        return True
    return False


def _end(system: SimulatedFileSystem, *, killed: bool) -> None:
    if killed:
        system.kill()
    else:
        system.power_cut()

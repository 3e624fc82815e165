"""T1, workload ``deferral``: random lives of a log that withholds, shows and forgets, on the simulated disk.

Beside what `Trial` proves:

* what is withheld stays withheld over every crash and opening, and nobody is shown it;
* what was shown stays shown;
* what was forgotten never comes back, a forgetting that a crash has met is there wholly or not at all, and positions of
  forgotten versions belong to an older epoch.
"""

from types import SimpleNamespace
from typing import Any

from publishers.errors import LogFull
from publishers.wal import Follower, Reader, Wal
from tests.harness.inside import catalog_of, writer_of
from tests.simulation.workload import PRODUCERS, Small, Trial

__all__ = ["DeferralTrial", "SmallDeferralTrial"]


class DeferralTrial(Trial):
    """One seed.

    Attributes:
        lines: Above which version everything is withheld, None if nothing is; two while one becomes the other.
        shown: Newest version that somebody was shown.
        cut: While a forgetting is in progress: the version that it keeps, and the newest one before.
    """

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.lines: set[int | None] = {None}
        self.shown = 0
        self.cut: tuple[int, int] | None = None
        self.withholdings = self.publishes = self.cuts = self.cuts_finished = self.kept_back = 0

    def step(self, wal: Wal) -> None:
        roll = self.rng.random()
        if roll < 0.12 and wal.withholding:
            self.publish(wal)
        elif roll < 0.24 and wal.withholding:
            self.forget_after(wal)
        elif roll < 0.35 and not wal.withholding:
            # What is written and not synced yet is on its way to be shown, and the next one may be.
            if self.show(wal, wal.appended + self.rng.choice([0, 0, 0, 1])):
                self.withholdings += 1
                self.commit(wal)
        else:
            super().step(wal)

    def show(self, wal: Wal, line: int | None) -> bool:
        before = self.lines
        self.lines = {*before, line}
        try:
            wal.show(line)
        except LogFull:
            # With no room for the second slot the first one tells of it all the same, until it is shown or said anew.
            self.lines = {line} if wal.withholding and before == {None} else before
            return False
        self.lines = {line}
        return True

    def publish(self, wal: Wal) -> None:
        self.model.acknowledged = wal.sync()
        reach = self.rng.randint(wal.visible, wal.appended)
        if self.show(wal, None if reach == wal.appended else reach):
            self.publishes += 1
            wal.publish_tail(reach)

    def forget_after(self, wal: Wal) -> None:
        model = self.model
        newest = model.acknowledged = wal.sync()
        version = self.rng.randint(wal.visible, newest)
        if version == newest:
            return
        epoch = wal.epoch
        self.cut = version, newest
        model.acknowledged = version
        try:
            wal.forget_after(version)
        except LogFull:
            self.cut = None
            model.acknowledged = newest
            return
        self.cut = None
        self.cuts += 1
        self.forgotten(version)
        assert (wal.appended, wal.durable) == (version, version)
        assert wal.epoch == epoch + 1
        assert wal.epochs[-1][:2] == (wal.epoch, version + 1)
        assert wal.withholding == (None not in self.lines)
        model.epoch = wal.epoch
        for producer in PRODUCERS:
            state = wal.producer(producer)
            self.waiting[producer] = state.sequence if state else 0
        if self.rng.random() < 0.5:
            self.read(wal, wal.reader.oldest, wal.durable)

    def forgotten(self, version: int) -> None:
        self.forget(version)
        self.lines = {line if line is not None and line < version else None for line in self.lines}

    def follow(self, wal: Wal) -> None:
        super().follow(wal)
        follower = Follower.open("/log", filesystem=self.system)
        try:
            assert all(line is None or follower.visible <= line for line in self.lines)
            self.shown = max(self.shown, follower.visible)
        finally:
            follower.close()

    def compare(self, wal: Wal, *, fully: bool = True) -> None:
        durable = wal.durable
        if self.cut is not None:
            version, newest = self.cut
            self.cut = None
            assert durable == version or durable >= newest, (
                f"half forgotten: {durable} of {version} to {newest}"
            )
            if durable == version:
                self.cuts_finished += 1
                self.forgotten(version)
        possible = {durable if line is None else min(line, durable) for line in self.lines}
        assert wal.visible in possible, f"visible is {wal.visible}, not one of {possible}"
        assert wal.visible >= self.shown, f"taken back: {wal.visible} of {self.shown}"
        assert wal.withholding == (wal.visible < durable)
        self.lines = {wal.visible if wal.withholding else None}
        self.kept_back += wal.withholding
        super().compare(wal, fully=fully)

    def read(self, log: Any, oldest: int, newest: int) -> None:
        """What is withheld is whole as well, but a reader of the log ends before it."""
        super().read(log, oldest, min(newest, log.visible))
        if newest > log.visible:
            reader = Reader(catalog_of(log), lambda: writer_of(log).limit)
            super().read(SimpleNamespace(reader=reader), oldest, newest)  # type: ignore[arg-type]  # all that it asks


class SmallDeferralTrial(Small, DeferralTrial):
    """The same in short lives with small segments."""

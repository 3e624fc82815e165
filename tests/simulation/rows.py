"""The rows of the proof plan that need no process and no disk of their own, in one table; see docs/proof.md.

A row turns a seed into a run that raises if a promise is broken. Rows with a total are enumerations: their seeds are the
cases from 0 on, so that "all" has a meaning. Seeds that have found something stand in ``tests/corpus/<row>.txt``.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.scale import scaled
from tests.mutants import hunting
from tests.simulation import (
    crash_states,
    damage,
    disk_errors,
    extremes,
    forks,
    golden,
    histories,
    repairs,
    stores,
)
from tests.simulation.deferral import DeferralTrial, SmallDeferralTrial
from tests.simulation.workload import SmallTrial, Trial

__all__ = ["ROWS", "Row", "corpus"]

CORPUS = Path(__file__).parent.parent / "corpus"

Run = Callable[[int, list[str] | None], Mapping[str, int]]


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        name: Of the plan.
        what: Is tried, in a few words.
        run: Runs one seed, and says how often what it is after has happened.
        total: How many cases there are; None if every seed is another one.
        sample: How many seeds a commit has to pass; None for all cases. 0 if tests of their own run them.
        endless: Whether seeds beyond the total are worth a run too: they draw other power cuts.
        chunk: How many seeds a process of a long run takes at once.
    """

    name: str
    what: str
    run: Run
    total: Callable[[], int] | None = None
    sample: int | None = None
    endless: bool = False
    chunk: int = 100

    def per_commit(self) -> int:
        """How many seeds that is."""
        if self.sample is not None:
            return scaled(self.sample) if self.sample else 0
        assert self.total is not None
        return self.total()

    def seeds(self, chance: random.Random) -> Sequence[int]:
        """Those of a commit, after the corpus."""
        count = self.per_commit()
        if self.total is None:
            first = chance.randrange(1 << 40)
            return range(first, first + count)
        everything = range(self.total())
        return everything if self.sample is None else chance.sample(everything, count)

    def command(self, seed: int) -> str:
        """What runs one seed again."""
        return f"python -m tests.simulation.replay {self.name} --seed {seed} --trace"


def _trial(kind: type[Trial]) -> Run:
    def run(seed: int, trace: list[str] | None = None) -> Mapping[str, int]:
        trial = kind(seed, trace=trace is not None)
        try:
            trial.run()
        finally:
            if trace is not None:
                trace.extend(trial.system.trace or ())
        return {"rolls": trial.rolls, "retentions": trial.retentions, "recoveries cut": trial.recoveries_cut}

    return run


def corpus(name: str) -> list[int]:
    """The seeds of a row that have found something."""
    path = CORPUS / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("T1", "random lives on the simulated disk", _trial(Trial), sample=400),
        Row("T1-small", "short lives, in segments of a few KiB", _trial(SmallTrial), sample=1500),
        Row("T1-deferral", "as T1, withholding and forgetting", _trial(DeferralTrial), sample=300),
        Row(
            "T1-small-deferral",
            "as T1-small, withholding and forgetting",
            _trial(SmallDeferralTrial),
            sample=500,
        ),
        Row(
            "T2",
            "every crash state of one workload, 10 pending units",
            crash_states.run,
            crash_states.total,
            sample=4000,
        ),
        Row("T3", "one bit flipped", damage.flip, damage.flips, sample=1000),
        Row("T3-forks", "a file of another history, every checksum right", forks.run, sample=100),
        Row(
            "histories", "copies of one log, and every place told in each of them", histories.run, sample=200
        ),
        Row("T4", "a file cut at every byte", damage.truncate, damage.truncations, sample=1200),
        Row(
            "T5",
            "every operation of 10 workloads x EIO, ENOSPC, EINTR, short write",
            disk_errors.run,
            disk_errors.total,
            sample=1200,
            endless=True,
        ),
        Row(
            "T6",
            "mistakes planted in our own code, each to be noticed",
            hunting.run,
            hunting.total,
            sample=0,
            chunk=4,
        ),
        Row(
            "store",
            "each operation of the steps of a store x power cuts, death, EIO, ENOSPC",
            stores.run,
            stores.total,
            sample=120,
            endless=True,
        ),
        Row("repair", "repairs of damaged logs, struck at any operation", repairs.run, sample=150),
        Row("T16", "logs and bytes of each format", golden.run, golden.total),
        Row("T17", "clocks that jump, numbers near 2**53 and 2**63", extremes.run, extremes.total),
    )
}

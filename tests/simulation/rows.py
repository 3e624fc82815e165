"""The rows of the proof plan that need no process and no disk of their own, in one table; see docs/proof.md.

A row turns a seed into a run that raises if a promise is broken. Rows with a total are enumerations: their seeds are the
cases from 0 on, so that "all" has a meaning. Seeds that have found something stand in ``tests/corpus/<row>.txt``.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.simulation import crash_states, damage, disk_errors, extremes, golden
from tests.simulation.deferral import DeferralTrial
from tests.simulation.workload import Trial

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
        sample: How many seeds a commit has to pass; None for all cases. 0 if another test runs them.
        endless: Whether seeds beyond the total are worth a run too: they draw other power cuts.
    """

    name: str
    what: str
    run: Run
    total: Callable[[], int] | None = None
    sample: int | None = None
    endless: bool = False

    def per_commit(self) -> int:
        """How many seeds that is."""
        if self.sample is not None:
            return self.sample
        assert self.total is not None
        return self.total()

    def seeds(self, chance: random.Random) -> Iterable[int]:
        """Those of one commit, after the corpus."""
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
        Row("T1", "random lives on the simulated disk", _trial(Trial), sample=0),
        Row("T1-deferral", "the same, withholding and forgetting", _trial(DeferralTrial), sample=0),
        Row(
            "T2",
            "every crash state of one workload, 10 pending units",
            crash_states.run,
            crash_states.total,
        ),
        Row("T3", "one bit flipped", damage.flip, damage.flips, sample=5000),
        Row("T4", "a file cut at every byte", damage.truncate, damage.truncations),
        Row(
            "T5",
            "every operation of 10 workloads x EIO, ENOSPC, EINTR, short write",
            disk_errors.run,
            disk_errors.total,
            endless=True,
        ),
        Row("T16", "logs and bytes of each format", golden.run, golden.total),
        Row("T17", "clocks that jump, numbers near 2**53 and 2**63", extremes.run, extremes.total),
    )
}

"""The measuring method of all benchmarks.

The variants of a benchmark take turns in one run, in rotating order, for several rounds. The result is the median, over the
rounds, of the ratio of two variants in the same round. Absolute numbers are printed for orientation and do not carry over to
another machine. Each benchmark checks that all changes arrived, and prints whether it reached its goals.
"""

import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
_PACKAGES = (
    "penstock-cdc",
    "msgspec",
    "lmdb",
    "redis",
    "reactivex",
    "eventkit",
    "aiostream",
    "websockets",
    "uvicorn",
)


@dataclass
class Variant:
    """One way to do the work: ``run`` does it once, and returns the number of units done and the seconds."""

    name: str
    run: Callable[[], tuple[int, float]]
    rates: list[float] = field(default_factory=list)


@dataclass
class Figure:
    """The result of one variant: its median, and the median of its ratios to the first variant."""

    variant: str
    rate: float
    ratio: float
    rounds: list[float] = field(default_factory=list)


@dataclass
class Goal:
    """A bound to reach, and the measured figure."""

    text: str
    found: str
    reached: bool


class Table(list[Figure]):
    """The figures of one comparison; the first variant is the base of the ratios.

    Args:
        title: The work that was measured.
        unit: The unit of the rates.
        rounds: The rate of each variant in each round.
        sizes: S subscribers, B changes a commit, C callers or connections, P predicates; and the durability class.
    """

    def __init__(self, title: str, unit: str, rounds: Mapping[str, Sequence[float]], sizes: str = "") -> None:
        self.title = title
        self.unit = unit
        self.sizes = sizes
        self.goals: list[Goal] = []
        self.notes: list[str] = []
        base = next(iter(rounds.values()))
        super().__init__(
            Figure(
                name,
                statistics.median(found),
                statistics.median(a / b for a, b in zip(found, base, strict=True)),
                list(found),
            )
            for name, found in rounds.items()
        )

    def show(self) -> "Table":
        """Prints the figures."""
        print(f"{self.title} ({self.unit})")
        if self.sizes:
            print(f"  {self.sizes}; load {os.getloadavg()[0]:.1f}")
        for figure in self:
            digits = 0 if figure.rate >= 100 else 2
            print(f"  {figure.variant:<48} {figure.rate:>14,.{digits}f} {figure.ratio:>8.2f}x")
        print()
        return self

    def ratio(self, name: str, other: str) -> float:
        """The median, over the rounds, of the ratio of two variants."""
        found = {figure.variant: figure.rounds for figure in self}
        return statistics.median(a / b for a, b in zip(found[name], found[other], strict=True))

    def reach(self, name: str, kind: Literal[">=", "<="], bound: float, other: str | None = None) -> None:
        """Prints a goal beside the measured figure: of a variant alone, or of its ratio to another one.

        A variant that could not be measured on this machine gets a note instead of a goal.
        """
        names = {figure.variant for figure in self}
        if name not in names or (other is not None and other not in names):
            return
        if other is None:
            value = next(figure.rate for figure in self if figure.variant == name)
            text, found = f"{name} {kind} {bound:,.0f} {self.unit}", f"{value:,.{0 if value >= 100 else 2}f}"
        else:
            value = self.ratio(name, other)
            text, found = f"{name} {kind} {round(bound, 2):,g}x {other}", f"{value:.2f}x"
        reached = value >= bound if kind == ">=" else value <= bound
        self.goals.append(Goal(text, found, reached))
        print(f"  to reach: {text}: {found}, {'reached' if reached else 'missed'}")

    def note(self, text: str) -> None:
        """Prints something that a reader of the figures should know."""
        self.notes.append(text)
        print(f"  {text}")

    def plain(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {
            "title": self.title,
            "unit": self.unit,
            "sizes": self.sizes,
            "figures": [asdict(figure) for figure in self],
            "goals": [asdict(goal) for goal in self.goals],
            "notes": self.notes,
        }


def compare(
    title: str, unit: str, variants: Sequence[Variant], rounds: int | None = None, *, sizes: str = ""
) -> Table:
    """Runs variants in turns and prints their rates and their ratios to the first."""
    rounds = rounds or ROUNDS
    order = list(variants)
    for number in range(rounds):
        shift = number % len(order)
        for variant in order[shift:] + order[:shift]:
            done, seconds = variant.run()
            variant.rates.append(done / max(seconds, 1e-9))
        progress(f"{title}: round {number + 1} of {rounds}")
    progress()
    return Table(title, unit, {variant.name: variant.rates for variant in order}, sizes).show()


def progress(text: str = "") -> None:
    """Shows the progress on a terminal; without a text, clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def timed(work: Callable[[], int]) -> tuple[int, float]:
    """Units done by ``work``, and the seconds that it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def cpu(work: Callable[[], int]) -> tuple[int, float]:
    """Units done by ``work``, and the CPU seconds of this process that it took."""
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def percentile(samples: Sequence[float], part: float) -> float:
    """The smallest sample that at least this part of all samples does not exceed."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * part))]


def environment() -> dict[str, str]:
    """The machine and the versions of this run."""
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "sqlite": sqlite3.sqlite_version,
        "redis-server": redis_version(),
    }
    for package in _PACKAGES:
        try:
            found["redis-py" if package == "redis" else package] = version(package)
        except PackageNotFoundError:
            found["redis-py" if package == "redis" else package] = "-"
    return found


def redis_version() -> str:
    """The version of the Redis server on the path, or ``-``."""
    server = shutil.which("redis-server")
    if server is None:
        return "-"
    words = subprocess.run([server, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return next((word.removeprefix("v=") for word in words if word.startswith("v=")), "-")


def save(name: str, tables: Mapping[str, Table], on: Mapping[str, str]) -> Path:
    """Writes the figures beside the code, and returns the path."""
    RESULTS.mkdir(exist_ok=True)
    plain = {title: table.plain() for title, table in tables.items()}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": dict(on), "tables": plain}, indent=2) + "\n")
    return path

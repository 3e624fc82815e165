"""How everything here is measured.

The variants of a benchmark take turns in one run, in rotating order, for several rounds; what counts is the median, over the
rounds, of each variant's ratio to the first one. Absolute numbers are printed for orientation and do not carry over to another
machine. Each variant checks that everything it was given arrived.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass
class Variant:
    """One way to do the work: ``run`` does it once, and answers how many units it did and in how many seconds."""

    name: str
    run: Callable[[], tuple[int, float]]
    rates: list[float] = field(default_factory=list)


@dataclass
class Figure:
    """What a benchmark found of one variant."""

    variant: str
    rate: float
    ratio: float


def compare(title: str, unit: str, variants: list[Variant], rounds: int = 5) -> list[Figure]:
    """Runs variants in turns and prints their rates and their ratios to the first."""
    for number in range(rounds):
        shift = number % len(variants)
        for variant in variants[shift:] + variants[:shift]:
            done, seconds = variant.run()
            variant.rates.append(done / seconds)
        sys.stderr.write(f"\r{title}: round {number + 1} of {rounds}")
    sys.stderr.write("\r\033[K")
    base = variants[0].rates
    figures = [
        Figure(
            v.name,
            statistics.median(v.rates),
            statistics.median(a / b for a, b in zip(v.rates, base, strict=True)),
        )
        for v in variants
    ]
    print(f"{title} ({unit})")
    for figure in figures:
        print(f"  {figure.variant:<44} {figure.rate:>14,.0f} {figure.ratio:>8.2f}x")
    print()
    return figures


def timed(work: Callable[[], int]) -> tuple[int, float]:
    """Units done by ``work``, and the seconds that it took."""
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def environment() -> dict[str, str]:
    """On what this ran."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "cores": str(os.cpu_count())}
    for package in ("penstock", "msgspec", "reactivex", "eventkit", "aiostream", "websockets", "uvicorn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "-"
    return found


def save(name: str, tables: dict[str, list[Figure]]) -> None:
    """Writes what was found beside the code."""
    RESULTS.mkdir(exist_ok=True)
    plain = {title: [asdict(figure) for figure in figures] for title, figures in tables.items()}
    text = json.dumps({"environment": environment(), "tables": plain}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n")

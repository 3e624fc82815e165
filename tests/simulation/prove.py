"""The long run of the proof plan: ``make prove MINUTES=n``.

The corpus first; then every case of each enumeration, in a random order, and fresh random seeds of the other rows.
Enumerations get half of the time until they are through. Prints how far it is, what was reached, and a line that replays
each failure; writes the same as a table.
"""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import gc
import itertools
import logging
import os
import platform
import random
import secrets
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.filesystem import PowerCut
from tests.simulation.rows import ROWS, Row, corpus

EVERY = 15.0
"""Seconds between two lines of progress."""


@dataclass
class Progress:
    """How far a row has got."""

    row: Row
    seeds: Iterator[int]
    cases: int = 0
    seconds: float = 0.0
    running: int = 0
    done: bool = False
    failures: list[tuple[int, str]] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def finite(self) -> bool:
        """Whether it is an enumeration."""
        return self.row.total is not None

    @property
    def all(self) -> int:
        """Cases of an enumeration, after its corpus."""
        assert self.row.total is not None
        return self.row.total() + len(corpus(self.row.name))

    @property
    def rate(self) -> float:
        """Seeds for each CPU second."""
        return self.cases / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> str:
        """How much of an enumeration is done."""
        return "all" if self.cases >= self.all else f"{100 * self.cases / self.all:.0f} %"

    @property
    def reached(self) -> str:
        """For the table."""
        if self.row.total is None:
            return f"{self.cases:,}"
        return f"{self.cases:,} ({self.share} of {self.row.total():,})"

    @property
    def brief(self) -> str:
        """For a line among others."""
        done = self.share if self.finite else f"{self.cases:,}"
        return f"{done} at {self.rate:.0f}/s"


Outcome = tuple[float, list[tuple[int, str]], Counter[str]]
"""CPU seconds, what failed, and what happened."""


def run_chunk(name: str, seeds: list[int]) -> Outcome:
    """Runs in a process of its own."""
    row = ROWS[name]
    started = time.process_time()
    failures: list[tuple[int, str]] = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened.update(row.run(seed, None))
        except (Exception, PowerCut):
            failures.append((seed, traceback.format_exc()))
    return time.process_time() - started, failures, happened


def _seeds(row: Row, chance: random.Random) -> Iterator[int]:
    yield from corpus(row.name)
    if row.total is None:
        yield from itertools.count(chance.randrange(1 << 40))
        return
    total = row.total()
    yield from chance.sample(range(total), total)
    while row.endless:
        yield chance.randrange(total, 1 << 40)


def _share(progress: Progress) -> float:
    """CPU seconds that a row has had, those under way included."""
    each = progress.row.chunk * progress.seconds / progress.cases if progress.cases else 5.0
    return progress.seconds + each * progress.running


class Queue:
    """Which row is next: an enumeration that is not through, if they have had no more CPU time than the others together.

    Of either kind who has had the least. So the enumerations end, although there are more and more rows beside them, and
    all others go on until the time is up.
    """

    def __init__(self, rows: list[Progress]) -> None:
        self.rows = rows

    def take(self) -> tuple[Progress, list[int]] | None:
        """A row and its next seeds; None if nothing is left."""
        while waiting := [progress for progress in self.rows if not progress.done]:
            had = {True: 0.0, False: 0.0}
            for one in self.rows:
                had[one.finite] += _share(one)
            first = had[True] <= had[False]
            wanted = [one for one in waiting if (one.finite and one.cases < one.all) == first] or waiting
            least = min(wanted, key=_share)
            seeds = list(itertools.islice(least.seeds, least.row.chunk))
            if seeds:
                least.running += 1
                return least, seeds
            least.done = True
        return None


def _ready() -> None:
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent that stops
    gc.collect()
    gc.freeze()


def prove(
    seconds: float, base: int, processes: int, tell: Callable[[list[Progress]], None] = lambda _: None
) -> list[Progress]:
    """Runs until the time is up, or everything that ends is through; an interrupt ends it as well.

    Args:
        seconds: How long.
        base: Draws the seeds.
        processes: How many work.
        tell: Told how far it is, now and then.
    """
    deadline = time.monotonic() + seconds
    rows = [Progress(row, _seeds(row, random.Random(f"{base} {name}"))) for name, row in ROWS.items()]
    queue = Queue(rows)
    running: dict[Future[Outcome], tuple[Progress, int]] = {}
    told = time.monotonic()
    with ProcessPoolExecutor(processes, initializer=_ready) as pool:
        while True:
            try:
                while len(running) < 2 * processes and time.monotonic() < deadline:
                    taken = queue.take()
                    if taken is None:
                        break
                    progress, seeds = taken
                    running[pool.submit(run_chunk, progress.row.name, seeds)] = (progress, len(seeds))
                if not running:
                    return rows
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    _account(*running.pop(future), future.result())
                if time.monotonic() - told > EVERY:
                    told = time.monotonic()
                    tell(rows)
            except KeyboardInterrupt:
                print("stopped; what has been begun is ended", flush=True)
                deadline = 0.0


def _account(progress: Progress, count: int, outcome: Outcome) -> None:
    spent, failures, happened = outcome
    progress.running -= 1
    progress.cases += count
    progress.seconds += spent
    progress.failures += failures
    progress.happened.update(happened)
    for seed, text in failures:
        print(f"{text}replay: {progress.row.command(seed)}", flush=True)


def line(rows: list[Progress], elapsed: float) -> str:
    """How far it is, in one line."""
    parts = [f"{one.row.name} {one.brief}" for one in rows if one.cases]
    failed = sum(len(one.failures) for one in rows)
    return f"{elapsed:.0f} s, {failed} failed: " + ", ".join(parts)


def table(rows: list[Progress]) -> str:
    lines = [
        "| row | what | per commit | reached | seeds per CPU second | CPU s | failed | what happened |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for progress in rows:
        row = progress.row
        commit = f"{row.per_commit():,}" if row.sample != 0 else "some"
        seen = ", ".join(f"{count:,} {what}" for what, count in progress.happened.items())
        lines.append(
            f"| {row.name} | {row.what} | {commit} | {progress.reached} | {progress.rate:.0f} | {progress.seconds:.0f} "
            f"| {len(progress.failures)} | {seen} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.prove", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="draws all seeds; fresh by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--report", type=Path, default=Path("build/proof.md"))
    arguments = parser.parse_args()
    base = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {base}, {arguments.minutes:g} minutes, {arguments.processes} processes", flush=True)
    started = time.monotonic()

    def tell(rows: list[Progress]) -> None:
        print(line(rows, time.monotonic() - started), flush=True)

    rows = prove(arguments.minutes * 60, base, arguments.processes, tell)
    text = (
        f"Seed {base}, {time.monotonic() - started:.0f} s, {arguments.processes} processes, "
        f"{platform.system()}, {platform.python_implementation()} {platform.python_version()}.\n\n{table(rows)}\n"
    )
    print(text)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(text)
    for progress in rows:
        for seed, _ in progress.failures:
            print(f"replay: {progress.row.command(seed)}")
    return 1 if any(progress.failures for progress in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

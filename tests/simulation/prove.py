"""The long run of the proof plan: ``make prove MINUTES=n``.

The corpus first; then every case of each enumeration, in a random order, and fresh random seeds of the other rows, each
row getting an equal share of the time until it has nothing left. Prints what was reached, and a line that replays each
failure; writes the same as a table.
"""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import itertools
import logging
import platform
import random
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.rows import ROWS, Row, corpus

CHUNK = 100


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
    def reached(self) -> str:
        total = self.row.total
        if total is None:
            return f"{self.cases:,}"
        known = len(corpus(self.row.name))
        share = "all" if self.cases - known >= total() else f"{100 * (self.cases - known) / total():.0f} %"
        return f"{self.cases:,} ({share} of {total():,})"


def run_chunk(name: str, seeds: list[int]) -> tuple[float, list[tuple[int, str]], Counter[str]]:
    """Runs in a process of its own; the CPU seconds, what failed, and what happened."""
    logging.disable(logging.CRITICAL)
    row = ROWS[name]
    started = time.process_time()
    failures: list[tuple[int, str]] = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened.update(row.run(seed, None))
        except Exception:
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


def prove(seconds: float, base: int, processes: int) -> list[Progress]:
    deadline = time.monotonic() + seconds
    rows = [Progress(row, _seeds(row, random.Random(f"{base} {name}"))) for name, row in ROWS.items()]
    running: dict[Future[tuple[float, list[tuple[int, str]], Counter[str]]], tuple[Progress, int]] = {}
    with ProcessPoolExecutor(processes) as pool:
        while True:
            while len(running) < 2 * processes and time.monotonic() < deadline:
                waiting = [progress for progress in rows if not progress.done]
                if not waiting:
                    break
                # A row that has never been measured is run first, then whichever has had the least.
                least = min(waiting, key=lambda progress: progress.seconds + 5 * progress.running)
                seeds = list(itertools.islice(least.seeds, CHUNK))
                if not seeds:
                    least.done = True
                    continue
                least.running += 1
                running[pool.submit(run_chunk, least.row.name, seeds)] = (least, len(seeds))
            if not running:
                return rows
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                progress, count = running.pop(future)
                spent, failures, happened = future.result()
                progress.running -= 1
                progress.cases += count
                progress.seconds += spent
                progress.failures += failures
                progress.happened.update(happened)
                for seed, text in failures:
                    print(f"{text}replay: {progress.row.command(seed)}", flush=True)


def table(rows: list[Progress]) -> str:
    lines = [
        "| row | what | per commit | reached | seeds/s and CPU | CPU s | failed | what happened |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for progress in rows:
        row = progress.row
        commit = f"{row.per_commit():,}" if row.sample != 0 else "as tests/publishers/wal has it"
        seen = ", ".join(f"{count:,} {what}" for what, count in progress.happened.items())
        rate = progress.cases / progress.seconds if progress.seconds else 0
        lines.append(
            f"| {row.name} | {row.what} | {commit} | {progress.reached} | {rate:.0f} | {progress.seconds:.0f} "
            f"| {len(progress.failures)} | {seen} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.prove", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="draws all seeds; fresh by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", type=Path, default=Path("build/proof.md"))
    arguments = parser.parse_args()
    base = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {base}, {arguments.minutes:g} minutes, {arguments.processes} processes", flush=True)
    started = time.monotonic()
    rows = prove(arguments.minutes * 60, base, arguments.processes)
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

"""``python -m tests.mutants planted [ROW ...]``: plants faults, and prints which test that names the row notices each.

With ``--part 2/3`` only the second of three parts of the table; with ``--workers`` several copies at once.
"""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.planted.fault import Fault, Result, Workshop
from tests.mutants.planted.table import EQUIVALENT, FAULTS

__all__ = ["main", "noticed"]


def main(arguments: Sequence[str]) -> int:
    """Plants the chosen faults; returns 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants planted", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows of docs/features.md; all by default")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="the Nth of M parts of the table")
    parser.add_argument("--workers", type=int, default=1, help="copies of the project at once")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of one fault")
    chosen = parser.parse_args(arguments)
    number, _, parts = chosen.part.partition("/")
    faults = [
        fault
        for fault in FAULTS[int(number) - 1 :: int(parts)]
        if not chosen.rows or fault.row in chosen.rows
    ]
    print("| planted fault | noticed by | seconds |\n|---|---|---|", flush=True)
    results = noticed(faults, workers=chosen.workers, limit=chosen.limit)
    survivors = [result for result in results if not result.by and result.fault not in EQUIVALENT]
    print(f"\n{len(results) - len(survivors)} of {len(results)} noticed, or no faults to a user")
    return int(bool(survivors))


def noticed(faults: Sequence[Fault], *, workers: int = 1, limit: float = 300.0) -> list[Result]:
    """Plants faults in copies of the project, prints what becomes of each, and returns it."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory, ThreadPoolExecutor(workers) as threads:
        workshops: SimpleQueue[Workshop] = SimpleQueue()
        made = [Workshop(Path(directory) / str(number), limit=limit) for number in range(workers)]
        for workshop in made:
            workshops.put(workshop)

        def work(fault: Fault) -> Result:
            workshop = workshops.get()
            try:
                result = workshop.try_out(fault)
            finally:
                workshops.put(workshop)
            print(result, flush=True)
            return result

        results = list(threads.map(work, faults))
        wrong = made[0].unsound(results)
    for result in wrong:
        print(f"{result.by} fails without the fault too: {result.fault}", file=sys.stderr)
    return [Result(one.fault, "" if one in wrong else one.by, one.seconds) for one in results]

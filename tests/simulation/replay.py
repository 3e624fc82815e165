"""Runs seeds of a row of the proof plan: ``python -m tests.simulation.replay T1 --seed 12345 --trace``."""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from tests.simulation.rows import ROWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replay", description=__doc__)
    parser.add_argument("test", choices=list(ROWS), help="which row")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print every operation of a run that failed")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    row = ROWS[arguments.test]
    started = time.process_time()
    failed = 0
    happened: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        trace: list[str] | None = [] if arguments.trace else None
        try:
            happened.update(row.run(seed, trace))
        except Exception:
            failed += 1
            print("\n".join(trace or ()))
            traceback.print_exc()
            print(f"replay: {row.command(seed)}")
    seconds = time.process_time() - started
    seen = "".join(f", {count} {what}" for what, count in happened.items())
    print(
        f"{arguments.test}: {failed} of {arguments.count} seeds failed{seen}, "
        f"{arguments.count / seconds:.0f} seeds/s, {seconds:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

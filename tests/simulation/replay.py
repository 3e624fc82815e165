"""Runs lives of a log by seed: ``python -m tests.simulation.replay T1 --seed 12345 --trace``."""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import logging
import sys
import time
import traceback

from tests.simulation.deferral import DeferralTrial
from tests.simulation.workload import Trial

TRIALS = {"T1": Trial, "T1-deferral": DeferralTrial}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replay", description=__doc__)
    parser.add_argument("test", choices=sorted(TRIALS), help="which test")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print every operation of a life that failed")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    failed = rolls = retentions = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        trial = TRIALS[arguments.test](seed, trace=arguments.trace)
        try:
            trial.run()
        except Exception:
            failed += 1
            print("\n".join(trial.system.trace or ()))
            traceback.print_exc()
            print(f"replay: python -m tests.simulation.replay {arguments.test} --seed {seed} --trace")
        rolls += trial.rolls
        retentions += trial.retentions
    seconds = time.process_time() - started
    print(
        f"{arguments.test}: {failed} of {arguments.count} seeds failed, {rolls} rolls, {retentions} retentions, "
        f"{arguments.count / seconds:.0f} seeds/s, {seconds:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The long run of T12: ``python -m tests.history --minutes 30``; rounds with fresh seeds, each judged by itself."""

import argparse
import secrets
import sys
from dataclasses import replace

from tests.history.run import Plan, play

OUTSIDERS = {"websocket": 1, "http": 1, "graphql": 1, "group": 1}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all")
    parser.add_argument(
        "--round", type=float, default=10.0, help="minutes over one log; above 3, memory is watched"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the first round; fresh by default")
    parser.add_argument("--keep", action="store_true", help="keep the histories")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    return 0 if rounds(arguments.minutes, arguments.round, seed, keep=arguments.keep) else 1


def rounds(minutes: float, each: float, seed: int, *, keep: bool = False) -> bool:
    """Plays rounds for so many minutes; whether every promise held."""
    good = True
    left = minutes
    while left > 0:
        now = min(each, left)
        plan = replace(Plan(), seconds=now * 60, steady=now >= 3, outsiders=OUTSIDERS, consumers=True)
        good = not play(seed, plan, keep=keep).violations and good
        left -= now
        seed += 1
    return good


if __name__ == "__main__":
    sys.exit(main())

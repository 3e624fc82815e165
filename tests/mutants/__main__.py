"""How sharp the simulations are: ``python -m tests.mutants [--seeds 100] [NAME ...]`` prints who notices which mistake.

``python -m tests.mutants planted`` does so for the tests that name a row of docs/features.md (`tests.mutants.planted.command`).

Of each mutant, the share of so many seeds that notice it: most mistakes need a few seeds, some need thousands.
"""

# ruff: noqa: T201 - it is a command, and printing is what it does
import argparse
import sys

from tests.mutants.hunting import Survived, hunt, rate
from tests.mutants.listing import MUTANTS
from tests.mutants.planted import command


def main() -> int:
    if sys.argv[1:2] == ["planted"]:
        return command.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; all by default")
    parser.add_argument("--seeds", type=int, default=100)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MUTANTS)
    if unknown:
        parser.error(f"no such mutants: {', '.join(sorted(unknown))}; there are {', '.join(sorted(MUTANTS))}")
    survived = False
    print(f"| mutant | noticed by | of {arguments.seeds} seeds | first by seed |\n|---|---|---|---|")
    for name in arguments.names or MUTANTS:
        mutant = MUTANTS[name]
        try:
            killer, first = hunt(mutant)
        except Survived as error:
            survived = True
            print(f"| {name} | nobody | | {error} |", flush=True)
            continue
        share = rate(mutant, killer, arguments.seeds) if killer != "machine" else 1.0
        print(f"| {name} | {killer} | {100 * share:.0f} % | {first} |", flush=True)
    return int(survived)


if __name__ == "__main__":
    sys.exit(main())

"""The long run: ``python -m tests.soak``; with ``--commits``, ``--clients`` or ``--door`` in front that of the module of this name."""

# ruff: noqa: T201 - what a run has found is there to be read
import argparse
import sys
from dataclasses import fields

from tests.soak import clients, commits, door
from tests.soak.run import Plan, play


def main() -> int:
    others = {"--commits": commits.main, "--clients": clients.main, "--door": door.main}
    if (other := others.get("".join(sys.argv[1:2]))) is not None:
        return other(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    for each in fields(Plan):
        parser.add_argument(f"--{each.name}", type=type(each.default), default=each.default)
    report = play(Plan(**vars(parser.parse_args())))
    for name, told in (("alone", report.alone), ("beside the others", report.beside)):
        print(
            f"LIVE clients {name}: {told['rate']:,.0f} events/s, p50 {told['p50'] * 1e3:,.1f} ms, p99 {told['p99'] * 1e3:,.1f} ms"
        )
    print("resident MiB at first, alone, beside:", [round(one / 2**20) for one in report.resident])
    print("connections that the server ended:", report.ended)
    print("attacks:", sum(report.end["attacks"].values()), report.end["attacks"])
    print("clients that were cut off and came again:", report.end["cut"])
    print("transactions appended:", report.appended, "lost or repeated:", report.lost or "none")
    print("those whose right was revoked were told:", report.left)
    print("faults:", report.end["faults"][:10] or "none")
    return 1 if report.end["faults"] or report.lost else 0


if __name__ == "__main__":
    sys.exit(main())

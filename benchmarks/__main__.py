"""``python -m benchmarks [NAME ...]``: runs benchmarks, prints them, and keeps the figures in ``results``."""

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.harness import environment, save
from benchmarks.plot import draw

NAMES = (
    "append",
    "commit",
    "appending",
    "resync",
    "demand",
    "laggards",
    "matching",
    "fanout",
    "flow_signals",
    "wire",
    "tailing",
    "growth",
    "logs",
    "slots",
    "state",
    "groups",
    "sinks",
    "spark",
    "spark_source",
)


def main() -> int:
    """Runs the named benchmarks; if there are several, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of " + ", ".join(NAMES))
    parser.add_argument("--dir", default=None, help="where logs are written (default: a temporary directory)")
    parser.add_argument(
        "--report",
        action="store_true",
        help="put the figures of this and earlier runs into docs/benchmarks.md",
    )
    parser.add_argument("--remark", default="", help="what the page says of the run")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    names = chosen.names or NAMES
    failed = 0
    if len(names) == 1:
        one(names[0], chosen.dir)
    else:
        place = [] if chosen.dir is None else ["--dir", chosen.dir]
        for name in names:
            failed += subprocess.call([sys.executable, "-m", "benchmarks", name, *place]) != 0
    if chosen.report:
        report.write(NAMES, chosen.remark)
    return min(failed, 1)


def one(name: str, directory: str | None) -> None:
    """Runs a benchmark and stores its figures."""
    on = environment()
    print(f"== {name}: " + ", ".join(f"{key} {value}" for key, value in on.items()), end="\n\n")
    with tempfile.TemporaryDirectory(dir=directory, prefix="bench") as place:
        tables = importlib.import_module(f"benchmarks.{name}").run(Path(place))
    draw(name, tables, save(name, tables, on).with_suffix(".svg"))


if __name__ == "__main__":
    sys.exit(main())

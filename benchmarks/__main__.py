"""``python -m benchmarks [NAME ...]``: runs benchmarks, prints them, and keeps the figures in ``results``."""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import environment, save

NAMES = ("append", "commit", "fanout", "flow_signals", "resync", "tailing")


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of " + ", ".join(NAMES))
    parser.add_argument("--dir", default=None, help="where logs are written (default: a temporary directory)")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    print(", ".join(f"{name} {value}" for name, value in environment().items()), end="\n\n")
    for name in chosen.names or NAMES:
        with tempfile.TemporaryDirectory(dir=chosen.dir) as directory:
            save(name, importlib.import_module(f"benchmarks.{name}").run(Path(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

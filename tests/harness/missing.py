"""Lists everything that this machine lacks for skipped tests, in one line at the end of the run."""

from collections import Counter
from importlib.util import find_spec
from typing import NoReturn

import pytest

__all__ = ["skip_without", "skip_without_package", "tell_missing"]

PREFIX = "missing here: "


def skip_without(what: str) -> NoReturn:
    """Skips a test, or all tests of a fixture or module, because a program, a package or a permission is missing."""
    pytest.skip(PREFIX + what, allow_module_level=True)


def skip_without_package(name: str) -> None:
    """Skips like `skip_without` if a package is not installed; it is not imported, which can take a second."""
    if find_spec(name) is None:
        skip_without(f"the package {name}")


def tell_missing(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes the line."""
    found: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if PREFIX in reason:
            found[reason.partition(PREFIX)[2]] += 1
    if found:
        wants = ", ".join(f"{what} ({count})" for what, count in sorted(found.items()))
        terminalreporter.write_line(f"not run, since this machine lacks: {wants}", yellow=True)

"""Reports the resident memory that attacks leave in the process, in one line at the end of the run, for a reader to judge.

Tests do not assert it, since the allocator and the kernel decide when memory is released. They assert what tracemalloc counts.
"""

import os
from pathlib import Path

import pytest

__all__ = ["LEFT", "resident", "tell_resident"]

LEFT = "resident bytes left"
_STATM = Path("/proc/self/statm")


def resident() -> int:
    """Returns the resident bytes of this process; 0 if the system does not report them."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if _STATM.exists() else 0


def tell_resident(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes the line."""
    found: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            told = dict(getattr(report, "user_properties", ()))
            if LEFT in told:
                found[report.nodeid.rpartition("::")[2]] = told[LEFT]
    if found:
        most = max(found, key=lambda name: found[name])
        total, left = sum(found.values()) / 2**20, found[most] / 2**20
        terminalreporter.write_line(
            f"resident memory after {len(found)} attacks: {total:+.1f} MiB; the most after {most}: {left:+.1f} MiB"
        )

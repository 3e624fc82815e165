"""How much memory attacks leave in the process is told in one line at the end, and judged by whoever reads it.

What the allocator and the kernel give back when is not for a test to assert; what Python traces is asserted.
"""

import os
from pathlib import Path

import pytest

__all__ = ["LEFT", "resident", "tell_resident"]

LEFT = "resident bytes left"
_STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
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

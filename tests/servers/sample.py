"""A healthy run against each server that is installed, within a budget: ``make servers-sample``."""

import resource
import sys
import time

import pytest

# ruff: noqa: T201 - a command that prints

TESTS = (
    "tests/servers/test_sinks.py::test_a_target_holds_what_the_log_says",
    "tests/servers/test_prometheus.py",
)
SECONDS = 60
"""The budget of wall-clock time, on two quiet cores."""
CPU_SECONDS = 40
"""The budget of CPU time, of the servers too."""


def main(*arguments: str) -> int:
    """Runs them, and prints what they took beside the budget."""
    began = time.monotonic()
    status = pytest.main(["-n0", *TESTS, *arguments])
    used = sum(
        getattr(resource.getrusage(who), each)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for each in ("ru_utime", "ru_stime")
    )
    print(
        f"real servers: {time.monotonic() - began:.0f} s of {SECONDS}, {used:.0f} s of CPU time of {CPU_SECONDS}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

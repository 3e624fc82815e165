"""Selects the tests that measure branch coverage of the log and its delivery.

Measuring costs time, so it is off in tests that reach no further branch. pyproject.toml lists the files to cover.
"""

import pytest

__all__ = ["choose", "measure_once"]

MEASURED = (
    "tests/publishers/wal/",
    "tests/publishers/backups/",
    "tests/publishers/blocks/",
    "tests/publishers/commits/",
    "tests/publishers/fanout/",
    "tests/publishers/slots/",
    "tests/publishers/snapshots/",
    "tests/publishers/state/",
    *(
        f"tests/publishers/{name}.py"
        for name in (
            "log/test_feed",
            "log/test_history",
            "log/test_lag",
            "log/test_operations",
            "log/test_staging",
            "log/test_start",
            "log/test_withheld",
            "test_pruned_meanwhile",
            "test_replaced",
        )
    ),
)

TOO_LONG = (
    "a_mutant",
    "no_life",
    "the_lives",
    "a_life_that",
    "beside_a_writer",
    "any_damage",
    "reads_exactly",
    "between_any_two_steps",
    "many_pauses",
)
"""Parts of the names of tests that take long, or that set their own tracer."""


def measure_once(config: pytest.Config) -> None:
    """Stops the surplus measurement in a worker: pytest-cov starts two there, and ``no_cover`` pauses only the second.

    With the first one running, a test without coverage would be as slow as the others, and its forked children would be traced.
    """
    import coverage  # not installed where tests run without measuring

    running = coverage.Coverage.current()
    if hasattr(config, "workerinput") and running is not None:
        running.stop()


def choose(items: list[pytest.Item]) -> None:
    """Turns measuring off in all tests that are not in `MEASURED`, or are in `TOO_LONG`."""
    for item in items:
        if not item.nodeid.startswith(MEASURED) or any(part in item.nodeid for part in TOO_LONG):
            item.add_marker("no_cover")

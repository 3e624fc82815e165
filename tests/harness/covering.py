"""Which tests are measured for the branches of the log and of what delivers from it.

Measuring costs time, so it is suspended in the tests that would reach no further branch. Which files have to be covered
stands in pyproject.toml.
"""

import pytest

__all__ = ["choose", "measure_once"]

MEASURED = (
    "tests/publishers/wal/",
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
            "test_backups",
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
"""Parts of names of tests that take long, or set a tracer of their own."""


def measure_once(config: pytest.Config) -> None:
    """Stops what pytest-cov starts in a worker and forgets: it starts another measurement there, and pauses only that one.

    With the first one going on, a test without coverage was as slow as others, and a child forked in it was traced too.
    """
    import coverage  # not where tests run without measuring

    running = coverage.Coverage.current()
    if hasattr(config, "workerinput") and running is not None:
        running.stop()


def choose(items: list[pytest.Item]) -> None:
    """Suspends measuring in all tests but those that reach a branch."""
    for item in items:
        if not item.nodeid.startswith(MEASURED) or any(part in item.nodeid for part in TOO_LONG):
            item.add_marker("no_cover")

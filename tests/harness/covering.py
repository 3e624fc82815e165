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
    "a_thousand_slots",
    "no_flipped_bit_of_head",
    "a_large_transaction_counts",
    "equals_a_list_for_any_bound",
    "a_page_costs_what_it_holds",
    "agree_with_a_full_scan",
    "after_any_seek",
    "a_wait_can_be_ended",
    "a_bounded_number_of_steps_however_many_keys",
    "whatever_laggards_ask_for",
    "the_last_cancel",
    "over_a_pause",
    "unacknowledged_bytes_behind",
    "who_has_no_demand",
    "no_jump_of_the_wall_clock",
    "a_restart_inside_a_transaction",
    "a_time_is_found_without",
    "may_fail[EDQUOT]",
    "may_fail[ENOSPC]",
    "may_fail[EFBIG]",
    "truncated_anywhere_is_reported_or_whole[False]",
    "the_next_run_goes_on[ENOSPC]",
    "harmless[TAIL]",
    "leaves_no_log_and_is_completed[kill]",
    "or_none_and_goes_on[kill-True",
    "or_none_and_goes_on[power cut-True",
    "or_none_and_goes_on[power cut-False-True",
    "a_reversed_history_begins",
)
"""Parts of the ids of tests that take long and reach no branch that others do not reach, or that set their own tracer.

``pytest --cov --cov-context=test`` notes which test reaches what.
"""


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

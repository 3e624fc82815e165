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
            "log/test_health",
            "log/test_history",
            "log/test_housekeeping",
            "log/test_lag",
            "log/test_operations",
            "log/test_other_users",
            "log/test_staging",
            "log/test_start",
            "log/test_waiting",
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
    "truncated_anywhere_is_reported_or_whole",
    "the_next_run_goes_on[ENOSPC]",
    "harmless[HEAD]",
    "harmless[TAIL]",
    "leaves_no_log_and_is_completed",
    "or_none_and_goes_on[kill-True",
    "or_none_and_goes_on[power cut-True",
    "or_none_and_goes_on[power cut-False-True",
    "a_reversed_history_begins",
    "as_many_backlogs_as_there_may_be",
    "a_flipped_bit_is_reported",
    "wal/test_crashes.py::test_any_operation_may_fail",
    "both_directions_agree",
    "every_rule_alone_and_together",
    "what_stays_is_what_was_written",
    "a_state_that_cannot_be_made_anew",
    "however_much_is_asked_for_at_a_time",
    "on_their_own_threads_lose",
    "at_any_moment_loses_and_repeats_nothing[0]",
    "at_any_moment_loses_and_repeats_nothing[2]",
    "a_snapshot_that_is_gone",
    "in_the_next_opening[1",
    "in_the_next_opening[2",
    "in_the_next_opening[4",
    "after_the_end[0-",
    "after_the_end[1-now",
    "after_the_end[2-state",
    "after_the_end[3-as_of",
    "after_the_end[3-outbox",
    "what_is_told_equals_what_arrived",
    "overtakes_jumps_if_that_is_wanted[None-0",
    "overtakes_jumps_if_that_is_wanted[executor0",
    "or_none_and_goes_on[kill-False-True",
    "or_none_and_goes_on[power cut-False-False",
    "races_with_commits_and_delivery[1",
    "races_with_commits_and_delivery[2",
    "races_with_commits_and_delivery[3",
    "a_paused_subscription_and_tells_it",
    "never_splits_a_record",
    "quantiles_equal",
    "readers_do_not_see_that",
    "a_block_of_rows_is",
    "in_one_slot_only",
    "leaves_the_log_whole[power",
    "expectations_are_judged",
    "pages_of_any_size",
    "what_is_out_of_the_ordinary",
    "many_threads_and_subscribers",
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

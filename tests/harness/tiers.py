"""Puts each test into a tier, and fails a test that does what its tier forbids.

fast
    No socket of the internet, no process, at most half a second of CPU. The datagram sockets by which a log wakes readers are no
    sockets of the internet.
wire
    Servers in this process, and at most two seconds of CPU.
process
    Everything else: crashes, forks, signals, commands, Spark, browsers.

`make fast`, `make wire` and `make process` run one tier each, and read only the files that have tests of it; `make test` runs all.
CPU time is judged where coverage is not measured, which makes tests dearer.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.scale import SCALE

__all__ = ["BUDGETS", "TABLE", "complaint", "tier_of", "tiers_in"]

BUDGETS: Final = {"fast": 0.5, "wire": 2.0}
"""Seconds of CPU that one test may use, in a commit's run on a quiet machine."""

NOISE: Final = 5.0
"""Times by which a test may exceed its budget: neighbours that share caches and cores make the same work dearer."""

TABLE: Final[dict[str, tuple[str, ...]]] = {
    "fast": ("tests/contracts[in-process]",),
    "wire": (
        "tests/attacks",
        "tests/contracts",
        "tests/flights/test_front.py",
        "tests/flights/test_pages.py::test_every_file_that_is_there_is_served",
        "tests/flights/test_watcher.py",
        "tests/harness/test_ports.py",
        "tests/tck/test_feed.py::TestRemoteFeedInDebugMode::test_every_rule",
        "tests/tck/test_feed.py::TestRemoteFeedOnUvloop::test_every_rule",
        "tests/tck/test_group_deliveries.py::TestRemoteDeliveriesInDebugMode::test_every_rule",
        "tests/tck/test_group_deliveries.py::TestRemoteDeliveriesOnUvloop::test_every_rule",
        "tests/test_pages.py::test_state_and_changes_meet_as_the_page_shows",
        "tests/test_views_page.py::test_the_policy_of_the_page_serves",
        "tests/transports/access/test_host_names.py",
        "tests/transports/browser/test_pages.py",
        "tests/transports/cli/test_append.py::test_lines_can_be_appended_at_a_server",
        "tests/transports/cli/test_append.py::test_what_a_server_refuses_is_said_in_one_line",
        "tests/transports/cli/test_backup.py::test_after_a_restore_each_kind_of_client_is_refused_by_name",
        "tests/transports/cli/test_consumers.py::test_each_consumer_of_a_log_is_a_line_of_top_and_of_stats",
        "tests/transports/cli/test_group.py",
        "tests/transports/cli/test_log.py::test_tail_takes_the_address_that_a_browser_shows",
        "tests/transports/cli/test_log.py::test_what_dir_is_and_what_it_is_not_is_said",
        "tests/transports/cli/test_program.py::test_no_server_is_told_in_one_line",
        "tests/transports/cli/test_schema.py",
        "tests/transports/cli/test_slot.py::test_a_damaged_journal_of_slots_is_told_by_a_server_that_follows_the_log",
        "tests/transports/cli/test_slot.py::test_slots_are_shown_by_a_server_that_follows_the_log",
        "tests/transports/cli/test_slot.py::test_slots_of_a_server_are_made_listed_moved_paused_and_dropped",
        "tests/transports/cli/test_slot.py::test_tail_acknowledges_nothing_that_is_not_printed",
        "tests/transports/cli/test_slot.py::test_tail_goes_on_at_the_place_of_a_slot_and_acknowledges_what_it_printed",
        "tests/transports/cli/test_tail.py",
        "tests/transports/cli/test_verify.py::test_stats_tell_of_a_directory_and_of_a_server",
        "tests/transports/cli/test_view.py::test_serve_narrows_what_every_client_sees",
        "tests/transports/cli/test_view.py::test_tail_shows_what_was_asked_for_from_a_directory_and_from_a_server",
        "tests/transports/client",
        "tests/transports/graphql/test_appending.py",
        "tests/transports/graphql/test_early.py::test_what_comes_before_the_acknowledgement_is_closed_with_4401",
        "tests/transports/graphql/test_groups.py",
        "tests/transports/graphql/test_pruned.py",
        "tests/transports/graphql/test_rows.py",
        "tests/transports/graphql/test_schemas.py",
        "tests/transports/graphql/test_slots.py",
        "tests/transports/graphql/test_starts.py",
        "tests/transports/graphql/test_state.py",
        "tests/transports/graphql/test_views.py",
        "tests/transports/http",
        "tests/transports/resp",
        "tests/transports/server",
        "tests/transports/operations/test_products.py",
        "tests/transports/sinks/test_apart.py::test_what_would_be_in_the_place_of_another_entity_type_is_refused",
        "tests/transports/sinks/test_cache_lies.py",
        "tests/transports/sinks/test_endpoint.py",
        "tests/transports/sinks/test_kafka.py::test_a_broker_that_is_not_there_is_tried_again",
        "tests/transports/sinks/test_kafka.py::test_an_opening_that_only_inspects_a_broker_that_is_away_raises_an_error_of_sinks",
        "tests/transports/sinks/test_lanes.py::test_a_webhook_has_several_connections_and_each_key_its_order",
        "tests/transports/sinks/test_leaving.py",
        "tests/transports/sinks/test_log_sinks.py::test_a_server_tells_of_each_sink_and_is_degraded_while_one_carries_nothing",
        "tests/transports/sinks/test_oauth.py",
        "tests/transports/sinks/test_refusals.py::test_an_entity_type_that_is_no_index_stops_itself_only",
        "tests/transports/sinks/test_restored.py",
        "tests/transports/sinks/test_search.py",
        "tests/transports/sinks/test_kafka_lies.py",
        "tests/transports/sinks/test_secrets.py::test_no_secret_is_told_by_anything",
        "tests/transports/sinks/test_sql_lies.py",
        "tests/transports/sinks/test_switch.py::test_a_webhook_is_told_in_body_and_header",
        "tests/transports/sinks/test_tls.py",
        "tests/transports/sinks/test_webhook.py",
        "tests/transports/sinks/test_webhook_trust.py",
        "tests/transports/tcp",
        "tests/transports/telemetry/test_append_figures.py",
        "tests/transports/telemetry/test_known.py",
        "tests/transports/telemetry/test_otel.py",
        "tests/transports/telemetry/test_prometheus.py",
        "tests/transports/test_avoidable_work.py::test_an_event_is_encoded_once_for_all_subscribers_with_one_view",
        "tests/transports/test_default_pool.py",
        "tests/transports/test_event_model.py",
        "tests/transports/test_every_transport.py",
        "tests/transports/test_groups.py",
        "tests/transports/test_operating.py::test_a_remote_subscriber_is_paused_resumed_and_reset_where_it_is_served",
        "tests/transports/test_order.py::test_remote_subscribers_see_what_one_in_the_process_sees_in_the_same_order",
        "tests/transports/test_restored.py",
        "tests/transports/test_rows.py::test_a_source_that_fails_is_named_and_a_client_goes_on_when_it_can_be_read_again",
        "tests/transports/test_rows.py::test_the_client_asks_again_over_lost_connections",
        "tests/transports/test_rows.py::test_the_client_asks_for_ranges_without_rows_as_often_as_it_likes",
        "tests/transports/test_rows.py::test_the_client_is_given_rows_in_place_of_a_gap",
        "tests/transports/test_rows.py::test_the_client_refuses_at_once_what_cannot_be_asked",
        "tests/transports/test_secrets.py::test_no_token_comes_out_anywhere",
        "tests/transports/test_slots.py",
        "tests/transports/test_snapshots.py::test_rows_are_objects_of_a_class_too",
        "tests/transports/test_snapshots.py::test_the_client_gives_rows_signals_and_changes_in_their_order",
        "tests/transports/test_snapshots.py::test_the_client_goes_on_in_a_snapshot_on_a_new_connection",
        "tests/transports/test_snapshots.py::test_the_client_may_want_the_rows_only",
        "tests/transports/test_tenants.py",
    ),
    "process": (
        "tests/attacks/test_descriptors.py::test_silent_connections_give_way_to_whoever_comes",
        "tests/attacks/test_descriptors.py::test_with_256_descriptors_and_1100_silent_connections_the_log_rolls_on",
        "tests/browser",
        "tests/clients",
        "tests/contracts[javascript]",
        "tests/crash",
        "tests/examples",
        "tests/flights/test_crew.py",
        "tests/flights/test_demo.py",
        "tests/flights/test_stream.py",
        "tests/flow/bridges/test_iterable.py::test_a_loop_that_was_not_left_when_the_interpreter_ends_keeps_it_from_nothing",
        "tests/flow/bridges/test_reactivex.py::test_importing_flow_does_not_import_reactivex",
        "tests/flow/test_forks.py",
        "tests/flow/test_interrupts.py::test_a_child_of_fork_begins_anew",
        "tests/flow/test_interrupts.py::test_in_another_interpreter_there_is_no_shield",
        "tests/harness/test_debugging.py::test_what_is_silent_without_debug_mode_is_an_error_in_the_suites_of_coroutines_only",
        "tests/harness/test_leftovers.py::test_a_test_that_leaves_something_behind_fails_and_says_what",
        "tests/harness/test_promises.py",
        "tests/history/test_history.py::test_no_promise_is_broken_while_processes_are_killed",
        "tests/interleaving/test_mistakes.py::test_a_mistake_in_a_hand_over_is_noticed",
        "tests/model/test_states.py::test_every_row_of_the_table_is_taken",
        "tests/mutants/planted/test_planted.py",
        "tests/publishers/commits/test_commit_threads.py::test_a_child_of_fork_waits_for_no_thread_of_its_parent",
        "tests/publishers/commits/test_label.py::test_a_forked_process_does_not_repeat_the_ids_of_its_parent",
        "tests/publishers/criteria/test_index.py::TestIndexAgainstPlainFilters::runTest",
        "tests/publishers/groups/test_group_faults.py::test_a_child_of_fork_writes_nothing",
        "tests/publishers/log/test_housekeeping.py::test_a_log_of_a_child_of_fork_is_synced_by_a_timer_of_the_child",
        "tests/publishers/log/test_other_users.py::test_an_older_and_a_newer_writer_do_not_both_write",
        "tests/publishers/log/test_other_users.py::test_another_user_reads_what_it_may_and_stops_nobody",
        "tests/publishers/log/test_staging.py::test_what_was_staged_when_a_process_was_killed_is_removed_by_the_next_opening",
        "tests/publishers/spark",
        "tests/publishers/test_forks.py",
        "tests/publishers/test_random_interrupts.py::test_a_program_that_is_interrupted_at_random_moments_has_a_good_log",
        "tests/publishers/wal/checks/test_verify.py::test_beside_a_writer_in_another_process_it_is_quiet",
        "tests/publishers/wal/disk/test_notify.py::test_the_socket_of_a_killed_reader_is_removed",
        "tests/publishers/wal/test_follower.py::test_a_follower_in_another_process_reads_the_same",
        "tests/servers",
        "tests/simulation/test_proof.py",
        "tests/soak",
        "tests/tck/test_names.py::test_flow_itself_needs_no_pytest",
        "tests/test_benchmarks.py::test_a_benchmark_of_spark_runs_and_leaves_its_figures",
        "tests/test_benchmarks.py::test_a_benchmark_runs_and_leaves_its_figures",
        "tests/test_facade.py::test_importing_it_imports_nothing_else",
        "tests/test_private_parts.py::test_tests_use_the_private_names_of_other_objects_ever_less",
        "tests/test_readme.py::test_the_commands_in_the_readme_do_what_they_say",
        "tests/test_readme.py::test_the_spark_program_in_the_readme_commits_each_micro_batch",
        "tests/test_wheel.py::test_what_is_not_of_the_repository_is_found_in_a_wheel",
        "tests/transports/cli/test_completion.py::test_bash_completes_commands_options_values_and_directories",
        "tests/transports/cli/test_group_afar.py",
        "tests/transports/cli/test_lines.py::test_a_server_writes_an_access_log_if_it_is_asked_to",
        "tests/transports/cli/test_lines.py::test_all_that_a_server_writes_to_standard_error_is_json",
        "tests/transports/cli/test_lines.py::test_each_error_of_a_command_is_json",
        "tests/transports/cli/test_log.py::test_a_served_store_follows_logs_that_come_and_go",
        "tests/transports/cli/test_policy.py::test_a_server_does_what_the_file_says_and_what_it_says_later",
        "tests/transports/cli/test_program.py::test_a_broken_pipe_is_quiet",
        "tests/transports/cli/test_program.py::test_a_command_without_its_standard_streams_ends_without_a_traceback",
        "tests/transports/cli/test_program.py::test_an_interrupt_before_and_after_the_command_is_quiet_too",
        "tests/transports/cli/test_program.py::test_any_letters_are_printed_in_any_locale",
        "tests/transports/cli/test_program.py::test_what_cannot_be_printed_at_the_end_is_told_by_the_exit_code",
        "tests/transports/cli/test_resp.py::test_an_operator_serves_the_redis_protocol_beside_the_other_port",
        "tests/transports/cli/test_serve.py",
        "tests/transports/cli/test_sinks.py",
        "tests/transports/cli/test_sources.py::test_a_server_gives_rows_of_the_table_and_of_the_module_that_its_command_line_names",
        "tests/transports/cli/test_tail.py::test_tail_is_interrupted_quietly",
        "tests/transports/cli/test_tail.py::test_tail_waits_for_its_server_says_where_and_goes_on_there",
        "tests/transports/cli/test_tail.py::test_without_another_attempt_a_stopping_server_ends_tail_with_one_line",
        "tests/transports/cli/test_tls.py::test_an_operator_serves_with_a_certificate_and_exchanges_it_while_it_runs",
        "tests/transports/cli/test_tokens.py",
        "tests/transports/cli/test_top.py",
        "tests/transports/http/test_graphql.py::test_nothing_else_needs_the_extra",
        "tests/transports/resp/test_grouping.py::test_redis_cli_reads_and_acknowledges",
        "tests/transports/resp/test_letting_in.py::test_redis_cli_shows_a_token",
        "tests/transports/server/test_logs.py::test_the_command_says_in_one_line_what_became_of_the_log",
        "tests/transports/server/test_uvicorn.py::test_importing_transports_needs_no_extra",
        "tests/transports/sinks/test_lease.py::test_one_process_of_a_host_holds_a_file_and_a_killed_one_leaves_it",
        "tests/transports/sinks/test_lease_race.py::test_two_that_are_killed_stopped_and_lied_to_leave_no_gap_and_repeat_one_batch_at_most",
        "tests/transports/telemetry/test_otel.py::test_nothing_of_it_is_imported_unless_it_is_used",
        "tests/transports/test_forks.py",
        "tests/transports/test_new_field.py",
        "tests/typing",
    ),
}
"""The tier of each test that is not fast, by folder, file or function; the longest entry counts, and in brackets it is of tests that
begin their parameters with that word."""

_TIERS: Final = {entry: tier for tier, entries in TABLE.items() for entry in entries}
_WIRE: Final = {"socket.bind": "bound a socket", "socket.connect": "connected a socket"}
_PROCESS: Final = {
    "subprocess.Popen": "started a process",
    "os.fork": "forked",
    "os.forkpty": "forked",
    "os.posix_spawn": "started a process",
    "os.exec": "became another program",
}


def tier_of(nodeid: str) -> str:
    """Returns the tier of a test, or of all tests of a file or folder that the table does not name."""
    place, _, parameters = nodeid.partition("[")
    face = f"[{parameters.rstrip(']').partition(':')[0]}]"
    while place not in _TIERS:
        place, mark, _ = place.rpartition("::" if "::" in place else "/")
        if not mark:
            return "fast"
    return _TIERS.get(place + face, _TIERS[place])


def tiers_in(path: str) -> set[str]:
    """Returns the tiers that tests of a file may have."""
    folder = f"{path.rpartition('/')[0]}["
    return {
        tier_of(path),
        *(tier for entry, tier in _TIERS.items() if entry.startswith((f"{path}::", folder))),
    }


def complaint(nodeid: str, deeds: dict[str, str], seconds: float) -> str | None:
    """Returns what a test did that its tier forbids, in one sentence; None if it did nothing of that kind.

    Args:
        nodeid: Of the test.
        deeds: What it did, by the tier that allows it.
        seconds: Of CPU, that it used.
    """
    tier = tier_of(nodeid)
    where = f"{nodeid.partition('[')[0]!r} in tests/harness/tiers.py"
    for wanted in ("process", "wire"):
        if wanted in deeds and tier != "process" and wanted != tier:
            return f"a {tier} test has {deeds[wanted]}: it belongs to the tier {wanted!r}, so enter {where}"
    if tier in BUDGETS and seconds > BUDGETS[tier] * NOISE:
        return (
            f"a {tier} test used {seconds:.1f} s of CPU and may use {BUDGETS[tier]} s ({NOISE:g} times as much on a busy machine):"
            f" make it smaller, or enter {where}"
        )
    return None


_SPENT: Final = pytest.StashKey[float]()
_deeds: dict[str, str] = {}


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event in _WIRE:
        if isinstance(args[1], tuple) and not _is_of_others():
            _deeds["wire"] = _WIRE[event]
    elif event in _PROCESS and not _is_of_others():
        _deeds["process"] = _PROCESS[event]


def _is_of_others() -> bool:
    """Returns whether no test did it: a finalizer of PySpark tells Java of an object that is gone, or a module looks around at its import."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("py4j.", "importlib._bootstrap")):
            return True
        frame = frame.f_back
    return False


def _seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def pytest_configure(config: pytest.Config) -> None:
    for tier in TABLE:
        config.addinivalue_line("markers", f"{tier}: of this tier, by tests/harness/tiers.py")
    sys.addaudithook(_hear)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Passes over files without tests of the one tier that is asked for (``-m fast``)."""
    wanted = config.option.markexpr
    if wanted not in TABLE or collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    return None if wanted in tiers_in(name) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(tier_of(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _deeds.clear()
    item.stash[_SPENT] = 0.0
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Counts the CPU time of the test itself; fixtures are shared."""
    began = _seconds()
    try:
        return (yield)
    finally:
        measured = item.config.pluginmanager.hasplugin("_cov") or SCALE > 1
        item.stash[_SPENT] = 0.0 if measured else _seconds() - began


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Judges the test when all of it has ended, so that what a tier forbids is told once, whoever caught it."""
    result = yield
    if told := complaint(item.nodeid, _deeds, item.stash[_SPENT]):
        pytest.fail(told, pytrace=False)
    return result

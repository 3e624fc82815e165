"""What test suites of change capture tend to leave out, and what every one of them has: where each is tested here.

The list is of places that must exist; what stood nowhere else is tested below.
"""

from pathlib import Path

import pytest

import flow
from publishers import Area, Criterion, Position
from publishers.model.change import Operation
from tests.publishers.support import Probe, everything, fill, opened, order

TESTS = Path(__file__).parent.parent

LEFT_OUT = {
    "lagging and resyncing over a small ring, and the switch back to LIVE, for random rings and stalls": (
        "publishers/test_invariants.py::test_thousands_of_switches_between_ring_and_wal_lose_and_repeat_nothing",
        "publishers/test_invariants.py::test_random_lives_over_small_rings",
    ),
    "a slow subscriber next to fast ones and a busy writer": (
        "publishers/test_costs.py::test_a_stuck_subscriber_slows_neither_the_writer_nor_the_others",
        "publishers/test_invariants.py::test_threads_of_every_kind_agree_with_the_log",
    ),
    "a delivery buffer smaller than one record": (
        "publishers/test_defects.py::test_d2_a_record_is_never_cut_short_by_a_limit",
    ),
    "trimming over the wrap": ("publishers/test_defects.py::test_d1_a_trimmed_ring_keeps_what_is_newer",),
    "a long backlog with a request for one inside on_next": (
        "publishers/test_defects.py::test_d4_a_backlog_read_with_request_inside_on_next",
    ),
    "demand of 0": (
        "publishers/test_costs.py::test_one_without_demand_is_not_woken_either",
        "transports/server/test_wire.py::test_zero_credits_bring_nothing_but_life",
    ),
    "a request out of contract": (
        "publishers/test_invariants.py::test_a_request_out_of_contract_ends_in_an_error",
        "transports/server/test_wire_endings.py::test_wrong_demand_ends_that_subscription_only",
    ),
    "pruned history": (
        "publishers/test_defects.py::test_d5_a_start_below_the_oldest_segment_is_told",
        "publishers/test_defects.py::test_d5_a_subscriber_that_retention_overtakes_is_told",
    ),
    "an executor of many threads under the core": (
        "publishers/log/test_feed.py::test_on_an_executor_signals_are_serial",
        "publishers/test_defects.py::test_d9_demand_and_visible_changes_never_rest_together",
        "publishers/log/test_process_events.py::test_events_follow_their_cause_on_an_executor_of_many_threads",
    ),
    "random reads of a ring with trims in between, and several changes in one chunk": (
        "publishers/fanout/test_ring.py::test_a_ring_equals_a_list_for_any_bound_and_any_order_of_polls",
    ),
    "WebSocket clients that break the protocol": (
        "transports/server/test_wire_endings.py::test_a_broken_message_closes_that_connection_and_no_other",
        "transports/server/test_wire_endings.py::test_subscribe_before_init_4401_and_no_init_4408",
        "transports/server/test_graphql_driver.py::test_what_breaks_the_protocol_is_closed_with_its_code",
        "transports/server/test_graphql_driver.py::test_a_long_id_in_use_is_closed_with_4409_and_a_reason_that_fits",
        "transports/graphql/test_early.py::test_what_comes_before_the_acknowledgement_is_closed_with_4401",
    ),
    "slow WebSocket clients": (
        "transports/server/test_wire_endings.py::test_one_stalled_client_is_cut_off_and_its_neighbours_go_on",
        "transports/server/test_graphql_pace.py::test_a_reader_that_stood_still_gets_everything_later",
    ),
    "cancelling over WebSocket": (
        "transports/server/test_wire.py::test_cancel_while_blocked_releases_and_falls_silent",
        "transports/server/test_graphql_driver.py::test_after_a_complete_nothing_comes_and_the_id_is_free",
    ),
    "a benchmark": ("test_benchmarks.py",),
}
ALWAYS_THERE = {
    "a ring that is empty, half full, full and wrapped": (
        "publishers/test_blind_spots.py::test_subscribers_with_different_starts_share_a_ring_however_full_it_is",
    ),
    "a ring is emptied when all have read": (
        "publishers/fanout/test_ring.py::test_what_every_live_cursor_has_taken_leaves_the_ring",
    ),
    "unregistering by a known and an unknown id": (
        "publishers/test_leaving.py::test_unsubscribing_by_id_answers_whether_there_was_one",
    ),
    "nothing is delivered while publishing is off": (
        "publishers/test_leaving.py::test_without_publishing_subscribing_fails_and_commits_are_not_matched",
    ),
    "history in both directions agrees": (
        "publishers/log/test_history.py::test_both_directions_agree_in_pages_of_any_size",
    ),
    "events of the process only to those who asked, and not replayed": (
        "publishers/log/test_process_events.py::test_events_of_this_process_are_told_to_those_who_name_the_area",
    ),
    "exactly one schema change of a transaction that tells one": (
        "publishers/test_blind_spots.py::test_a_transaction_tells_a_schema_once_whatever_it_writes_with_it",
    ),
    "terminal signals exactly once under races": (
        "publishers/log/test_changelog.py::test_close_against_commits_and_subscribes_ends_each_subscription_once",
        "publishers/test_leaving.py::test_who_subscribes_while_the_log_ends_gets_one_terminal_signal",
    ),
    "heartbeats: index, floor and ceiling": (
        "transports/protocol/test_server.py::test_the_period_of_heartbeats_comes_from_the_timeouts",
        "transports/protocol/test_server.py::test_checkpoints_are_due_by_heartbeat_resync_and_change_of_state",
    ),
}


@pytest.mark.parametrize("what", [*LEFT_OUT, *ALWAYS_THERE])
def test_it_is_tested(what):
    for place in (LEFT_OUT | ALWAYS_THERE)[what]:
        path, _, name = place.partition("::")
        text = (TESTS / path).read_text()
        assert not name or f"def {name}(" in text, f"{what}: {place} has moved"


@pytest.mark.parametrize("versions", [0, 2, 4, 5, 9, 40])
def test_subscribers_with_different_starts_share_a_ring_however_full_it_is(versions):
    """D1, E9, E4: starts at every position, over a ring of eight that is empty, half full, full, wrapped once and often.

    All get exactly the rest, and what comes then, from one publisher.
    """
    with opened(ring_events=8) as log:
        behind, asleep = Probe(), Probe()
        for probe in (behind, asleep):
            log.changes().subscribe(probe, executor=flow.INLINE)
        for version in range(1, versions + 1):
            if version > 4:
                behind.request(2)  # so the ring stays full
            fill(log, 1)
        assert log.statistics().publishers[0].ring.events == min(8, 2 * versions)
        starts = [None, log.head, *everything(log)]
        probes = [Probe(first=10**6) for _ in starts]
        for probe, start in zip(probes, starts, strict=True):
            log.changes(since=start).subscribe(probe, executor=flow.INLINE)
        assert len(log.statistics().publishers) == 1
        fill(log, 2)
        whole = everything(log)
        for probe, start in zip(probes, starts, strict=True):
            expected = [position for position in whole if position >= (start or Position(versions + 1))]
            probe.wait_for(len(expected))
            assert probe.positions == expected
            assert probe.clean
        for probe in (behind, asleep):
            probe.request(10**6)
            probe.wait_for(len(whole))
            assert probe.positions == whole


def test_a_transaction_tells_a_schema_once_whatever_it_writes_with_it(log):
    """F9: one change of area SCHEMA, in its place, also for who asks for nothing else."""
    schemas, whole = Probe(first=99), Probe(first=99)
    log.changes(Criterion(areas={Area.SCHEMA})).subscribe(schemas, executor=flow.INLINE)
    log.changes().subscribe(whole, executor=flow.INLINE)
    for version in range(1, 4):
        with log.transaction() as tx:
            tx.upsert("item", "1", {})
            tx.schema("order", {"version": version})
            for number in range(3):
                tx.upsert("order", str(number), {})
        log.commit([order(1), order(2)])
    assert schemas.positions == [(1, 2), (3, 2), (5, 2)]
    told = [change for change in whole.changes if change.area is Area.SCHEMA]
    assert [change.position for change in told] == schemas.positions
    assert {change.operation for change in told} == {Operation.UPSERT}
    stamps = [
        change.schema_version for change in whole.changes if change.entity_type == "order" and change.key
    ]
    assert [stamp for stamp in stamps if stamp is not None] == sorted(
        stamp for stamp in stamps if stamp is not None
    )

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_flights.plan import IN_PROCESS, SLOW, SUBSCRIBERS, WEBSOCKET, DemoPlan
from publishers.options import LogOptions

EVENTS = st.integers(1, 2_000_000)


def plan(events):
    return DemoPlan(events, Path("var"))


@given(EVENTS)
def test_batches_hold_all_events_and_only_the_first_and_the_last_may_be_smaller(events):
    made = plan(events)
    rest = events - made.first_events
    assert (made.batches - 2) * made.batch_events < rest <= (made.batches - 1) * made.batch_events
    assert 1 <= made.first_events <= made.batch_events <= 100_000


@given(EVENTS)
def test_the_bounds_are_options_that_a_log_accepts_and_a_ring_holds_two_batches(events):
    made = plan(events)
    options = LogOptions(**made.log_options)
    assert options.ring_events == 2 * made.batch_events
    assert options.retain_bytes is None
    assert options.spool_bytes > made.batch_events * 1024


@pytest.mark.parametrize(("events", "batches"), [(1_000_898, 13), (30_000, 12), (20_000, 12), (5, 5), (1, 1)])
def test_a_run_has_a_dozen_batches_or_more_if_it_can(events, batches):
    assert plan(events).batches == batches
    assert plan(events).overtakes == (batches >= 6)


@given(EVENTS)
def test_the_slow_one_needs_many_requests(events):
    assert 1 <= plan(events).slow_step <= max(1, events // 60)


def test_subscribers_keep_their_places_apart():
    made = plan(10)
    assert len({made.place(one) for one in SUBSCRIBERS} | {made.result, made.log, made.checkpoint}) == 6


def test_what_is_wanted_is_said_twice_and_means_the_same():
    assert WEBSOCKET.criterion.to_json() == {"entity_types": ["flight"], "key_globs": ["*/JFK"]}
    assert WEBSOCKET.where == "origin = 'JFK'"
    assert IN_PROCESS.criterion == SLOW.criterion
    assert IN_PROCESS.where is SLOW.where is None

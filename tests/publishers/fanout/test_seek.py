"""Subscriptions that are moved to another position."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned, InvalidOption, PositionAhead
from publishers import Criterion, Position
from tests.harness.scale import scaled
from tests.publishers.movement import RETAIN, BatchMover, Mover, caught_up, prune
from tests.publishers.support import (
    ManualExecutor,
    Probe,
    chance,
    everything,
    fill,
    in_threads,
    opened,
    order,
    wait_until,
)


@given(st.data())
@settings(max_examples=scaled(40))
def test_after_any_seek_the_stream_is_that_of_a_fresh_subscription(data):
    """F62: random seeks, LIVE and in RESYNC, over rings from one change on."""
    draw = data.draw
    ring = draw(st.sampled_from([1, 2, 5, 1000]))
    wishes = draw(st.sampled_from([[], [Criterion(keys={"1"})]]))
    kind = draw(st.sampled_from([Mover, BatchMover]))
    executor = draw(st.sampled_from([flow.INLINE, None]))
    with opened(ring_events=ring, frame_bytes=1024, batch_events=draw(st.sampled_from([1, 3, 100]))) as log:
        probe = kind(first=3)
        log.changes(*wishes).subscribe(probe, executor=executor)
        wait_until(lambda: probe.subscription)
        for number in range(draw(st.integers(1, 8))):
            for _ in range(draw(st.integers(0, 3))):
                log.commit([order(n) for n in range(draw(st.sampled_from([0, 1, 3, 40])))])
            probe.request(draw(st.sampled_from([1, 2, 10])))
            place = draw(st.sampled_from([*everything(log), log.head]))
            probe.subscription.seek(place)
            wait_until(lambda number=number: len(probe.sought) == number + 1, probe.state)
            assert probe.sought[-1] == place
        probe.request(10**6)
        caught_up(probe, log)
        assert probe.since == [position for position in everything(log, *wishes) if position >= place]
        fill(log, 2)
        caught_up(probe, log)
        assert probe.since == [position for position in everything(log, *wishes) if position >= place]
        assert probe.clean


@pytest.mark.parametrize("ring", [1, 1000])
def test_a_seek_inside_on_next_comes_before_the_next_change(ring):
    """F62: what was pulled with that change is dropped, and its demand stays."""
    with opened(ring_events=ring) as log:
        fill(log, 10)
        stream = everything(log)

        class Rewinding(Probe):
            def take(self, change):
                super().take(change)
                if len(self.positions) == 7:
                    self.subscription.seek(Position(2))
                if len(self.positions) == 12:
                    self.subscription.seek(log.head)

        probe = Rewinding(first=100)
        log.changes(since="earliest").subscribe(probe, executor=flow.INLINE)
        probe.wait_for(12)
        caught_up(probe, log)
        assert probe.positions == [*stream[:7], *stream[2:7]]
        assert probe.subscription.demand == 100 - 12
        fill(log, 1)
        probe.wait_for(14)
        assert probe.positions[12:] == [Position(11, 0), Position(11, 1)]
        assert probe.clean


def test_a_seek_without_demand_moves_and_delivers_nothing():
    """F62."""
    with opened() as log:
        fill(log, 5)
        probe = Mover()
        log.changes().subscribe(probe, executor=flow.INLINE)
        probe.subscription.seek(Position(3, 1))
        assert probe.subscription.position == Position(3, 1)
        assert probe.sought == [Position(3, 1)]
        assert probe.positions == []
        probe.request(1)
        probe.wait_for(1)
        assert probe.positions == [Position(3, 1)]


def test_what_is_queued_is_dropped_and_the_last_seek_counts():
    """F62: while nothing of it has been served yet."""
    with opened() as log:
        executor = ManualExecutor()
        probe = Mover(first=4)
        log.changes().subscribe(probe, executor=executor)
        executor.run_all()
        fill(log, 6)
        for place in (Position(6), Position(1), Position(4, 1)):
            probe.subscription.seek(place)
        executor.run_all()
        wait_until(lambda: executor.run_all() or len(probe.positions) == 4, probe.state)
        assert probe.sought == [Position(4, 1)]
        assert probe.positions == [(4, 1), (5, 0), (5, 1), (6, 0)]


def test_a_place_that_cannot_be_read_is_refused_and_nothing_moves():
    """F62, E37."""
    with opened(**RETAIN) as log:
        probe = Probe(first=1)
        log.changes().subscribe(probe, executor=flow.INLINE)
        prune(log)
        where = probe.subscription.position
        with pytest.raises(HistoryPruned):
            probe.subscription.seek(Position(1))
        with pytest.raises(PositionAhead):
            probe.subscription.seek(Position(10**9))
        assert probe.subscription.position == where


@pytest.mark.parametrize("place", [1, "1:0", None, (1, 0)])
def test_what_is_no_position_is_refused_and_nothing_moves(log, place):
    """F62: an error that tells where positions come from."""
    fill(log, 2)
    probe = Probe(first=1)
    log.changes(since=1).subscribe(probe, executor=flow.INLINE)
    for ask in (probe.subscription.seek, log.token):
        with pytest.raises(InvalidOption, match=r"position is .* log\.position_of"):
            ask(place)
    probe.subscription.request(3)
    wait_until(lambda: len(probe.positions) == 4)
    assert probe.positions == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_noting_behind_the_end_completes():
    """F62: the end that was asked for stays."""
    with opened() as log:
        fill(log, 3)
        probe = Probe()
        log.changes(since="earliest", until=2).subscribe(probe, executor=flow.INLINE)
        probe.subscription.seek(Position(3))
        probe.wait_for_end()
        assert probe.completed


@pytest.mark.parametrize("seed", range(4))
def test_seeks_from_another_thread_race_with_commits_and_delivery(seed):
    """F62: real threads; after the last seek the stream is that of a fresh subscription."""
    draw = chance(seed)
    with opened(ring_events=draw.choice([1, 4, 1000]), batch_events=draw.choice([1, 7, 100])) as log:
        fill(log, 5, 3)
        probe = draw.choice([Mover, BatchMover])(first=10**9)
        log.changes().subscribe(probe)
        wait_until(lambda: probe.subscription)
        places = []

        def seek():
            own = random.Random(seed)
            for _ in range(60):
                places.append(Position(own.randint(1, log.head.version), 0))
                probe.subscription.seek(places[-1])

        in_threads(seek, lambda: fill(log, 60, 3))
        wait_until(lambda: probe.sought and probe.sought[-1] == places[-1], probe.state)
        caught_up(probe, log)
        assert probe.since == [position for position in everything(log) if position >= places[-1]]
        assert probe.clean

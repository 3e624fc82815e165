"""Groups of subscribers on an event loop."""

import contextlib
import gc
import weakref

import pytest

import flow
from publishers import Criterion
from publishers.fanout.group import DeliveryGroup
from tests.harness.inside import service_of
from tests.publishers.fanout.test_group import company
from tests.publishers.support import (
    Probe,
    SteppedLoop,
    everything,
    fill,
    order,
)


def test_a_commit_wakes_a_loop_once_for_all_who_listen_there(log):
    """E29. Avoidable work, row 5: one call_soon_threadsafe for each loop and commit."""
    loops = [SteppedLoop(), SteppedLoop()]
    probes = [company(log, 100, executor=loop) for loop in loops]
    for loop in loops:
        loop.woken = 0
    fill(log, 1)
    assert [loop.woken for loop in loops] == [1, 1]
    fill(log, 1)
    assert [loop.woken for loop in loops] == [1, 1]
    for loop in loops:
        loop.run_all()
    for probe in (*probes[0], *probes[1]):
        assert probe.positions == everything(log)
        assert probe.clean
    fill(log, 1)
    assert [loop.woken for loop in loops] == [2, 2]


def test_an_event_loop_gets_its_turn_between_a_few_dozen_subscribers(log):
    """F66: neither a large company nor a writer that never rests keeps a loop."""
    loop = SteppedLoop()
    probes = company(log, 300, executor=loop)
    fill(log, 1)
    assert loop.run_one()
    served = sum(bool(probe.positions) for probe in probes)
    assert 0 < served <= 128
    fill(log, 1)
    loop.run_all()
    assert all(probe.positions == everything(log) for probe in probes)


@pytest.mark.parametrize("turns", range(4))
def test_one_whose_progress_is_asked_for_between_two_turns_of_a_round_is_served_all_the_same(log, turns):
    """F66: nobody but its group has a wake-up for it, and asking takes it away from its group."""
    loop = SteppedLoop()
    probes = company(log, 200, executor=loop)
    fill(log, 1)
    loop.run_all()
    fill(log, 1)
    for _ in range(turns):
        assert loop.run_one()
    for probe in probes:
        probe.subscription.checkpoint()
    loop.run_all()
    fill(log, 1)
    loop.run_all()
    assert all(probe.positions == everything(log) for probe in probes)


def test_companies_of_many_publishers_do_not_keep_a_loop_together(log):
    """F66."""
    loop = SteppedLoop()
    probes = []
    for number in range(20):
        for _ in range(20):
            probes.append(Probe(first=100))
            log.changes(Criterion(keys={"0", f"x{number}"})).subscribe(probes[-1], executor=loop)
    loop.run_all()
    fill(log, 1)
    assert loop.run_one()
    assert 0 < sum(bool(probe.positions) for probe in probes) <= 128
    loop.run_all()
    assert all(len(probe.positions) == 1 for probe in probes)


def test_a_writer_that_never_rests_does_not_keep_a_loop(log, monkeypatch):
    """F66: what is committed during a round is for a later turn."""
    loop = SteppedLoop()
    (probe,) = company(log, 1, executor=loop)
    serve = DeliveryGroup._serve
    left = list(range(200))

    def serving(*args):
        spent = serve(*args)
        if left:
            left.pop()
            fill(log, 1)
        return spent

    monkeypatch.setattr(DeliveryGroup, "_serve", serving)
    fill(log, 1)
    assert loop.run_one()
    assert len(left) >= 130
    loop.run_all()
    assert probe.positions == everything(log)


def test_what_is_shown_in_pieces_reaches_a_company_on_a_loop_in_order(log):
    """F28, E20."""
    loop = SteppedLoop()
    probes = company(log, 70, executor=loop)
    for _ in range(4):
        log.commit([order(1)], visible=False)
    log.publish(1)
    loop.run_one()
    log.publish(3)
    loop.run_one()
    assert not any(one.version > 3 for probe in probes for one in probe.positions)
    log.publish(4)
    loop.run_all()
    assert all(probe.positions == everything(log) for probe in probes)


@pytest.mark.parametrize("when", ["before the commit", "with a round scheduled", "in the middle"])
def test_a_loop_that_closes_ends_its_subscribers_and_harms_no_writer(log, when):
    """Invariants 9 and 10: nobody stays behind, whatever was scheduled there."""
    loop = SteppedLoop()
    gone, here = company(log, 200, executor=loop), company(log, 2)
    if when != "before the commit":
        fill(log, 1)
    if when == "in the middle":
        loop.run_one()
    loop.close()
    fill(log, 2)
    assert all(probe.positions == everything(log) for probe in here)
    assert all(isinstance(probe.error, RuntimeError) for probe in gone)
    assert all(probe.clean and probe.terminals == 1 for probe in gone)
    assert len(service_of(log).registry.subscriptions()) == 2
    (shared,) = service_of(log).registry.publishers()
    assert len(shared.groups) == 1
    executor = weakref.ref(flow.executors.loop_executor(loop))
    known = [weakref.ref(probe) for probe in gone]
    del gone, loop
    gc.collect()
    assert executor() is None
    assert not any(one() for one in known)


def test_what_is_raised_on_a_loop_leaves_nobody_of_the_company_behind(log):
    """Invariant 13: one who exits the process, on a loop that goes on."""

    class Bomb(Probe):
        def take(self, change):
            super().take(change)
            raise SystemExit

    loop = SteppedLoop()
    bombs = company(log, 1, kind=Bomb, executor=loop)
    others = company(log, 150, executor=loop)
    fill(log, 1)
    for _ in range(10):
        with contextlib.suppress(SystemExit):
            loop.run_all()
    assert bombs[0].subscription.ended
    assert all(probe.positions == everything(log) for probe in others)

"""F147: publishers with too many questions are detached: no commit waits for them, and their subscribers lose nothing."""

import asyncio
import contextlib
import threading
from itertools import pairwise

import pytest

import flow
from penstock_cdc.errors import TooCostly
from penstock_cdc.types import PublisherState
from publishers import Criterion, Where
from publishers.criteria.predicate import Predicate
from publishers.fanout import publish_gate, weights
from publishers.fanout.subscription import ChangeSubscription
from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark
from tests.harness.constants import set_bounds, set_constant
from tests.harness.inside import service_of
from tests.harness.scale import LONG, scaled
from tests.publishers import detaching
from tests.publishers.detaching import HEAVY, asking
from tests.publishers.support import Probe, everything, fill, opened, order, wait_until
from tests.publishers.test_invariants import chance


@contextlib.contextmanager
def event_loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def standings(log):
    return [one.state for one in log.statistics().publishers]


def test_a_wish_counts_the_questions_that_no_look_up_answers():
    with opened() as log:
        for wish, weight in (
            (Criterion(keys={"a", "b"}), 0),
            (Criterion(keys={"a"}, where=asking(9).where), 0),
            (Criterion(key_globs={"a*", "b*"}), 0),
            (Criterion(key_globs={"*?", "??"}), 2),
            (Criterion(key_patterns={"[ab]c", "[cd]c", "e.*"}), 2),
            (Criterion(key_patterns={"[ab]c"}, entity_types={"order", "item"}), 1),
            (Criterion(where=[Where("a", "EQ", 1), Where("b", "GT", 1)]), 0),
            (asking(5), 5),
            (asking(5, entity_types={"order", "item"}), 5),
        ):
            probe = Probe()
            log.changes(wish).subscribe(probe, executor=flow.INLINE)
            (told,) = log.statistics().publishers
            assert (told.weight, told.state) == (weight, PublisherState.ATTACHED), wish
            assert log.statistics().match_weight == log.statistics().attached_weight == weight
            probe.subscription.cancel()


def test_no_commit_asks_what_a_heavy_publisher_wants_to_know_and_its_subscribers_get_it_all():
    with opened(**HEAVY) as log:
        fill(log, 3, 2)
        live, early, late, ended = Probe(first=10**6), Probe(first=10**6), Probe(first=5), Probe(first=10**6)
        heavy = log.changes(asking(5), since=log.token(log.oldest))
        log.changes(asking(4)).subscribe(live)
        heavy.subscribe(early)
        heavy.subscribe(late)
        log.changes(asking(5), until=4).subscribe(ended)
        assert standings(log) == [PublisherState.ATTACHED, PublisherState.DETACHED]
        told = log.statistics()
        assert (told.detached_count, told.attached_weight, told.match_weight) == (1, 4, 9)
        fill(log, 3, 2)
        assert log.statistics().evaluations == 3
        early.wait_for(12)
        late.wait_for(5)
        assert early.positions == everything(log, asking(5))
        late.request(100)
        late.wait_for(12)
        assert late.positions == early.positions
        ended.wait_for(2)
        wait_until(lambda: ended.terminals == 1)
        assert not early.states, "it was never LIVE"
        live.wait_for(6)
    for probe in (early, late, live):
        wait_until(lambda probe=probe: probe.terminals == 1)
        assert probe.error is None


def test_who_begins_at_the_end_of_a_detached_publisher_hears_at_once_that_it_is_not_live():
    """F147: and not at the next commit only."""
    with opened(**HEAVY) as log:
        fill(log, 1)
        first, second = Probe(), Probe()
        for probe in (first, second):
            log.changes(asking(5)).subscribe(probe, executor=flow.INLINE)
            assert probe.subscription.state.value == "RESYNC"
        assert first.states == ["RESYNC"], "it was LIVE until its publisher was weighed"
        assert second.states == []


def test_what_a_detached_publisher_reads_is_read_on_no_event_loop(monkeypatch):
    """F147: one that serves everybody, with frames in memory or not; an attached one matches nothing twice."""
    threads, real = set(), Predicate.select

    def select(self, block):
        threads.add(threading.current_thread())
        return real(self, block)

    with opened(**HEAVY, batch_events=2) as log, event_loop() as loop:
        fill(log, 20, 3)
        probes = [Probe(first=1, each=1), Probe(first=10**6)]
        monkeypatch.setattr(Predicate, "select", select)
        for probe in probes:
            log.changes(asking(5), since=log.token(log.oldest)).subscribe(probe, executor=loop)
        assert standings(log) == [PublisherState.DETACHED]
        fill(log, 5, 3)
        for probe in probes:
            probe.wait_for(75)
        assert {thread.name.partition("-replay-")[1] for thread in threads} == {"-replay-"}
        monkeypatch.undo()
        assert probes[0].positions == probes[1].positions == everything(log, asking(5))


def test_who_finds_no_room_is_detached_and_attached_when_there_is_some():
    with opened(**HEAVY) as log:
        probes = [Probe(first=10**6) for _ in range(3)]
        for number, probe in enumerate(probes):
            log.changes(asking(3, areas={"DATA"}), Criterion(keys={f"{number}"})).subscribe(
                probe, executor=flow.INLINE
            )
        assert standings(log) == [PublisherState.ATTACHED, PublisherState.ATTACHED, PublisherState.DETACHED]
        fill(log, 3, 2)
        assert probes[2].subscription.state.value == "RESYNC"
        probes[0].subscription.cancel()
        before = len(everything(log, asking(3)))
        for round_ in range(1, 4):
            fill(log, 1, 2)
            probes[2].wait_for(before + 2 * round_)
        assert standings(log) == [PublisherState.ATTACHED, PublisherState.ATTACHED]
        assert probes[1].positions == probes[2].positions == everything(log, asking(3))
        wait_until(lambda: probes[2].subscription.state.value == "LIVE")
        assert log.statistics().attached_weight == 6


def test_one_that_asks_too_much_of_what_leads_to_it_is_detached_and_tried_again_later_and_later(monkeypatch):
    set_constant(monkeypatch, publish_gate, "_JUDGED", 20)
    set_constant(monkeypatch, weights, "_PAUSE", 8)
    with opened(**HEAVY) as log:
        hot, cold = Probe(first=10**6), Probe(first=10**6)
        wish = asking(9, keys={"0"})
        log.changes(wish).subscribe(hot, executor=flow.INLINE)
        log.changes(asking(9, keys={"never"})).subscribe(cold, executor=flow.INLINE)
        seen = []
        for _ in range(60):
            fill(log, 1, 1)
            seen.append(standings(log)[0])
            assert len(service_of(log).registry._index) == standings(log).count(PublisherState.ATTACHED)
        changed = [number for number, (one, other) in enumerate(pairwise(seen)) if one is not other]
        lengths = [second - first for first, second in zip(changed[::2], changed[1::2], strict=False)]
        assert standings(log)[1] is PublisherState.ATTACHED
        assert lengths == [8, 16]
        hot.wait_for(60)
        assert hot.positions == everything(log, wish)
        assert hot.clean


def test_one_that_has_left_while_it_was_matched_is_not_detached(log):
    probe = Probe(first=10)
    log.changes(asking(9, keys={"0"})).subscribe(probe, executor=flow.INLINE)
    fill(log, 1)
    registry = service_of(log).registry
    set_bounds(detach_weight=1)
    registry.snapshot(9)  # a commit is being matched
    probe.subscription.cancel()
    assert registry.detach_costly(1) == []
    assert (registry.weights.weight, registry.weights.detached) == (0, 0)


def test_beyond_the_bound_of_all_a_subscriber_is_refused_by_name_until_others_have_left():
    with opened(**HEAVY) as log:
        first, second, third = Probe(), Probe(), Probe()
        log.changes(asking(30)).subscribe(first, executor=flow.INLINE)
        log.changes(asking(11)).subscribe(second, executor=flow.INLINE)
        assert isinstance(second.error, TooCostly)
        assert (second.error.option, second.error.limit) == ("match_weight", 40)
        assert len(log.statistics().subscriptions) == 1
        log.changes(asking(30)).subscribe(third, executor=flow.INLINE)  # the same publisher
        for probe in (first, third):
            probe.subscription.cancel()
        assert log.statistics().match_weight == log.statistics().detached_count == 0
        log.changes(asking(40)).subscribe(fourth := Probe(), executor=flow.INLINE)
        assert fourth.error is None


def test_a_commit_wakes_none_of_those_that_are_detached_however_many_wait(monkeypatch):
    woken = []
    wake = ChangeSubscription.wake
    with opened(**HEAVY) as log:
        probes = [Probe(first=10**6) for _ in range(200)]
        for probe in probes:
            log.changes(asking(5)).subscribe(probe)
        fill(log, 1)
        for probe in probes:
            probe.wait_for(1)
        wait_until(lambda: len(service_of(log).waiting._behind) == 200)

        def noted(subscription):
            woken.append(threading.current_thread())
            wake(subscription)

        monkeypatch.setattr(ChangeSubscription, "wake", noted)
        fill(log, 1)
        for probe in probes:
            probe.wait_for(2)
        assert threading.current_thread() not in woken
        wait_until(lambda: len(service_of(log).waiting._behind) == 200)
        for probe in probes:
            probe.subscription.cancel()
        wait_until(lambda: not service_of(log).waiting._behind and not service_of(log).waiting._due)


def test_an_interrupt_before_the_replayer_is_told_costs_one_advance_at_most():
    waiting = WaitingList(Watermark(0))
    woken = []

    class Parked:
        detached = True
        ended = False

        def wake(self):
            woken.append(self)

    class Interrupted(list):
        def enlist(self, task):
            if not self:
                self.append("interrupted")
                raise KeyboardInterrupt
            self.append(task)

    replayer = Interrupted()
    waiting.add(Parked(), 0)
    with pytest.raises(KeyboardInterrupt):
        waiting.due(replayer)
    waiting._watermark.advance(1)
    waiting.due(replayer)
    waiting.due(replayer)
    assert replayer[1:] == [waiting]
    assert not waiting.replay()
    assert len(woken) == 1
    waiting.replay_stopped()


@pytest.mark.parametrize("loops", [False, True])
def test_commits_subscriptions_and_the_replayer_on_their_own_threads_lose_and_repeat_nothing(
    loops, monkeypatch
):
    """Nothing here is in step: writers, the replayer, executors of subscribers, and those who come and go."""
    set_constant(monkeypatch, publish_gate, "_JUDGED", 3)
    set_constant(monkeypatch, weights, "_PAUSE", 2)
    set_constant(monkeypatch, weights, "_LONGEST", 8)
    with opened(**HEAVY, ring_events=16, batch_events=5) as log:
        stop = threading.Event()

        def write():
            for number in range(scaled(150)):
                log.commit([order((number + shift) % 3) for shift in range(number % 4)])

        def come_and_go(seed):
            draw = chance(seed)
            while not stop.is_set():
                passing = Probe(first=draw.randrange(1, 20))
                log.changes(draw.choice(detaching.WISHES)).subscribe(passing, executor=flow.INLINE)
                passing.subscription.cancel()

        probes = [(Probe(first=1 + number, each=1), wish) for number, wish in enumerate(detaching.WISHES * 3)]
        with event_loop() as loop:
            for number, (probe, wish) in enumerate(probes):
                executor = loop if loops and number % 2 else None
                log.changes(wish, since=log.token(log.oldest)).subscribe(probe, executor=executor)
            threads = [threading.Thread(target=write) for _ in range(3)]
            threads += [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads[:3]:
                thread.join()
            stop.set()
            for thread in threads[3:]:
                thread.join()
            for probe, wish in probes:
                due = everything(log, wish)
                probe.wait_for(len(due), 60)
                assert probe.positions == due
                assert probe.clean


@pytest.mark.parametrize("seed", range(scaled(12) if LONG else 3))
def test_whoever_is_detached_and_attached_at_any_moment_loses_and_repeats_nothing(seed):
    """Among commits, joins, pauses and cancels; one after the other, and each as a seed draws it."""
    assert detaching.run(seed) > 5

"""Subscriptions that are served together."""

import gc
import weakref

import pytest

import flow
from publishers import Area, Content, Criterion, Position
from publishers.blocks.block import Block
from publishers.fanout.ring import Ring
from publishers.log.process_events import HostingSubscription
from publishers.store.store import ChangeStore
from tests.harness.inside import service_of
from tests.publishers.support import (
    QUICK,
    BatchProbe,
    ManualExecutor,
    Probe,
    SteppedLoop,
    everything,
    fill,
    opened,
    stalled,
)


def company(log, count, *, kind=Probe, first=10**9, executor=flow.INLINE, **options):
    """Several who want everything."""
    probes = [kind(first=first) for _ in range(count)]
    for probe in probes:
        log.changes(**options).subscribe(probe, executor=executor)
    if isinstance(executor, SteppedLoop):
        executor.run_all()
    return probes


def counted(monkeypatch, kind, *names):
    """Counts the calls of methods."""
    calls = dict.fromkeys(names, 0)

    def counting(name, original):
        def call(*args, **kwargs):
            calls[name] += 1
            return original(*args, **kwargs)

        return call

    for name in names:
        monkeypatch.setattr(kind, name, counting(name, getattr(kind, name)))
    return calls


def once(monkeypatch, kind, name, act, *, after=True):
    """Lets something happen at the first call of a method."""
    original = getattr(kind, name)
    left = [act]

    def call(*args, **kwargs):
        if left and not after:
            left.pop()()
        result = original(*args, **kwargs)
        if left and after:
            left.pop()()
        return result

    monkeypatch.setattr(kind, name, call)


# What they share.


def test_equal_views_get_one_and_the_same_batch_object(log):
    """E29: made once, whoever gets it."""
    probes = company(log, 3, kind=BatchProbe)
    others = company(log, 2, kind=BatchProbe, content=Content.BODY)
    fill(log, 1, 2)
    assert probes[0].batches[0] is probes[1].batches[0] is probes[2].batches[0]
    assert others[0].batches[0] is others[1].batches[0]
    assert others[0].batches[0] is not probes[0].batches[0]
    assert [len(one.batches) for one in (*probes, *others)] == [1] * 5
    assert others[0].batches[0].end == probes[0].batches[0].end == log.head


# What it costs.


def costs_of_a_commit(idle, executor, monkeypatch):
    with opened() as log, monkeypatch.context() as patch:
        company(log, idle, first=0, executor=executor)
        (probe,) = company(log, 1, executor=executor)
        fill(log, 1)
        if isinstance(executor, SteppedLoop):
            executor.run_all()
        ring = counted(patch, Ring, "poll", "link", "take", "standing", "groups")
        drain = counted(patch, flow.Drain, "signal", "lend", "deliver")
        fill(log, 10)
        if isinstance(executor, SteppedLoop):
            executor.run_all()
        assert probe.positions == everything(log)
        return ring | drain


@pytest.mark.parametrize("make", [lambda: flow.INLINE, SteppedLoop])
def test_who_has_no_demand_costs_a_commit_nothing(make, monkeypatch):
    """E32: calls of rings and drains are counted, beside one idle subscriber and beside a thousand."""
    few, many = (costs_of_a_commit(idle, make(), monkeypatch) for idle in (1, 1000))
    assert few == many


# Who is served by itself.


def test_one_who_asks_for_less_than_lies_ahead_gets_exactly_that(log):
    """F67: it lacks demand, and is left to its own drain."""
    greedy, modest = company(log, 1)[0], company(log, 1, first=3)[0]
    fill(log, 2, 4)
    assert greedy.positions == everything(log)
    assert modest.positions == everything(log)[:3]
    modest.request(4)
    assert modest.positions == everything(log)[:7]
    fill(log, 1, 4)
    modest.request(100)
    assert modest.positions == everything(log)
    fill(log, 1, 4)
    assert modest.positions == greedy.positions == everything(log)
    assert modest.clean


def test_one_who_wants_smaller_batches_gets_smaller_ones(log):
    """F65: the bounds of its batches hold in company."""
    plain, small = BatchProbe(first=100), BatchProbe(first=100)
    log.changes().subscribe(plain, executor=flow.INLINE)
    log.changes().subscribe(small, executor=flow.INLINE, batch_events=2)
    fill(log, 2, 4)
    assert [len(batch) for batch in plain.batches] == [5, 5]
    assert [len(batch) for batch in small.batches] == [2, 2, 1, 2, 2, 1]
    assert plain.positions == small.positions == everything(log)


def test_one_who_has_caught_up_from_the_log_is_served_with_the_others(log, monkeypatch):
    """E29: also if it never asked to be told of its state."""

    class Silent(Probe):
        on_state = None

    fill(log, 3)
    probe = Silent(first=10**6)
    log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
    probe.wait_for(6)
    fill(log, 1)
    probe.wait_for(8)
    calls = counted(monkeypatch, Ring, "poll", "take")
    fill(log, 1)
    assert calls == {"poll": 0, "take": 1}
    assert probe.positions == everything(log)


# What may come in between.


@pytest.mark.parametrize("make", [lambda: flow.INLINE, SteppedLoop])
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_during_a_round_reaches_everybody(log, monkeypatch, make, after):
    """Invariants 3 and 9: what was published between two steps of a round is found by the round, or by the commit."""
    executor = make()
    probes = company(log, 70, executor=executor)
    once(monkeypatch, Ring, "take", lambda: fill(log, 1), after=after)
    fill(log, 1)
    if isinstance(executor, SteppedLoop):
        executor.run_all()
    assert log.head == Position(3)
    for probe in probes:
        assert probe.positions == everything(log), probe.state()
        assert probe.clean


def test_a_subscriber_that_commits_inside_on_next_keeps_the_order_of_all(log):
    """Invariant 9, F66: re-entry."""

    class Author(Probe):
        def take(self, change):
            super().take(change)
            if change.index == 1 and change.version < 6:
                fill(log, 1)

    probes = [*company(log, 70), *company(log, 1, kind=Author), *company(log, 70), *company(log, 2, first=7)]
    fill(log, 1)
    for probe in probes:
        assert probe.positions == everything(log)[: probe.requested], probe.state()
        assert probe.clean
        assert probe.deepest == 1


def test_a_subscriber_that_brings_another_one_inside_on_next(log):
    """Invariant 4."""
    brought = []

    class Host(Probe):
        def take(self, change):
            super().take(change)
            if not brought:
                brought.append(company(log, 1)[0])
                fill(log, 1)

    probes = [*company(log, 2), *company(log, 1, kind=Host), *company(log, 2)]
    fill(log, 2)
    assert all(probe.positions == everything(log) for probe in probes)
    assert brought[0].positions == everything(log)[2:]


def test_one_who_is_cancelled_by_another_one_in_the_same_round_gets_nothing_more(log, monkeypatch):
    """F64: rule 3.12, and everything is let go of."""
    find = Ring._find

    def foes_first(ring, group, some, first):
        find(ring, group, some, first)
        for _, _, cursors, _ in some.waiting:
            cursors.sort(key=lambda one: one.owner.name != "Foe")

    monkeypatch.setattr(Ring, "_find", foes_first)

    class Foe(Probe):
        def take(self, change):
            super().take(change)
            for one in victims:
                one.subscription.cancel()
                had.setdefault(id(one), len(one.positions))

    had = {}
    victims, friends = company(log, 20), company(log, 2)
    (foe,) = company(log, 1, kind=Foe)
    gone = [weakref.ref(one) for one in victims]
    fill(log, 2)
    assert [len(one.positions) for one in victims] == [had[id(one)] for one in victims]
    assert set(had.values()) == {0}
    assert foe.positions == friends[0].positions == friends[1].positions == everything(log)
    assert len(service_of(log).registry.subscriptions()) == 3
    victims.clear()
    gc.collect()
    assert [one() for one in gone] == [None] * 20


@pytest.mark.parametrize("way", ["cancel", "raise"])
def test_the_position_of_one_who_ends_in_the_middle_passes_nothing_that_it_did_not_get(log, way):
    """F13, E20: whoever resumes there misses nothing."""
    flow.hooks.on_dropped_error, before = (lambda *_: None), flow.hooks.on_dropped_error

    class Quitter(Probe):
        def take(self, change):
            super().take(change)
            if change.index == 2:
                if way == "raise":
                    raise ValueError
                self.subscription.cancel()

    try:
        quitter, other = company(log, 1, kind=Quitter)[0], company(log, 1)[0]
        fill(log, 1, 5)
    finally:
        flow.hooks.on_dropped_error = before
    assert quitter.positions == other.positions[:3]
    assert quitter.subscription.position <= Position(1, 3)
    resumed = Probe(first=100)
    log.changes(since=quitter.subscription.position).subscribe(resumed, executor=flow.INLINE)
    resumed.wait_for(1)
    assert resumed.positions[0] <= Position(1, 3)


@pytest.mark.parametrize("kind", [Probe, BatchProbe])
@pytest.mark.parametrize("after", [False, True])
def test_one_who_seeks_while_a_round_has_its_flag_goes_on_there(log, monkeypatch, kind, after):
    """F13: nothing of the old place is delivered, its demand stays, and its position does not jump ahead."""
    fill(log, 2)
    seeker, other = company(log, 1, kind=kind, first=7)[0], company(log, 1)[0]
    seen = []
    settle = type(seeker.subscription)._settle
    monkeypatch.setattr(
        type(seeker.subscription),
        "_settle",
        lambda self, position: [
            seen.append(position) if self is seeker.subscription else None,
            settle(self, position),
        ],
    )
    once(monkeypatch, Ring, "take", lambda: seeker.subscription.seek(Position(1)), after=after)
    fill(log, 1)
    seeker.wait_for(6)
    assert seeker.positions == everything(log)
    assert other.positions == everything(log)[4:]
    assert seeker.subscription.demand == 1
    assert Position(1) in seen
    assert all(one <= Position(3) for one in seen[: seen.index(Position(1))])


def test_a_log_that_closes_inside_a_round_ends_everybody_once(log):
    """Invariant 11."""

    class Closer(Probe):
        def take(self, change):
            super().take(change)
            if change.index == 1:
                log.close()

    probes = [*company(log, 2), *company(log, 1, kind=Closer), *company(log, 2)]
    fill(log, 1)
    for probe in probes:
        assert len(probe.positions) == 2
        assert probe.completed
        assert probe.clean


def test_one_who_gets_events_of_the_process_gets_them_in_order_in_company(tmp_path, monkeypatch):
    """E51: an event is never told after what came later, and tells no version that has passed."""
    wanted = Criterion(areas={Area.INFRASTRUCTURE, Area.ENGINE, Area.HOST})
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        probes = [Probe(first=100) for _ in range(3)]
        for probe in probes:
            store.system.changes(wanted).subscribe(probe, executor=flow.INLINE)
        before = store.system.head.version
        late = []
        with monkeypatch.context() as patch:
            # It is put up, and whoever tells has come no further when the next change is committed.
            patch.setattr(HostingSubscription, "heed", lambda reader: late.extend([reader]))
            store.system.board.publish("x", "FIRST", {})
            store.create("orders")
        for one in late:
            one.heed()
        store.system.board.publish("x", "SECOND", {})
        once(monkeypatch, Ring, "take", lambda: store.system.board.publish("x", "THIRD", {}))
        store.create("items")
    for probe in probes:
        versions = [one.version for one in probe.changes]
        assert versions == sorted(versions)
        told = {(one.meta or {}).get("event"): place for place, one in enumerate(probe.changes)}
        assert told["FIRST"] < versions.index(before) < told["SECOND"] < told["THIRD"]
        assert probe.clean


# Loops that end.


def test_a_full_executor_takes_no_wake_up_from_its_company(log):
    """Invariant 10."""
    full = ManualExecutor(room=1)
    probes = company(log, 3, executor=full)
    for probe in probes:
        while probe.subscription is None:
            full.run_one()
    fill(log, 2)
    for probe in probes:
        while len(probe.positions) < 4:
            full.run_one()
    assert all(probe.positions == everything(log) for probe in probes)


def test_nobody_is_kept_by_what_was_taken_for_him(log):
    """F64: what a cursor has been given is not kept."""
    loop = SteppedLoop()
    probes = [*company(log, 70, executor=loop), *company(log, 3)]
    fill(log, 3)
    loop.run_all()
    (shared,) = service_of(log).registry.publishers()
    assert shared.ring.statistics().chunks == 0
    known = [weakref.ref(probe.subscription) for probe in probes]
    for probe in probes:
        probe.subscription.cancel()
        probe.subscription = None
    del shared, probe
    gc.collect()
    assert not any(one() for one in known)
    assert not service_of(log).registry.publishers()


def test_a_company_that_falls_behind_the_ring_comes_back(monkeypatch):
    """F65, invariant 6: evicted when a round was about to serve it."""
    with opened(ring_events=2) as log:
        probes = company(log, 3)
        once(monkeypatch, Ring, "take", lambda: fill(log, 4), after=False)
        fill(log, 1)
        for probe in probes:
            probe.wait_for(10)
            assert probe.positions == everything(log)
            assert probe.clean
        late = stalled(log, log.changes(), 2)
        late.request(100)
        late.wait_for(6)
        assert late.positions == everything(log)[-6:]


def test_a_change_that_cannot_be_shown_ends_those_whom_it_was_for_and_harms_no_writer(monkeypatch):
    """F37, as in a pull: whoever commits learns nothing of it, and whoever sees changes otherwise has them."""
    show = Block.changes

    def showing(block, indices, view):
        if block.version == 2 and view.content is Content.BODY:
            raise ValueError("cannot be shown")
        return show(block, indices, view)

    with opened() as log:
        broken = company(log, 3, content=Content.BODY)
        whole = company(log, 2)
        fill(log, 1)
        monkeypatch.setattr(Block, "changes", showing)
        fill(log, 2)
        for probe in broken:
            assert str(probe.error) == "cannot be shown"
            assert probe.positions == [Position(1, 0), Position(1, 1)]
            assert probe.subscription.position == Position(2)
            assert probe.clean
        for probe in whole:
            assert probe.positions == everything(log)
            assert probe.error is None
        assert len(log.statistics().subscriptions) == 2

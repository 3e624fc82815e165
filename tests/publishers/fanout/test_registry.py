"""Shared publishers: one for each criteria, from the first subscription to the last."""

import gc
import threading
import weakref

import pytest

import flow
from penstock_cdc.errors import InvalidOption
from publishers import Content, Criteria, Criterion, upsert
from publishers.criteria.index import MatchingIndex
from publishers.criteria.index_table import Table
from publishers.criteria.patterns import Pattern
from publishers.criteria.patterns import _Automaton as Automaton
from tests.harness.inside import lock_of, service_of
from tests.harness.scale import scaled
from tests.publishers.support import Probe, fill, in_threads, opened, wait_until


def publishers_of(log):
    return service_of(log).registry.publishers()


def test_equal_criteria_in_any_order_share_one_publisher_and_views_do_too(log):
    """F57, E8: N subscribers with shuffled wishes and both contents are one publisher, one ring, one evaluation."""
    one, two = Criterion(entity_types={"order"}), Criterion(keys={"1", "2"})
    probes = []
    for number in range(6):
        wishes = [one, two] if number % 2 else [two, one]
        content = Content.BODY if number % 3 else Content.HEADER
        probes.append(Probe(first=10))
        log.changes(*wishes, content=content).subscribe(probes[-1], executor=flow.INLINE)
    assert len(publishers_of(log)) == 1
    before = log.statistics().evaluations
    fill(log, 1)
    assert log.statistics().evaluations == before + 1
    for number, probe in enumerate(probes):
        assert [change.body for change in probe.changes] == [{"n": "0"} if number % 3 else None]


def test_a_publisher_lives_from_its_first_subscriber_to_its_last(log):
    """E17."""
    first, second = Probe(), Probe()
    feed = log.changes()
    assert not publishers_of(log)
    feed.subscribe(first, executor=flow.INLINE)
    feed.subscribe(second, executor=flow.INLINE)
    shared = weakref.ref(publishers_of(log)[0].ring)
    first.subscription.cancel()
    assert [one.ring for one in publishers_of(log)] == [shared()]
    second.subscription.cancel()
    assert not publishers_of(log)
    first.subscription = second.subscription = None
    gc.collect()
    assert shared() is None
    feed.subscribe(first, executor=flow.INLINE)
    assert len(publishers_of(log)) == 1


def test_publishers_are_listed_up_to_a_number_with_all_of_their_subscriptions_counted(log):
    """F147: what asks for statistics costs what it is answered."""
    wishes = [Criterion(keys={f"{number}"}) for number in range(3)]
    for wish in [*wishes, *wishes]:
        log.changes(wish).subscribe(Probe(), executor=flow.INLINE)
    registry = service_of(log).registry
    listed = registry.listed(None)
    assert [(count, len(some)) for _, count, some in listed] == [(2, 2)] * 3
    assert [(shared, count, len(some)) for shared, count, some in registry.listed(1)] == [
        (listed[0][0], 2, 1)
    ]
    assert all(registry.knows(shared.criteria) for shared, _, _ in listed)


def test_publishers_of_two_logs_never_mix():
    """E13."""
    with opened() as one, opened() as other:
        here, there = Probe(first=9), Probe(first=9)
        one.changes().subscribe(here, executor=flow.INLINE)
        other.changes().subscribe(there, executor=flow.INLINE)
        fill(one, 2)
        assert (len(here.positions), len(there.positions)) == (4, 0)
        assert publishers_of(one)[0] is not publishers_of(other)[0]


def test_ending_one_handle_ends_only_its_own_subscriber(log):
    """E47: two handles, one criteria."""
    first, second = Probe(first=9), Probe(first=9)
    log.changes().subscribe(first, executor=flow.INLINE)
    log.changes().subscribe(second, executor=flow.INLINE)
    fill(log, 1)
    first.subscription.cancel()
    fill(log, 1)
    assert (len(first.positions), len(second.positions)) == (2, 4)
    assert not second.terminals


def test_to_unregister_answers_whether_there_was_one(log):
    """E48, E42."""
    probe = Probe()
    log.changes().subscribe(probe, executor=flow.INLINE)
    registry = service_of(log).registry
    assert registry.remove(probe.subscription.shared, probe.subscription) is True
    assert registry.remove(probe.subscription.shared, probe.subscription) is False
    probe.subscription.cancel()
    assert registry.remove(probe.subscription.shared, probe.subscription) is False


def test_a_subscription_that_cannot_be_made_leaves_no_publisher(log):
    with pytest.raises(TypeError, match="executor"):
        log.changes().subscribe(Probe(), executor=object())
    with pytest.raises(TypeError, match=r"1\.9"):
        log.changes().subscribe(None)
    assert not publishers_of(log)


@pytest.mark.parametrize("where", ["on_subscribe", "on_next"])
@pytest.mark.parametrize("executor", [flow.INLINE, None])
def test_d12_cancel_inside_a_signal_leaves_no_registration(log, where, executor):
    """D12, E43: seen while the log is open, as closing it would take everybody off anyway."""

    class Reluctant(Probe):
        def on_subscribe(self, subscription, /):
            super().on_subscribe(subscription)
            if where == "on_subscribe":
                subscription.cancel()

        def take(self, change):
            super().take(change)
            self.subscription.cancel()

    probe = Reluctant(first=10)
    log.changes().subscribe(probe, executor=executor)
    fill(log, 1)
    wait_until(lambda: not publishers_of(log), probe.state)
    fill(log, 3)
    assert not publishers_of(log)
    log.close()
    assert probe.positions == ([] if where == "on_subscribe" else [(1, 0)])
    assert not probe.terminals


def test_d12_subscribe_against_the_last_cancel_never_meets_a_closed_publisher(log):
    """D12, E65: nobody gets an error, and everybody gets the commit that follows."""
    feed = log.changes(Criterion(entity_types={"order"}))
    rounds = scaled(400)

    def churn():
        for _ in range(rounds):
            probe = Probe(first=1000)
            feed.subscribe(probe, executor=flow.INLINE)
            version = log.commit([]).version + 1
            done = log.commit_columns([_one_order()]).version
            probe.wait_for(1)
            found = probe.positions[:]  # the others go on meanwhile
            assert found[0].version <= done, (probe.state(), version, done)
            assert found == sorted(set(found))
            probe.subscription.cancel()
            assert probe.clean
            assert not probe.terminals

    in_threads(churn, churn, churn)
    assert not publishers_of(log)


def _one_order():
    from publishers.mutations.mutation import columns_of
    from tests.publishers.support import order

    return columns_of([order(1)])


def test_a_subscription_is_found_where_the_snapshot_says():
    """Invariant 3: a publisher registered after the snapshot starts its ring behind what is being matched."""
    with opened() as log:
        fill(log, 3)
        registry = service_of(log).registry
        registry.snapshot(7)
        probe = Probe()
        log.changes(Criterion(keys={"x"})).subscribe(probe, executor=flow.INLINE)
        assert publishers_of(log)[0].ring.start == (8, 0)
        assert probe.subscription.state.value == "RESYNC"
        registry.snapshot(3)


def test_many_threads_share_and_release_exactly():
    with opened() as log:
        wishes = [Criteria.of(Criterion(keys={str(n)})) for n in range(3)]
        gate = threading.Barrier(4)

        def churn(offset):
            gate.wait()
            for number in range(scaled(200)):
                probe = Probe()
                log.changes(wishes[(number + offset) % 3]).subscribe(probe, executor=flow.INLINE)
                probe.subscription.cancel()

        in_threads(*(lambda offset=offset: churn(offset) for offset in range(4)))
        assert not publishers_of(log)


def test_who_comes_and_goes_while_something_is_matched_is_counted_in_before_the_next_commit(log):
    """E18, invariant 3: the index of a commit that is being matched is left alone, and the next one knows everybody."""
    registry = service_of(log).registry
    fill(log, 1)
    early = Probe(first=99)
    log.changes(Criterion(keys={"early"})).subscribe(early, executor=flow.INLINE)
    index = registry.snapshot(2)
    late = Probe(first=99)
    log.changes(Criterion(keys={"0"})).subscribe(late, executor=flow.INLINE)
    early.subscription.cancel()
    assert len(index) == 1
    assert registry.snapshot(1) is index
    assert [shared.criteria for shared in publishers_of(log)] == [Criteria.of(Criterion(keys={"0"}))]
    assert len(index) == 1
    fill(log, 1)
    late.wait_for(1)
    late.subscription.cancel()
    assert not index


@pytest.mark.parametrize("what", ["1", 1.0, None, True])
def test_what_is_no_id_is_refused_and_an_unknown_one_finds_nobody(log, what):
    """F63."""
    registry = service_of(log).registry
    with pytest.raises(InvalidOption, match="subscription_id"):
        registry.find(what)
    probe = Probe()
    log.changes().subscribe(probe, executor=flow.INLINE)
    one = probe.subscription
    assert registry.find(one.id) is one
    assert registry.find(one.id + 1) is None
    one.cancel()
    assert registry.find(one.id) is None


class Steps:
    """Counts what is done to the index, and whether the lock of the registry is held meanwhile; one entry a hold."""

    def __init__(self, registry, monkeypatch):
        self.outside = 0
        self.holds = []
        lock, steps = lock_of(registry), self

        class Counting:
            def __enter__(self):
                lock.acquire()
                steps.holds.append(0)
                return True

            def __exit__(self, *_):
                lock.release()

        registry._lock = Counting()

        def counted(kind, name):
            original = getattr(kind, name)

            def step(*given):
                if lock.locked():
                    steps.holds[-1] += 1
                else:
                    steps.outside += 1
                return original(*given)

            monkeypatch.setattr(kind, name, step)

        counted(Table, "put")
        counted(Table, "drop")
        for name in ("enter", "retire"):
            counted(MatchingIndex, name)
        counted(Pattern, "__init__")
        counted(Automaton, "__init__")

    @property
    def most(self):
        return max(self.holds)


def _of_keys(count):
    return [
        Criterion(keys={f"{first}/{n}" for n in range(first, min(first + 10_000, count))})
        for first in range(0, count, 10_000)
    ]


@pytest.mark.parametrize(("keys", "most"), [(1, 3), (256, 258), (257, 2), (100_000, 2)])
def test_the_lock_is_held_for_a_bounded_number_of_steps_however_many_keys_a_wish_has(
    keys, most, log, monkeypatch
):
    """F147: for those who come, those who come to what is there, and those who go; the rest is done without the lock."""
    steps = Steps(service_of(log).registry, monkeypatch)
    feed, probes = log.changes(*_of_keys(keys)), [Probe(first=99), Probe(first=99)]
    for probe in probes:
        feed.subscribe(probe, executor=flow.INLINE)
    version = log.commit([upsert("order", "0/0", {})]).version
    assert [probe.positions for probe in probes] == [[(version, 1)]] * 2
    assert steps.outside == (keys if keys > 256 else 0)
    for probe in probes:
        probe.subscription.cancel()
    assert 0 < steps.most <= most
    assert not service_of(log).registry._index


def test_patterns_are_never_made_under_the_lock(log, monkeypatch):
    """F147: neither by those who subscribe, nor by those who cancel, nor by the commit that enters what has waited."""
    registry = service_of(log).registry
    feeds = [
        log.changes(Criterion(key_patterns={f"never{n}-[a-z]+b{{{n},200}}", f".*never{n}"})) for n in range(9)
    ]
    Pattern.of.cache_clear()  # as if many others had come meanwhile
    steps = Steps(registry, monkeypatch)
    registry.snapshot(5)  # a commit is being matched
    probes = [Probe() for _ in feeds]
    for feed, probe in zip(feeds, probes, strict=True):
        feed.subscribe(probe, executor=flow.INLINE)
    registry.snapshot(0)
    assert steps.outside == 36
    for probe in probes:
        probe.subscription.cancel()
    assert steps.outside == 36
    assert steps.most == 9 * 4  # a head, a scan, and two to enter what was not there, each


def test_what_piles_up_while_a_commit_is_matched_is_entered_and_dropped_in_bounded_steps(log, monkeypatch):
    """F147: hundreds of subscriptions of 200 keys come and go meanwhile; no commit pays for all of them."""
    registry = service_of(log).registry
    healthy = Probe(first=99)
    log.changes(Criterion(keys={"mine"})).subscribe(healthy, executor=flow.INLINE)
    steps = Steps(registry, monkeypatch)
    crowd = [Probe(first=9) for _ in range(300)]
    registry.snapshot(1)
    for number, probe in enumerate(crowd):
        wish = Criterion(keys={f"{number}/{n}" for n in range(200)})
        log.changes(wish).subscribe(probe, executor=flow.INLINE)
    registry.snapshot(0)
    assert steps.most <= 4_096 + 256 + 2 * 300
    version = log.commit(
        [upsert("order", "7/7", {}), upsert("order", "277/7", {}), upsert("order", "mine", {})]
    ).version
    for probe in (crowd[7], crowd[277]):
        probe.wait_for(1)  # their rings begin behind what was said to be matched
    assert crowd[7].positions == [(version, 1)]
    assert crowd[277].positions == [(version, 2)]
    late = [Probe(first=9) for _ in range(60)]
    for number, probe in enumerate(late):
        wish = Criterion(keys={f"late {number}/{n}" for n in range(200)})
        log.changes(wish).subscribe(probe, executor=flow.INLINE)
    assert steps.outside > 50_000
    registry.snapshot(version + 1)
    for probe in (*crowd, *late):
        probe.subscription.cancel()
    steps.holds.clear()
    registry.snapshot(version)
    assert steps.most <= 4_096 + 256 + 360
    commits = 0
    while registry._index.leaving:
        log.commit([upsert("order", "mine", {})])
        commits += 1
    assert 1 < commits < 20
    assert len(registry._index) == 1
    assert len(healthy.positions) == commits + 1

"""What subscribers were given, and how far behind each of them is."""

from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.executors import INLINE
from penstock_cdc.mutations import schema
from publishers import Area, ChangeLog, Content, Criterion, Position, truncate
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.fanout.counters import DeliveryCounters
from publishers.model.change import Operation
from publishers.wal import Column, Columns
from tests.publishers.support import QUICK, BatchProbe, Probe, fill, opened, order, wait_until

KINDS = [
    Area.DATA * 16 + Operation.UPSERT,
    Area.DATA * 16 + Operation.REMOVE,
    Area.SCHEMA * 16 + Operation.UPSERT,
]


def block(kinds, types, names):
    count = len(kinds)
    columns = Columns(
        memoryview(bytes(kinds)),
        tuple(names),
        None if types is None else memoryview(array("H", types)),
        Column.of([b"k"] * count),
        *[None] * 4,
    )
    return Block(
        columns,
        version=3,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=count + 1,
        transaction_bytes=0,
        committed_at=0,
    )


@given(st.data())
def test_a_tally_counts_each_change_once(data):
    """E63: by area and entity type, for ranges and for lists, with one type and with several."""
    names = data.draw(st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=3, unique=True))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
    types = None
    if len(names) > 1:
        types = data.draw(st.lists(st.integers(0, len(names) - 1), min_size=len(kinds), max_size=len(kinds)))
    made = block(kinds, types, names)
    chosen = made.indices
    if data.draw(st.booleans()):
        chosen = sorted(data.draw(st.sets(st.sampled_from(list(chosen)))))
    else:
        chosen = chosen[data.draw(st.integers(0, 3)) :]
    wanted = Counter(
        (made.area(index), made.entity_type(index)) if index else (Area.INFRASTRUCTURE, None)
        for index in chosen
    )
    assert Slice(made, chosen).tally == wanted


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 3))),
    st.integers(0, 9),
)
def test_counts_equal_a_model_and_types_are_bounded(deliveries, most):
    """E63, F68: the first types are counted one by one, the others together, and the sum is right."""
    counted = DeliveryCounters(most)
    areas, types = Counter(), Counter()
    for numbers, times in deliveries:
        part = Slice(block([KINDS[0]] * len(numbers), numbers, map(str, range(31))), range(len(numbers) + 1))
        counted.count([part], times)
        areas["INFRASTRUCTURE"] += times
        areas["DATA"] += times * len(numbers)
        types.update({str(number): times * numbers.count(number) for number in set(numbers)})
        assert len(part.tally) <= max(most + len(Area), 2)
    told = counted.statistics()
    assert told.changes == areas.total()
    assert {name: count for name, count in told.areas.items() if count} == +areas
    assert len(told.entity_types) <= most
    assert all(types[name] == count for name, count in told.entity_types.items())
    assert sum(told.entity_types.values()) + told.other_types == types.total()


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_told_equals_what_arrived(data):
    """E63: LIVE and RESYNC, alone and in company, in batches and one by one."""
    with opened(ring_events=6, ring_bytes=4096, counted_types=2) as log:
        probes = []
        wishes = [(), (Criterion(entity_types={"b"}),), (Criterion(areas={Area.DATA}),)]
        for _ in range(data.draw(st.integers(1, 5))):
            probe = data.draw(st.sampled_from([Probe, BatchProbe]))(
                data.draw(st.sampled_from([0, 3, 10_000]))
            )
            where = data.draw(st.sampled_from([INLINE, None]))
            feed = log.changes(
                *data.draw(st.sampled_from(wishes)), since=data.draw(st.sampled_from([None, "earliest"]))
            )
            feed.subscribe(probe, executor=where)
            probes.append(probe)
        for _ in range(data.draw(st.integers(0, 8))):
            kinds = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
            log.commit(
                [schema(kinds[0], {}), *(order(n, kind) for n, kind in enumerate(kinds)), truncate("c")]
            )
        for probe in probes:
            wait_until(lambda probe=probe: probe.subscription is not None)
            probe.request(10_000)
        wait_until(lambda: all(probe.subscription.checkpoint().position == log.head for probe in probes))
        told = log.statistics()
        arrived = [change for probe in probes for change in probe.changes]
        wait_until(lambda: log.statistics().delivered.changes == sum(len(probe.changes) for probe in probes))
        told = log.statistics().delivered
        arrived = [change for probe in probes for change in probe.changes]
        areas = Counter(change.area.name for change in arrived)
        assert {name: count for name, count in told.areas.items() if count} == areas
        types = Counter(change.entity_type for change in arrived if change.entity_type)
        assert all(types[name] == count for name, count in told.entity_types.items())
        assert sum(told.entity_types.values()) + told.other_types == types.total()
        ends = {probe.subscription.id: len(probe.changes) for probe in probes}
        assert {one.id: one.delivered for one in log.statistics().subscriptions} == ends


def test_a_ring_tells_what_it_accepted_copied_holds_and_has_room_for():
    """E63: against a model of two subscribers, one of whom takes nothing."""
    with opened(ring_events=10) as log:
        taker, sleeper = Probe(1_000), Probe()
        for probe in (taker, sleeper):
            log.changes().subscribe(probe, executor=INLINE)
        fill(log, 3, 1)
        (publisher,) = log.statistics().publishers
        ring = publisher.ring
        assert (ring.linked_events, ring.copied_events, ring.events, ring.available_events) == (6, 6, 6, 4)
        sleeper.request(2)
        ring = log.statistics().publishers[0].ring
        assert (ring.linked_events, ring.copied_events, ring.events, ring.available_events) == (6, 8, 4, 6)
        fill(log, 1, 20)
        ring = log.statistics().publishers[0].ring
        assert (ring.refused_chunks, ring.events, ring.available_events) == (1, 0, 10)


class Hands:
    """A clock whose hands the test holds."""

    def __init__(self):
        self.at = 1_000_000_000

    def now_us(self):
        return self.at

    def monotonic(self):
        return self.at / 1e6


def test_lag_is_told_in_versions_changes_bytes_and_time_beside_wal_reads():
    """E63, E64: one that stalls beside one that has caught up."""
    clock = Hands()
    with opened(ring_events=4, clock=clock) as log:
        quick, slow = Probe(10_000), Probe()
        for probe, name in ((quick, "quick"), (slow, "slow")):
            log.changes(content=Content.BODY).subscribe(probe, executor=INLINE, name=name)
        sizes = []
        for _ in range(10):
            clock.at += 2_000_000
            log.commit([order(1), order(2)])
            sizes.append(
                log.history(since=log.head.version - 1, limit=1, content=Content.BODY)
                .changes[0]
                .body["bytes"]
            )
        clock.at += 500_000
        told = {one.name: one for one in log.statistics().subscriptions}
        assert told["quick"].behind == type(told["quick"].behind)(0, 0, 0, 0.0)
        assert (told["quick"].reads, told["quick"].delivered, told["quick"].lag) == (0, 30, 0)
        behind = told["slow"].behind
        assert (behind.versions, behind.changes, behind.nbytes, behind.seconds) == (10, 30, sum(sizes), 18.5)
        assert told["slow"].reads == 0
        assert log.statistics().lagging == 1
        slow.request(7)
        slow.wait_for(7)
        wait_until(lambda: log.statistics().subscriptions[1].position == Position(3, 1))
        told = {one.name: one for one in log.statistics().subscriptions}
        behind = told["slow"].behind
        assert (behind.versions, behind.changes, behind.nbytes, behind.seconds) == (
            8,
            23,
            sum(sizes[2:]),
            14.5,
        )
        assert told["slow"].reads >= 3
        slow.request(1_000)
        slow.wait_for(30)
        wait_until(lambda: log.statistics().lagging == 0)
        assert log.statistics().subscriptions[1].behind.versions == 0
        assert log.statistics().subscriptions[0].reads == 0


def test_what_was_committed_before_the_log_was_opened_is_not_known_in_bytes(tmp_path):
    """E64: versions are always, and the age once something was read."""
    clock = Hands()
    with ChangeLog.open(tmp_path / "log", clock=clock, **QUICK) as log:
        fill(log, 5)
    clock.at += 9_000_000
    with ChangeLog.open(tmp_path / "log", clock=clock, **QUICK) as log:
        probe = Probe()
        log.changes(since="earliest").subscribe(probe, executor=INLINE)
        (told,) = log.statistics().subscriptions
        assert (told.behind.versions, told.behind.changes, told.behind.nbytes, told.behind.seconds) == (
            5,
            None,
            None,
            None,
        )
        probe.request(2)
        probe.wait_for(2)
        wait_until(lambda: log.statistics().subscriptions[0].behind.versions == 4)
        assert log.statistics().subscriptions[0].behind.seconds == pytest.approx(9.0, abs=0.1)

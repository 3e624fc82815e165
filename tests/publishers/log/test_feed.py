"""Subscribing: where it starts, how it ends, and what is refused."""

import asyncio
import contextlib
import contextvars
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import flow
from penstock_cdc.errors import (
    HistoryPruned,
    InvalidChange,
    InvalidCriteria,
    InvalidOption,
    LogClosed,
    PositionAhead,
)
from publishers import ChangeLog, ChangeStore, Content, Criterion, Position
from tests.harness.inside import files_of, service_of
from tests.publishers.support import (
    BatchProbe,
    ManualExecutor,
    Probe,
    everything,
    fill,
    opened,
    order,
    wait_until,
)


def inline(feed, **kwargs):
    probe = Probe(first=10_000)
    feed.subscribe(probe, executor=flow.INLINE, **kwargs)
    return probe


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (None, [(4, 0), (4, 1), (4, 2)]),
        (Position(2), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 0), (4, 1), (4, 2)]),
        (Position(2, 1), [(2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 0), (4, 1), (4, 2)]),
        (Position(3, 2), [(3, 2), (4, 0), (4, 1), (4, 2)]),
    ],
)
def test_since_is_inclusive_and_unset_means_the_next_version_at_subscribe_time(log, since, expected):
    """E9, F61: with a commit between the making of the feed and the subscribe."""
    fill(log, 2, 2)
    feed = log.changes(since=since)
    fill(log, 1, 2)
    probe = inline(feed)
    fill(log, 1, 2)
    probe.wait_for(len(expected))
    assert [tuple(position) for position in probe.positions] == expected


@pytest.mark.parametrize("nobody", [None, object(), lambda change: None])
def test_who_is_no_subscriber_is_refused_and_counted_nowhere(log, nobody):
    """E9, rule 1.9: nobody waits for what it would have been given, and the company goes when its members do."""
    feed = log.changes()
    probe = inline(feed)
    shared = probe.subscription.shared
    with pytest.raises(TypeError, match=r"rule 1\.9"):
        feed.subscribe(nobody, executor=flow.INLINE)
    assert [group.members for group in shared.groups.values()] == [1]
    probe.subscription.cancel()
    assert shared.groups == {}


def test_a_feed_serves_any_number_each_with_its_own_place(log):
    feed = log.changes()
    first = inline(feed)
    fill(log, 1)
    second = inline(feed)
    fill(log, 1)
    assert (len(first.positions), len(second.positions)) == (4, 2)


def test_a_feed_may_be_discarded_while_its_subscribers_live(log):
    probe = Probe(first=10)
    log.changes().subscribe(probe, executor=flow.INLINE)
    fill(log, 1)
    assert len(probe.positions) == 2


@pytest.mark.parametrize("until", [0, 1, 3, 5])
@pytest.mark.parametrize("demand", [1, 10_000])
def test_until_completes_after_its_version_whether_or_not_anything_matches(log, until, demand):
    """``until``: told without demand, from the ring, from the WAL, and when only foreign changes come."""
    fill(log, 2, 2)
    probes = []
    for wishes in ([], [Criterion(keys={"1"})], [Criterion(keys={"nothing"})]):
        for since in (log.oldest, None):
            probe = Probe(first=demand, each=1 if demand == 1 else 0)
            log.changes(*wishes, since=since, until=until).subscribe(probe, executor=flow.INLINE)
            probes.append((probe, wishes, since))
    fill(log, 4, 2)
    for probe, wishes, since in probes:
        probe.wait_for_end()
        assert probe.completed
        first = Position(3) if since is None else since
        expected = [p for p in everything(log, *wishes) if first <= p and p.version <= until]
        assert probe.positions == expected
        assert probe.clean
    assert not log.statistics().publishers


def test_until_is_told_without_demand(log):
    probe = Probe()
    log.changes(Criterion(keys={"nothing"}), until=2).subscribe(probe, executor=flow.INLINE)
    fill(log, 1)
    assert not probe.terminals
    fill(log, 1)
    assert probe.completed


def test_a_position_beyond_the_end_is_refused_by_a_signal(log):
    fill(log, 1)
    probe = Probe(first=10)
    log.changes(since=Position(2, 1)).subscribe(probe, executor=flow.INLINE)
    assert isinstance(probe.error, PositionAhead)
    assert probe.error.head == Position(2, 0)
    assert probe.error.retryable
    assert probe.subscription is not None
    probe = Probe(first=10)
    log.changes(since=Position(2, 0)).subscribe(probe, executor=flow.INLINE)
    fill(log, 1)
    assert probe.positions == [Position(2, 0), Position(2, 1)]


def test_a_position_before_the_oldest_ends_in_an_error(log):
    """E37, D5."""
    fill(log, 1)
    probe = inline(log.changes(since=Position(0, 0)))
    assert isinstance(probe.error, HistoryPruned)
    assert probe.error.oldest == Position(1, 0)
    assert not log.statistics().publishers


@pytest.mark.parametrize("visible", [3, 4])
def test_an_index_that_its_version_does_not_have_resumes_behind_it(visible):
    """E9: nothing above the watermark comes with it either."""
    with opened(sync="interval", sync_interval=60.0) as log:
        for number in range(visible):
            log.commit([order(number)], durable=True)
        fill(log, 1)  # durable later, and visible then
        files_of(log).sync()
        probe = Probe(first=100)
        log.changes(since=Position(3, 99)).subscribe(probe, executor=flow.INLINE)
        wait_until(lambda: probe.subscription.state.value == "LIVE", probe.state)
        shown = [Position(4, 0), Position(4, 1)] if visible == 4 else []
        probe.wait_for(len(shown))
        assert probe.positions == shown
        assert log.history(since=Position(3, 99)).changes == tuple(probe.changes)
        assert log.history(since=Position(3, 99)).next == log.head
        log.commit([order(0)], durable=True)
        probe.wait_for(len(shown) + 4)
        assert probe.positions == [p for p in everything(log) if p > Position(3, 99)]


def test_a_closed_log_refuses_by_a_signal():
    """E50."""
    with opened() as log:
        feed = log.changes()
    for executor in (flow.INLINE, None):
        probe = Probe(first=1)
        feed.subscribe(probe, executor=executor)
        probe.wait_for_end()
        assert isinstance(probe.error, LogClosed)
        assert probe.terminals == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_lag", -1),
        ("max_lag", True),
        ("max_lag", 1.5),
        ("max_lag", timedelta(seconds=-1)),
        ("batch_events", 0),
        ("batch_events", "1"),
        ("batch_bytes", 0),
        ("batch_bytes", False),
    ],
)
def test_a_bound_out_of_its_range_is_refused_by_name(log, name, value):
    with pytest.raises(InvalidOption, match=name):
        log.changes().subscribe(Probe(), **{name: value})


@pytest.mark.parametrize("until", [-1, True, 1.5, "3"])
def test_until_must_be_a_version(log, until):
    with pytest.raises(InvalidOption, match="until"):
        log.changes(until=until)


def test_a_wish_must_be_one(log):
    with pytest.raises(InvalidCriteria):
        log.changes("order")
    with pytest.raises(ValueError, match="FULL"):
        log.changes(content="FULL")
    assert log.changes(content="BODY").view.content is Content.BODY


async def test_on_an_event_loop_signals_run_there(log):
    """E28: without an executor the running loop is taken."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    class OnLoop(Probe):
        def take(self, change):
            assert asyncio.get_running_loop() is loop
            super().take(change)
            if len(self.positions) == 2:
                done.set()

    probe = OnLoop(first=100)
    log.changes().subscribe(probe)
    await log.commit_async([order(1)])
    await asyncio.wait_for(done.wait(), 60)
    assert probe.clean


def test_on_an_executor_signals_are_serial(log):
    """E28: the overlap detector, on every kind of executor."""
    with ThreadPoolExecutor(4) as executor:
        probes = [Probe(first=5, each=2), Probe(first=5, each=2), BatchProbe(first=7, each=1)]
        for probe, where in zip(probes, (executor, None, executor), strict=True):
            log.changes().subscribe(probe, executor=where)
        fill(log, 200)
        for probe in probes:
            probe.wait_for(400)
            assert probe.positions == everything(log)
            assert probe.clean
            probe.subscription.cancel()


def test_batches_are_bounded_in_events_and_bytes(log):
    """F68: a change above the bound goes alone."""
    from publishers import upsert

    for size in (10, 10, 5000, 10, 9000, 9000, 10):
        log.commit([upsert("order", "k", {"x": "y" * size})])
    for since in (log.oldest, None):
        probe = BatchProbe(first=1000)
        log.changes(Criterion(entity_types={"order"}), since=since).subscribe(
            probe, executor=flow.INLINE, batch_events=2, batch_bytes=1000
        )
        if since is None:
            log.commit([upsert("order", "k", {"x": "y" * size}) for size in (10, 5000, 10, 10, 10, 9000)])
        probe.wait_for(6)
        for batch in probe.batches:
            assert 1 <= len(batch) <= 2
            size = sum(part.nbytes for part in batch.slices)
            assert len(batch) == 1 or size <= 1000 + 200  # a whole block weighs a little more than its parts
        assert probe.clean


def test_context_variables_of_the_subscriber_are_seen_by_its_signals(log):
    who = contextvars.ContextVar("who", default="nobody")
    seen = []

    class Looking(Probe):
        def take(self, change):
            seen.append(who.get())
            super().take(change)

    who.set("ann")
    probe = Looking(first=10)
    log.changes().subscribe(probe)
    who.set("bob")
    fill(log, 1)
    probe.wait_for(2)
    assert set(seen) == {"ann"}


def test_what_is_filled_from_the_wal_in_mid_turn_is_cut_to_what_the_turn_has_left():
    """F67, rule 1.1: the drain never gets more than it asked its feed for."""

    class Prompt:
        waiting = 0

        def enlist(self, task):
            while task.replay():
                pass

        def close(self):
            return

    executor = ManualExecutor()
    with opened(ring_events=4, batch_events=10) as log:
        service_of(log).replayer.close()
        service_of(log).replayer = Prompt()

        class Busy(Probe):
            def take(self, change):
                super().take(change)
                if len(self.positions) == 1:
                    fill(log, 20)

        probe = Busy(first=1000)
        log.changes().subscribe(probe, executor=executor)
        executor.run_all()
        fill(log, 2)
        executor.run_all()
        assert probe.error is None, probe.state()
        assert probe.states[0] == "RESYNC"
        assert probe.positions == everything(log)
        assert probe.clean


def test_who_subscribes_while_the_feed_is_closed_is_told(log):
    """E65: the close comes in the middle of ``subscribe``, and knows nothing of the subscription yet."""
    fill(log, 3)
    feed = log.changes()

    class Closing(Probe):
        @property
        def on_next_batch(self):
            feed.close()
            raise AttributeError

    probe = Closing(first=9)
    feed.subscribe(probe, executor=flow.INLINE)
    assert probe.completed, probe.state()
    assert probe.clean
    assert not log.statistics().publishers


async def test_the_async_iterator_reads_a_log(log):
    """F128: with a prefetch smaller than the backlog."""
    fill(log, 50)
    async with flow.aiter(log.changes(since=log.oldest, until=50), prefetch=4) as changes:
        found = [change.position async for change in changes]
    assert found == everything(log)


def test_the_blocking_iterator_reads_a_log(log):
    """F128."""
    fill(log, 50)
    with flow.iter_blocking(log.changes(since=log.oldest, until=50), prefetch=4) as changes:
        assert [change.position for change in changes] == everything(log)


def test_a_loop_over_a_feed_reads_the_log_and_ends_its_subscription_however_it_is_left(log):
    """F128, E42."""
    fill(log, 50)
    feed = log.changes(since=log.oldest, until=50)
    assert [change.position for change in feed] == everything(log)
    for change in feed:
        if change.version == 7:
            break

    def fail():
        for change in log.changes(since=log.oldest):
            raise KeyError(change.key)

    with pytest.raises(KeyError):
        fail()
    with contextlib.closing(iter(log.changes())) as changes:
        fill(log, 1)
        assert next(changes).version == 51
    wait_until(lambda: not log.statistics().publishers)


async def test_an_asynchronous_loop_over_a_feed_reads_the_log_and_ends_its_subscription(log):
    """F128, E42."""
    fill(log, 50)
    feed = log.changes(since=log.oldest, until=50)
    assert [change.position async for change in feed] == everything(log)
    async for change in feed:
        if change.version == 7:
            break
    async with contextlib.aclosing(aiter(log.changes(since=Position(50)))) as changes:
        assert (await anext(changes)).version == 50
    await asyncio.to_thread(wait_until, lambda: not log.statistics().publishers)


def test_a_loop_ends_with_the_error_of_its_subscription(log):
    fill(log, 1)
    seen = []

    def follow():
        for change in log.changes(since=log.oldest):
            seen.append(change)
            log.close(ValueError("dropped"))

    with pytest.raises(ValueError, match="dropped"):
        follow()
    with pytest.raises(ValueError, match="dropped"):
        list(log.changes())


@pytest.mark.parametrize("system", [False, True], ids=["of a log", "of the system log"])
def test_a_feed_is_no_list_of_wishes_or_changes(tmp_path, system):
    """It has no end, so whatever went through it would wait for ever."""
    with ChangeStore.open(tmp_path) as store:
        log = store.create("orders")
        feed = store.system.changes() if system else log.changes()
        for read in (log.changes, log.history, store.system.changes, store.system.history):
            with pytest.raises(InvalidCriteria, match=r"criteria is .*ChangeFeed"):
                read(feed)
        with pytest.raises(InvalidChange, match=r"mutations is .*ChangeFeed"):
            log.commit(feed)
        with pytest.raises(InvalidChange, match=r"mutations is .*ChangeFeed"), log.transaction() as tx:
            tx.extend(feed)


def test_who_begins_inside_of_what_a_ring_keeps_gets_the_change_there_and_reads_no_disk(log):
    """E36, E32: the ring keeps it for somebody who has not asked yet."""
    slow = Probe()
    log.changes().subscribe(slow, executor=flow.INLINE)
    fill(log, 3, 4)
    starts = everything(log)
    before = log.statistics().frames_read
    for start in starts:
        probe = Probe(first=99)
        log.changes(since=start).subscribe(probe, executor=flow.INLINE)
        assert probe.positions[0] == start
        probe.subscription.cancel()
    assert log.statistics().frames_read == before


def test_a_log_is_followed_after_reopening_from_the_text_of_a_position():
    """F73, E36."""
    with opened() as log:
        fill(log, 3, 2)
        text = str(log.token(Position(2, 1)))
        path = log.path
        log.close()
        with ChangeLog.open(path, sync="os") as again:
            probe = inline(again.changes(since=text))
            probe.wait_for(5)
            assert probe.positions == [p for p in everything(again) if p >= Position(2, 1)]

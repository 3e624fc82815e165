"""Ends that come from the other side: handles that are closed, ids, and logs that publish nothing."""

import threading
from functools import partial

import pytest

import flow
from penstock_cdc.errors import LogClosed
from publishers import ChangeLog, Criterion
from publishers.errors import LogDropped, PublishingOff
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import Probe, fill, in_threads, opened, order, stalled


def test_closing_a_handle_ends_only_its_own_subscribers(log):
    """E47, E50: two handles with equal criteria share a ring, and nothing else."""
    mine, other = (
        log.changes(Criterion(entity_types={"order"})),
        log.changes(Criterion(entity_types={"order"})),
    )
    ended, kept, more = Probe(first=9), Probe(first=9), Probe()
    mine.subscribe(ended, executor=flow.INLINE)
    mine.subscribe(more, executor=flow.INLINE)
    other.subscribe(kept, executor=flow.INLINE)
    assert len(log.statistics().publishers) == 1
    fill(log, 1)
    mine.close()
    mine.close()
    assert ended.completed
    assert isinstance(more.error, LogClosed), "it had not taken what is visible"
    fill(log, 1)
    assert len(ended.changes) == 1
    assert len(kept.changes) == 2
    assert not kept.terminals
    late = Probe(first=1)
    mine.subscribe(late, executor=flow.INLINE)
    assert isinstance(late.error, LogClosed)
    assert all(probe.clean for probe in (ended, kept, more, late))


def test_a_handle_is_closed_under_a_subscriber_that_reads_the_log():
    """E47: also one that the ring has left behind gets its terminal signal, without demand."""
    with opened(ring_events=4) as log:
        feed = log.changes()
        probe = stalled(log, feed, 4)
        feed.close()
        assert isinstance(probe.error, LogClosed)
        assert probe.clean
        assert not log.statistics().publishers


def test_unsubscribing_by_id_answers_whether_there_was_one(log):
    """E48."""
    probe, other = Probe(first=9), Probe(first=9)
    log.changes().subscribe(probe, executor=flow.INLINE)
    log.changes().subscribe(other, executor=flow.INLINE)
    assert probe.subscription.id != other.subscription.id
    assert log.unsubscribe(probe.subscription.id) is True
    assert log.unsubscribe(probe.subscription.id) is False
    assert log.unsubscribe(-1) is False
    fill(log, 1)
    assert not probe.changes
    assert not probe.terminals
    assert len(other.changes) == 2


def test_unsubscribing_by_id_looks_at_no_publisher(log, monkeypatch):
    """E48. Avoidable work, row 9: the cost does not depend on how many publishers there are."""
    probes = [Probe() for _ in range(200)]
    for number, probe in enumerate(probes):
        log.changes(Criterion(keys={str(number)})).subscribe(probe, executor=flow.INLINE)
    registry = service_of(log).registry
    monkeypatch.setattr(registry, "publishers", None)
    monkeypatch.setattr(registry, "subscriptions", None)
    looked = []

    class Watched(dict):
        def __iter__(self):
            looked.append(self)
            return super().__iter__()

    registry._publishers, registry._by_id = Watched(registry._publishers), Watched(registry._by_id)
    assert log.unsubscribe(probes[100].subscription.id)
    assert not looked
    assert len(registry._publishers) == 199
    monkeypatch.undo()


def test_without_publishing_subscribing_fails_and_commits_are_not_matched():
    """E49: the log is written and read as ever."""
    with opened(publish=False) as log:
        probe = Probe(first=9)
        feed = log.changes()
        feed.subscribe(probe, executor=flow.INLINE)
        assert isinstance(probe.error, PublishingOff)
        assert "publish=True" in str(probe.error)
        assert probe.clean
        fill(log, 3)
        assert log.statistics().evaluations == 0
        assert len(log.history().changes) == 6


def test_a_dropped_log_ends_everybody_at_once_and_refuses_newcomers():
    """E45, E50, D14: also those without demand, and those whose queue was filled already."""
    with opened(ring_events=4) as log:
        feed = log.changes()
        idle, waiting, lagging = Probe(), Probe(first=99), stalled(log, log.changes(), 4)
        feed.subscribe(idle, executor=flow.INLINE)
        feed.subscribe(waiting, executor=flow.INLINE)
        fill(log, 1)
        log.close(LogDropped("shop"))
        late = Probe(first=1)
        feed.subscribe(late, executor=flow.INLINE)
        for probe in (idle, waiting, lagging, late):
            assert isinstance(probe.error, LogDropped), probe.state()
            assert probe.error.name == "shop"
            assert probe.clean
        with pytest.raises(LogDropped):
            log.commit([order(1)])
        with pytest.raises(LogDropped):
            log.history()


@pytest.mark.parametrize("because", [None, LogDropped("shop")])
def test_who_subscribes_while_the_log_ends_gets_one_terminal_signal(tmp_path, because):
    """E65, D12: nothing is thrown at the user, and nobody is left on a closed publisher."""
    for number in range(scaled(30)):
        log = ChangeLog.open(tmp_path / f"log{number}", sync="os", fill_step=0)
        log.commit([order(1)])
        begin, probes = threading.Barrier(4), [Probe(first=9) for _ in range(24)]

        def subscribe(some, begin=begin, log=log):
            begin.wait()
            for probe in some:
                log.changes(since=log.oldest).subscribe(probe)

        def close(begin=begin, log=log):
            begin.wait()
            log.close(because)

        in_threads(close, *(partial(subscribe, probes[at::3]) for at in range(3)))
        for probe in probes:
            probe.wait_for_end()
            assert probe.clean, probe.state()
        assert not service_of(log).registry.subscriptions()


def test_who_subscribes_while_the_handle_is_closed_gets_one_terminal_signal(log):
    """E65."""
    for _ in range(scaled(50)):
        feed, probes, begin = log.changes(), [Probe(first=9) for _ in range(8)], threading.Barrier(2)

        def subscribe(feed=feed, probes=probes, begin=begin):
            begin.wait()
            for probe in probes:
                feed.subscribe(probe)

        def close(feed=feed, begin=begin):
            begin.wait()
            feed.close()

        in_threads(subscribe, close)
        for probe in probes:
            probe.wait_for_end()
            assert probe.clean

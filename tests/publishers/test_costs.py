"""What must cost nothing: reads, files, memory, wake-ups and evaluations are counted."""

import gc
import os
import threading
import weakref

import pytest

import flow
from publishers import Content, Criterion
from publishers.blocks.block import Block
from tests.harness.inside import catalog_of, files_of, service_of
from tests.harness.scale import scaled
from tests.publishers.support import (
    BatchProbe,
    ManualExecutor,
    Probe,
    everything,
    fill,
    opened,
    order,
    stalled,
    wait_until,
)


def reads(log):
    return files_of(log).reader.statistics.frames


def test_a_caught_up_subscriber_reads_the_wal_zero_times():
    """E32. Avoidable work, row 2: ten thousand commits, matching and foreign ones mixed, with and without a checkpoint between."""
    with opened() as log:
        picky, all_of_it = BatchProbe(first=10**9), BatchProbe(first=10**9)
        log.changes(Criterion(keys={"7"})).subscribe(picky, executor=flow.INLINE)
        log.changes().subscribe(all_of_it, executor=flow.INLINE)
        for number in range(scaled(10_000)):
            log.commit([order(number % 100)])
            if number % 1000 == 0:
                log.statistics()
        assert reads(log) == 0
        assert len(all_of_it.positions) == 2 * scaled(10_000)
        assert len(picky.positions) == scaled(10_000) // 100
        assert log.statistics().subscriptions[0].position == log.head


def test_a_subscriber_that_stalls_within_the_ring_comes_back_without_a_read():
    """E32."""
    with opened(ring_events=1000) as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE)
        for _ in range(20):
            fill(log, 10)
            probe.request(20)
        assert probe.positions == everything(log)[:400]
        before = reads(log)
        fill(log, 10)
        probe.request(100)
        assert reads(log) == before


@pytest.mark.parametrize("way", ["wal", "live", "stalled"])
def test_a_selective_reader_scans_each_record_once(way):
    """E33. Avoidable work, row 3: one match, then thousands of foreign commits, asked for in small steps."""
    with opened(ring_events=8) as log:
        foreign = scaled(2000)
        probe = Probe(first=0 if way == "stalled" else 1, each=1)
        feed = log.changes(Criterion(keys={"rare"}), since=log.oldest)
        if way != "wal":
            feed.subscribe(probe, executor=flow.INLINE)
        log.commit([order("rare")])
        fill(log, foreign)
        log.commit([order("rare")])
        if way == "wal":
            feed.subscribe(probe, executor=flow.INLINE)
        if way == "stalled":
            probe.request(1)
        probe.wait_for(2)
        fill(log, 1)
        probe.subscription.checkpoint()
        most = {"wal": foreign + 2 + 2, "live": 0, "stalled": 0}[way]
        assert reads(log) <= most


@pytest.mark.parametrize("demand", [1, 100, 10**9])
def test_the_replay_of_a_large_transaction_is_linear(demand, monkeypatch):
    """E34. Avoidable work, row 4: 16,000 changes are read once, selected once, and only those that are taken are looked at."""
    looked = []
    size = Block.size_between
    monkeypatch.setattr(Block, "size_between", lambda *range_: looked.append(range_) or size(*range_))
    with opened(frame_bytes=65_536) as log:
        log.commit([order(n) for n in range(16_000)])
        frames = len(list(files_of(log).reader.statistics.__slots__)) and files_of(log).reader
        probe = Probe(first=demand, each=1 if demand < 10**9 else 0)
        log.changes(Criterion(operations={"UPSERT"}), since=log.oldest).subscribe(probe, executor=flow.INLINE)
        probe.wait_for(16_000, timeout=200)
        read = frames.statistics.frames
        assert len(probe.positions) == 16_000
        assert read <= 16_000 * 70 // 65_536 + 10
        assert len(looked) <= 6 * 16_000
        assert service_of(log).frames.reads <= read


def test_a_thousand_laggards_share_bounded_buffers_and_files():
    """F68, invariant 12. Avoidable work, row 6: frames in memory and open files do not grow with those who lag."""
    with opened(ring_events=4, replay_bytes=200_000, segment_bytes=65_536, batch_events=16) as log:
        probes = []
        for _ in range(scaled(1000)):
            probes.append(Probe())
            log.changes().subscribe(probes[-1])
        for _ in range(40):
            log.commit([order(n) for n in range(100)])
        files = len(os.listdir("/proc/self/fd"))
        for probe in probes:
            wait_until(lambda probe=probe: probe.subscription)
            probe.request(50)
        most = 0

        def quiet():
            nonlocal most
            most = max(most, len(os.listdir("/proc/self/fd")) - files)
            assert service_of(log).frames.nbytes <= 200_000
            assert log.statistics().replay_waiting <= len(probes)
            return all(len(probe.positions) >= 50 for probe in probes)

        wait_until(quiet, lambda: sum(len(probe.positions) for probe in probes), timeout=200)
        assert most <= 16
        assert reads(log) < 400  # and not a thousand times what one of them reads
        assert all(probe.positions == probes[0].positions for probe in probes)
        for probe in probes:
            probe.subscription.cancel()


def test_a_stalled_subscriber_holds_no_file_and_at_most_a_batch():
    """F68, E24, E59: a reader without demand pins nothing; invariant 7: it holds no file."""
    with opened(ring_events=4, segment_bytes=65_536, retain_bytes=None, retain_age=None) as log:
        fill(log, 1)
        before = set(_files())
        probes = [stalled(log, log.changes(), 4) for _ in range(20)]
        for _ in range(40):
            log.commit([order(n) for n in range(100)])
        for probe in probes:
            probe.request(10)
            probe.wait_for(10)
        catalog_of(files_of(log).reader).close()
        assert len(set(_files()) - before) <= 1  # the live segment may be another one
        shared = service_of(log).registry.publishers()[0]
        assert shared.ring.statistics().events <= 4
        for probe in probes:
            probe.request(10**6)
        for probe in probes:
            probe.wait_for(len(everything(log)) - (probe.positions[0].version - 1) * 2)


def test_who_wants_one_of_many_changes_and_stands_still_keeps_no_more_than_a_ring():
    """F68, F64: a block lies in memory as a whole, however few of its changes a subscriber wants."""
    bound = 1 << 18

    def blocks():
        return {one for one in gc.get_objects() if isinstance(one, Block)}

    earlier = blocks()  # which tests before it left
    with opened(ring_bytes=bound) as log:
        probe = Probe()
        log.changes(Criterion(keys={"7"})).subscribe(probe, executor=flow.INLINE)
        for _ in range(40):
            log.commit([order(n) for n in range(1000)])
            gc.collect()
            weights = [block.weight for block in blocks() - earlier]
            assert sum(weights) <= bound + max(weights)
        probe.request(100)
        probe.wait_for(40)
        assert probe.positions == everything(log, Criterion(keys={"7"}))


def _files():
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if "penstock" in target and not target.endswith(".tmp"):  # the next segment may just be made
            yield target


def test_what_all_live_cursors_have_passed_can_be_collected():
    """E23."""
    with opened() as log:
        fast, slow = Probe(first=10**6), Probe()
        log.changes().subscribe(fast, executor=flow.INLINE)
        log.changes().subscribe(slow, executor=flow.INLINE)
        fill(log, 3)
        ring = service_of(log).registry.publishers()[0].ring
        chunk = ring._chunks[0]
        slices = [part.block for part in chunk.slices]
        columns = weakref.ref(slices[0].columns) if hasattr(slices[0].columns, "__weakref__") else None
        del slices, chunk
        slow.request(6)
        slow.changes.clear()
        fast.changes.clear()
        gc.collect()
        assert ring.statistics().events == 0
        if columns is not None:
            assert columns() is None


@pytest.mark.parametrize("end", ["cancel", "complete", "error", "close", "raise"])
@pytest.mark.parametrize("state", ["live", "resync", "replaying"])
def test_nothing_refers_to_a_subscriber_after_its_end(end, state, dropped):
    """F72, rule 3.13."""
    with opened(ring_events=2) as log:
        executor = ManualExecutor() if state == "replaying" else flow.INLINE
        probe = Probe(first=0)
        log.changes(until=50 if end == "complete" else None).subscribe(probe, executor=executor)
        if executor is not flow.INLINE:
            executor.run_all()
        if state != "live":
            fill(log, 5)
        if end == "raise":
            probe.take = _explode
        if state == "replaying" or end == "raise":
            probe.subscription.request(5)
            if executor is not flow.INLINE:
                executor.run_all()
            fill(log, 1)
        if end == "cancel":
            probe.subscription.cancel()
        elif end == "error":
            probe.subscription.request(0)
        elif end == "complete":
            probe.subscription.request(10**6)
            fill(log, 50)
        elif end == "close":
            log.close()
        wait_until(
            lambda: (
                executor is flow.INLINE or executor.run_all(),
                not service_of(log).registry.publishers(),
            )[1],
            probe.state,
        )
        wait_until(lambda: service_of(log).replayer.waiting == 0)
        references = [weakref.ref(probe), weakref.ref(probe.subscription.drain)]
        if executor is not flow.INLINE:
            executor.run_all()
        del probe

        def gone():
            gc.collect()
            return not any(reference() for reference in references)

        wait_until(gone, lambda: [gc.get_referrers(r()) for r in references if r()])
        assert not service_of(log).waiting._parked
        assert not service_of(log).waiting._bounded


def _explode(_change):
    raise ValueError("mine")


def test_many_subscribe_and_cancel_leave_nothing():
    """F72: no growth."""
    with opened() as log:
        feed = log.changes()
        keeper = Probe(first=10**6)
        feed.subscribe(keeper, executor=flow.INLINE)

        def churn(count):
            for number in range(count):
                probe = Probe(first=number % 3)
                feed.subscribe(probe, executor=flow.INLINE)
                if number % 50 == 0:
                    fill(log, 1)
                probe.subscription.cancel()
            keeper.changes.clear()
            keeper.positions.clear()
            gc.collect()
            return len(gc.get_objects())

        churn(200)
        before = churn(scaled(2000))
        assert churn(scaled(2000)) < before + 500


def test_commit_work_follows_matches_and_not_the_number_of_publishers():
    """E18. Avoidable work, row 1: one publisher that does not match costs as much as a thousand."""
    counts = []
    for publishers in (1, scaled(1000)):
        with opened() as log:
            for number in range(publishers):
                wish = {"entity_types": {f"type{number}"}} if number % 2 else {"keys": {f"key{number}"}}
                log.changes(Criterion(**wish)).subscribe(Probe(first=1), executor=flow.INLINE)
            fill(log, 100)
            counts.append(log.statistics().evaluations)
    assert counts == [0, 0]


def test_a_predicate_runs_once_for_all_its_subscribers():
    """F57."""
    with opened() as log:
        probes = [Probe(first=10**6) for _ in range(50)]
        for probe in probes:
            log.changes(Criterion(keys={"1", "2"})).subscribe(probe, executor=flow.INLINE)
        for _ in range(10):
            log.commit([order(n) for n in range(5)])
        assert log.statistics().evaluations == 10
        assert all(len(probe.positions) == 20 for probe in probes)


def test_a_change_is_made_once_for_all_rings_and_subscribers():
    """Avoidable work, row 1 and row 9: the object is shared by publishers with different criteria."""
    with opened() as log:
        one, other = Probe(first=10), Probe(first=10)
        log.changes(content=Content.BODY).subscribe(one, executor=flow.INLINE)
        log.changes(Criterion(keys={"0"}), content=Content.BODY).subscribe(other, executor=flow.INLINE)
        fill(log, 1)
        assert one.changes[1] is other.changes[0]


def test_who_has_nothing_to_do_is_not_woken():
    """F69. Avoidable work, row 5: a publisher without a match wakes nobody; of many commits before a turn one wake-up remains."""
    executor = ManualExecutor()
    with opened() as log:
        idle, busy = Probe(first=10**6), Probe(first=10**6)
        log.changes(Criterion(keys={"nothing"})).subscribe(idle, executor=executor)
        log.changes().subscribe(busy, executor=executor)
        executor.run_all()
        before = executor.submitted
        fill(log, 100)
        assert executor.submitted == before + 1
        executor.run_all()
        assert len(busy.positions) == 200
        busy.subscription.cancel()
        before = executor.submitted
        fill(log, 100)
        assert executor.submitted == before


def test_one_without_demand_is_not_woken_either():
    """F69."""
    executor = ManualExecutor()
    with opened() as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=executor)
        executor.run_all()
        before = executor.submitted
        fill(log, 100)
        assert executor.submitted == before


def test_a_resyncing_subscriber_that_waits_at_the_watermark_is_woken_by_what_does_not_match():
    """Invariant 3: every RESYNC cursor with demand that waits at the watermark, matched or not."""
    with opened(ring_events=1) as log:
        probe = Probe(first=10)
        log.changes(Criterion(keys={"rare"})).subscribe(probe, executor=flow.INLINE)
        subscription = probe.subscription
        # As if an eviction had left it behind at the watermark, and the ring had gone on.
        fill(log, 1)
        shared = service_of(log).registry.publishers()[0]
        assert shared.ring.restart(log.head.version, log.head.version - 1)
        subscription.wake()
        wait_until(lambda: service_of(log).waiting._parked, probe.state)
        fill(log, 1)
        wait_until(
            lambda: not service_of(log).waiting._parked and subscription.state.value == "LIVE", probe.state
        )
        log.commit([order("rare")])
        probe.wait_for(1)


def test_a_header_replay_parses_and_materialises_no_body(monkeypatch):
    """Avoidable work, row 6."""
    asked = []
    body = Block.body
    monkeypatch.setattr(Block, "body", lambda self, index: asked.append(index) or body(self, index))
    with opened() as log:
        fill(log, 10, 10)
        probe = Probe(first=1000)
        log.changes(since=log.oldest).subscribe(probe, executor=flow.INLINE)
        probe.wait_for(110)
        assert asked == []


def test_an_evicted_cursor_resumes_at_the_first_chunk_that_it_has_not_taken():
    """Invariant 8, E33: what the ring knew not to match is not read again from the WAL."""
    with opened(ring_events=2) as log:
        probe = Probe()
        log.changes(Criterion(keys={"rare"})).subscribe(probe, executor=flow.INLINE)
        fill(log, 50)
        for _ in range(3):
            log.commit([order("rare")])
        checkpoint = probe.subscription.checkpoint()
        assert checkpoint.state.value == "RESYNC"
        assert checkpoint.position == (51, 0)
        probe.request(10)
        probe.wait_for(3)
        assert service_of(log).frames.reads <= 3
        assert probe.positions == everything(log, Criterion(keys={"rare"}))


def test_a_stuck_subscriber_slows_neither_the_writer_nor_the_others():
    """F66: one of many blocks in its own signal; commits return, and all the others have everything meanwhile."""
    with opened(ring_events=4) as log:
        go = threading.Event()

        class Stuck(Probe):
            def take(self, change):
                super().take(change)
                assert go.wait(60)

        stuck = Stuck(first=10**6)
        others = [Probe(first=10**6) for _ in range(20)]
        for probe in (stuck, *others):
            log.changes().subscribe(probe)
        fill(log, 1)
        stuck.wait_for(1)
        fill(log, 99)
        for probe in others:
            probe.wait_for(200)
            assert probe.positions == everything(log)
        assert len(stuck.positions) == 1
        assert stuck.subscription.state.value == "RESYNC"
        go.set()
        stuck.wait_for(200)
        assert stuck.positions == everything(log)
        assert stuck.clean

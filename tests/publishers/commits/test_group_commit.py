"""Group commit: order, duplicates, policies, failures."""

import errno
import itertools
import threading

import pytest

import flow
from penstock_cdc.errors import LogClosed, LogFailed, LogFull
from publishers import ChangeLog, Position, upsert
from publishers.wal import RealFileSystem
from tests.harness.inside import committer_of, files_of, housekeeping_of, queue_of, service_of
from tests.harness.scale import scaled
from tests.publishers.support import (
    QUICK,
    Held,
    Probe,
    everything,
    fill,
    in_threads,
    opened,
    order,
    scratch,
    wait_until,
)


def test_versions_rise_by_one_over_threads_and_openings():
    """F13: concurrent commits and restarts leave no gap."""
    path = scratch() / "log"
    seen = []
    for _ in range(3):
        with ChangeLog.open(path, **QUICK) as log:
            in_threads(*[lambda: seen.extend(log.commit([order(1)]).version for _ in range(50))] * 4)
    assert sorted(seen) == list(range(1, 601))


def test_those_who_wait_are_committed_in_one_group(monkeypatch):
    """F40: many committers, far fewer writes and syncs."""
    with opened() as log:
        held = Held(log, monkeypatch)
        threads = [threading.Thread(target=fill, args=(log, 1)) for _ in range(10)]
        threads[0].start()
        assert held.inside.wait(60)
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: committer_of(log).waiting[0] == 9)
        groups = committer_of(log).groups
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert held.sizes == [1, 9]
        assert committer_of(log).groups == groups + 2
        assert log.head == Position(11, 0)
        assert committer_of(log).waiting == (0, 0)


def test_a_group_is_bounded_in_transactions_and_bytes(monkeypatch):
    """F68."""
    for bound, sizes in (({"group_transactions": 4}, [1, 4, 4, 1]), ({"group_bytes": 1}, [1] * 10)):
        with opened(**bound) as log:
            held = Held(log, monkeypatch)
            threads = [threading.Thread(target=fill, args=(log, 1)) for _ in range(10)]
            threads[0].start()
            assert held.inside.wait(60)
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: committer_of(log).waiting[0] == 9)
            held.go.set()
            for thread in threads:
                thread.join(60)
            assert held.sizes == sizes


def test_callers_wait_for_room_in_the_queue_and_are_let_in(monkeypatch):
    """F68: bytes that wait are bounded; whoever waits for room gets it, or learns that the log was closed."""
    with opened(queue_bytes=1) as log:
        held = Held(log, monkeypatch)
        done = []
        threads = [threading.Thread(target=lambda: done.append(log.commit([order(1)]))) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert held.inside.wait(60)
        wait_until(lambda: len(queue_of(committer_of(log)).outside) == 4)
        assert committer_of(log).waiting[0] == 1
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert sorted(commit.version for commit in done) == list(range(1, 7))


def test_a_commit_tells_what_became_of_it(log):
    """F12: the time never falls."""
    first = log.commit([order(1), order(2)])
    second = log.commit([])
    assert (first.version, first.duplicate, first.changes) == (1, False, 3)
    assert (second.version, second.changes) == (2, 1)
    assert 0 < first.committed_at < second.committed_at


def test_a_repeated_sequence_writes_nothing(log):
    """Idempotent per producer name and sequence."""
    first = log.commit([order(1)], producer=("etl", 5))
    again = log.commit([order(1)], producer=("etl", 5))
    assert (again.version, again.duplicate, again.changes) == (first.version, True, 0)
    late = log.commit([order(1)], producer=("etl", 4))
    assert (late.version, late.duplicate) == (0, True)
    assert not log.commit([order(1)], producer=("other", 5)).duplicate
    assert log.commit([order(1)], producer=("etl", 6)).version == 3
    assert log.produced("etl").sequence == 6
    assert log.produced("etl").version == 3
    assert log.produced("nobody") is None


def test_racing_retries_in_one_group_become_one_version(monkeypatch):
    with opened() as log:
        held = Held(log, monkeypatch)
        done = []
        lead = threading.Thread(target=fill, args=(log, 1))
        lead.start()
        assert held.inside.wait(60)
        sequences = [7, 7, 6, 8, 7]
        threads = []
        for place, sequence in enumerate(sequences, 1):
            thread = threading.Thread(
                target=lambda s=sequence: done.append((s, log.commit([order(s)], producer=("p", s))))
            )
            thread.start()
            threads.append(thread)
            wait_until(lambda place=place: committer_of(log).waiting[0] == place)
        held.go.set()
        for thread in [lead, *threads]:
            thread.join(60)
        fresh = {s: c.version for s, c in done if not c.duplicate}
        assert fresh == {7: 2, 8: 3}
        assert sorted((s, c.version) for s, c in done if c.duplicate) == [(6, 0), (7, 0), (7, 2)]
        assert log.head == Position(4, 0)


def test_duplicates_are_known_after_reopening_and_in_every_policy():
    for policy in ("always", "interval", "os"):
        path = scratch() / "log"
        with ChangeLog.open(path, **{**QUICK, "sync": policy}) as log:
            assert log.commit([order(1)], producer=("p", 1)).version == 1
            assert log.commit([order(1)], producer=("p", 1)).duplicate
        with ChangeLog.open(path, **{**QUICK, "sync": policy}) as log:
            again = log.commit([order(1)], producer=("p", 1), durable=True)
            assert (again.version, again.duplicate) == (1, True)


class Counting(RealFileSystem):
    """Counts syncs of segments, and fails on demand."""

    def __init__(self):
        self.syncs = 0
        self.fail_sync = None
        self.fail_write = None

    def open(self, path, mode, /):
        return _File(super().open(path, mode), self)


class _File:
    def __init__(self, file, counts):
        self._file = file
        self._counts = counts

    def __getattr__(self, name):
        return getattr(self._file, name)

    def sync(self):
        self._counts.syncs += 1
        if self._counts.fail_sync is not None:
            raise self._counts.fail_sync
        self._file.sync()

    def pwrite(self, data, offset, /):
        if self._counts.fail_write is not None:
            raise self._counts.fail_write
        return self._file.pwrite(data, offset)


def disk(**options):
    filesystem = Counting()
    return filesystem, opened(filesystem=filesystem, head_sync=3600.0, **options)


def test_always_syncs_each_group_before_it_returns():
    """F29, F39."""
    filesystem, log = disk(sync="always")
    with log as log:
        before = filesystem.syncs
        for number in range(1, 6):
            log.commit([order(number)])
            assert filesystem.syncs == before + number


def test_interval_delivers_only_what_is_synced():
    """F29, F39, invariant 2: nothing unsynced is in a ring."""
    filesystem, log = disk(sync="interval", sync_interval=60.0)
    with log as log:
        probe = Probe(first=100)
        log.changes().subscribe(probe, executor=flow.INLINE)
        before = filesystem.syncs
        fill(log, 3)
        assert (probe.positions, log.head, filesystem.syncs) == ([], Position(1, 0), before)
        log.commit([order(4)], durable=True)
        assert filesystem.syncs == before + 1
        assert len(probe.positions) == 8
        fill(log, 1)
        housekeeping_of(log).poke()
        probe.wait_for(10)
        fill(log, 1)
    assert len(probe.positions) == 12
    assert probe.completed


def test_interval_syncs_when_too_much_waits():
    """F68."""
    filesystem, log = disk(sync="interval", sync_interval=60.0, queue_bytes=1000)
    with log as log:
        before = filesystem.syncs
        fill(log, 50)
        assert filesystem.syncs > before
        assert log.head.version > 1


def test_os_leaves_the_sync_to_the_system_unless_asked():
    """F39."""
    filesystem, log = disk(sync="os")
    with log as log:
        before = filesystem.syncs
        log.commit([order(1)], producer=("p", 1))
        assert (filesystem.syncs, log.head) == (before, Position(2, 0))
        log.commit([order(1)], producer=("p", 1), durable=True)
        assert filesystem.syncs == before + 1
        log.commit([order(1)], durable=True)
        assert filesystem.syncs == before + 2


def test_a_failed_sync_fails_the_log_for_good():
    """F42: the outcome is unknown, then refused; readers go on; nothing acknowledged is lost."""
    filesystem, log = disk(sync="always")
    with log as log:
        probe = Probe(first=100)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 2)
        filesystem.fail_sync = OSError(errno.EIO, "broken")
        with pytest.raises(LogFailed) as caught:
            fill(log, 1)
        assert caught.value.outcome == "unknown"
        filesystem.fail_sync = None
        for _ in range(3):
            with pytest.raises(LogFailed) as caught:
                fill(log, 1)
            assert caught.value.outcome == "refused"
            assert str(caught.value).count("the change log has failed") == 1
        assert log.head == Position(3, 0)
        assert len(everything(log)) == 4
        assert probe.positions == everything(log)
        committer_of(log).sync()  # what housekeeping does again and again; it has been said
    assert probe.completed


def test_a_full_disk_fails_the_commit_and_leaves_the_log_good():
    """F43."""
    filesystem, log = disk(sync="os")
    with log as log:
        probe = Probe(first=100)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 2)
        filesystem.fail_write = OSError(errno.ENOSPC, "full")
        with pytest.raises((LogFull, LogFailed)) as caught:
            fill(log, 1)
        filesystem.fail_write = None
        if isinstance(caught.value, LogFull):
            assert caught.value.retryable
            fill(log, 1)
            assert probe.positions == everything(log)


def test_who_finds_no_room_behind_others_is_told_and_a_retry_of_it_too(monkeypatch):
    """F43: the disk gets full in the middle of a group; what was written counts, the rest and its repetitions fail."""
    with opened() as log:
        held = Held(log, monkeypatch)
        append = files_of(log).append
        calls = itertools.count()

        def short(transactions):
            turn = next(calls)
            if turn == 0:
                return append(transactions)
            if turn == 1:
                return append(transactions[:1])
            raise LogFull(0, 1)

        monkeypatch.setattr(files_of(log), "append", short)
        outcomes = {}
        threads = [threading.Thread(target=fill, args=(log, 1))]
        threads[0].start()
        assert held.inside.wait(60)
        for place, producer in enumerate([("a", 1), ("b", 2), ("b", 2), ("b", 1)], 1):

            def commit(place=place, producer=producer):
                try:
                    outcomes[place] = log.commit([order(place)], producer=producer)
                except LogFull as error:
                    outcomes[place] = error

            threads.append(threading.Thread(target=commit))
            threads[-1].start()
            wait_until(lambda place=place: committer_of(log).waiting[0] == place)
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert outcomes[1].version == 2
        assert all(isinstance(outcomes[place], LogFull) for place in (2, 3, 4))
        monkeypatch.setattr(files_of(log), "append", append)
        assert log.commit([order(1)], producer=("b", 2)).version == 3
        assert log.head == Position(4, 0)


def test_commits_in_progress_finish_when_the_log_is_closed_and_later_ones_are_refused(monkeypatch):
    with opened() as log:
        held = Held(log, monkeypatch)
        done, refused = [], []

        def commit():
            try:
                done.append(log.commit([order(1)]).version)
            except LogClosed as error:
                refused.append(error)

        threads = [threading.Thread(target=commit) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert held.inside.wait(60)
        wait_until(lambda: committer_of(log).waiting[0] == 3)
        closer = threading.Thread(target=log.close)
        closer.start()
        wait_until(lambda: queue_of(committer_of(log)).closed)
        with pytest.raises(LogClosed):
            committer_of(log).commit(_sealed(log))
        held.go.set()
        for thread in [*threads, closer]:
            thread.join(60)
        assert sorted(done) == [1, 2, 3, 4]
        assert not refused


def _sealed(log):
    from publishers.mutations.mutation import columns_of
    from publishers.wal import seal_transaction

    return seal_transaction([columns_of([order(1)])], b"{}", options=log.options)


def test_a_spooled_transaction_is_one_version_and_leaves_no_spool():
    """E35: above the bound of memory a transaction is read from the WAL."""
    with opened(spool_bytes=2000, frame_bytes=1024, ring_events=5) as log:
        probe = Probe(first=10_000)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 2)
        commit = log.commit([upsert("order", str(n), {"x": "y" * 50}) for n in range(200)])
        assert (commit.version, commit.changes) == (3, 201)
        fill(log, 2)
        probe.wait_for(4 + 201 + 4)
        assert probe.positions == everything(log)
        assert not list(log.path.glob("spool*"))


def test_a_ring_made_while_a_group_with_a_spooled_transaction_is_published_covers_none_of_the_group(
    monkeypatch,
):
    """Invariant 3: the restart behind the spooled one does not move the start of a newer ring back."""
    with opened(spool_bytes=1200, frame_bytes=1024) as log:
        held = Held(log, monkeypatch)
        threads = [threading.Thread(target=fill, args=(log, 1, size)) for size in (1, 200, 1)]
        for place, thread in enumerate(threads):
            thread.start()
            assert held.inside.wait(60)
            wait_until(lambda place=place: committer_of(log).waiting[0] == place)
        first, second = Probe(first=1000), Probe(first=1000)
        feed = log.changes()
        snapshot = service_of(log).registry.snapshot

        def registering(newest):
            index = snapshot(newest)
            if newest == 3:
                feed.subscribe(first, executor=flow.INLINE)
            return index

        monkeypatch.setattr(service_of(log).registry, "snapshot", registering)
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert log.head == Position(4)
        log.changes(since=Position(3)).subscribe(second, executor=flow.INLINE)
        first.wait_for(203)
        second.wait_for(2)
        assert first.positions == [position for position in everything(log) if position.version > 1]
        assert second.positions == [Position(3, 0), Position(3, 1)]


def test_many_threads_and_subscribers_agree_with_the_log():
    """F13, F57: a stress of the whole path."""
    with opened(ring_events=16) as log:
        probes = [Probe(first=10**9) for _ in range(4)]
        for probe, executor in zip(probes, (flow.INLINE, None, flow.INLINE, None), strict=True):
            log.changes().subscribe(probe, executor=executor)
        in_threads(*[lambda: fill(log, scaled(200), 2)] * 4)
        truth = everything(log)
        for probe in probes:
            probe.wait_for(len(truth))
            assert probe.positions == truth
            assert probe.clean

"""The owner's face of a log, on the real disk."""

from unittest import mock
from uuid import uuid4

import pytest

from publishers.errors import LogBusy, LogClosed, LogFailed, LogForked, LogFull, NotALog
from publishers.model.position import Position
from publishers.wal import Follower, ProducerState, seal_transaction
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.head import HEAD_NAME, read_head
from tests.harness.inside import catalog_of, writer_of
from tests.publishers.wal.logs import OPTIONS, batch, commit, contents, fill_segments, opened, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import Clock

REAL = RealFileSystem()


def head_of(path, system=REAL):
    file = system.open(path / HEAD_NAME, "read")
    try:
        return read_head(file)
    finally:
        file.close()


def test_a_new_log_is_empty(path):
    log = opened(REAL, path=path)
    assert (log.appended, log.durable, log.visible, log.oldest, log.epoch) == (0, 0, 0, 0, 1)
    (epoch,) = log.epochs
    assert epoch[:2] == (1, 1)
    assert 0 < epoch.random < 2**64
    assert log.failed is None
    assert log.reader.read(log.reader.locate(1)) is None
    log.close()
    log.close()


def test_what_was_committed_is_there_after_reopening(path):
    log = opened(REAL, path=path)
    log_id = log.log_id
    assert [commit(log, b"a", b"b"), commit(log, b"c" * 10_000), commit(log)] == [1, 2, 3]
    found = contents(log)
    assert found == [(1, [b"a", b"b"]), (2, [b"c" * 10_000]), (3, [])]
    log.close()
    log = opened(REAL, path=path)
    assert (log.log_id, log.epoch, log.appended, log.durable, log.oldest) == (log_id, 2, 3, 3, 1)
    assert contents(log) == found
    first, second = log.epochs
    assert (first[:2], second[:2]) == ((1, 1), (2, 4))
    assert len({0, first.random, second.random}) == 3
    assert commit(log, b"d") == 4
    log.close()


def test_nothing_is_read_before_it_is_durable(path):
    log = opened(REAL, path=path)
    log.append([sealed(b"a")])
    assert (log.appended, log.durable) == (1, 0)
    assert contents(log) == []
    assert log.sync() == 1
    assert contents(log) == [(1, [b"a"])]
    log.close()


def test_under_the_os_policy_durable_means_written(path):
    log = opened(REAL, options(sync="os"), path=path)
    log.append([sealed(b"a")])
    assert log.durable == 1
    assert contents(log) == [(1, [b"a"])]
    assert head_of(path).durable == 0
    log.vouch(1)
    assert head_of(path).durable == 1
    log.close()


def test_a_group_is_one_write_and_keeps_its_order(path):
    log = opened(REAL, path=path)
    with mock.patch.object(writer_of(log).active, "file", wraps=writer_of(log).active.file) as file:
        done = log.append([sealed(b"%d" % number) for number in range(50)])
        log.sync()
    assert file.pwrite.call_count == 1
    assert file.sync.call_count == 1
    assert [item.version for item in done] == list(range(1, 51))
    assert [log.reader.locate(item.version) for item in done] == [item.location for item in done]
    assert contents(log) == [(number + 1, [b"%d" % number]) for number in range(50)]
    log.close()


def test_commit_times_rise_even_if_the_clock_does_not(path):
    clock = Clock(1000)
    log = opened(REAL, path=path, clock=clock)
    times = []
    for now in (1000, 1000, 500, 5000):
        clock.now = now
        times += [item.committed_at for item in log.append([sealed(b"a"), sealed(b"b")])]
    assert times == [1001, 1002, 1003, 1004, 1005, 1006, 5000, 5001]
    log.close()
    clock.now = 10
    log = opened(REAL, path=path, clock=clock)
    (done,) = log.append([sealed(b"a")])
    assert done.committed_at == 5002
    log.close()


def test_producers_are_known_at_once_and_after_reopening(path):
    producer, other = uuid4(), uuid4()
    clock = Clock(100)
    log = opened(REAL, path=path, clock=clock)
    assert log.producer(producer) is None
    log.append([sealed(b"a", producer=producer, sequence=7)])
    assert log.producer(producer) == ProducerState(7, 1, 101)
    log.append([sealed(b"a", producer=producer, sequence=9), sealed(b"b", producer=other, sequence=1)])
    log.close()
    log = opened(REAL, path=path, clock=clock)
    assert log.producer(producer) == ProducerState(9, 2, 102)
    assert log.producer(other) == ProducerState(1, 3, 103)
    log.close()


def test_producers_outlive_the_segments_they_wrote_to(path):
    producer = uuid4()
    log = opened(REAL, options(retain_bytes=0), path=path)
    log.append([sealed(b"a", producer=producer, sequence=7)])
    fill_segments(log, 3)
    while log.maintain():
        pass
    assert log.oldest > 1
    log.close()
    log = opened(REAL, path=path)
    assert log.producer(producer)[:2] == (7, 1)
    log.close()


@pytest.mark.parametrize("together", [1, 2, 5])
def test_the_producers_that_have_been_idle_longest_are_forgotten(path, together):
    """Invariant 12: no more than the bound are ever in memory, and the same ones after a roll."""
    log = opened(REAL, options(producers=3), path=path)
    producers = [uuid4() for _ in range(5)]
    named = [sealed(b"a", producer=producer, sequence=number) for number, producer in enumerate(producers, 1)]
    for begin in range(0, 5, together):
        log.append(named[begin : begin + together])
        assert log.producers == min(3, begin + together)
    for _ in range(2):
        assert [log.producer(producer) is not None for producer in producers] == [False] * 2 + [True] * 3
        assert log.producers_forgotten == 2
        fill_segments(log, 2)
    log.close()


def test_a_segment_is_rolled_by_size(path):
    """F41."""
    log = opened(REAL, path=path)
    fill_segments(log, 4)
    found = contents(log)
    assert [version for version, _ in found] == list(range(1, log.durable + 1))
    sizes = {name: (path / name).stat().st_size for name in REAL.listing(path) if name.endswith(".log")}
    assert len(sizes) == 4
    assert all(size <= OPTIONS.segment_bytes for size in sizes.values())
    assert head_of(path).segment == 4
    log.close()
    log = opened(REAL, path=path)
    assert contents(log) == found
    log.close()


def test_a_segment_is_rolled_by_age_unless_it_is_empty(path):
    """F41."""
    clock = Clock(1000)
    log = opened(REAL, options(segment_age=10.0), path=path, clock=clock)
    clock.now += 20_000_000
    commit(log, b"a")
    assert writer_of(log).active.number == 1
    commit(log, b"b")
    assert writer_of(log).active.number == 2
    commit(log, b"c")
    assert writer_of(log).active.number == 2
    log.close()


def test_a_segment_above_its_age_is_rolled_without_a_commit_and_followers_are_told(path):
    """F41: an idle log rolls once, never an empty segment."""
    clock = Clock(1000)
    log = opened(REAL, options(segment_age=10.0), path=path, clock=clock)
    clock.now += 20_000_000
    assert not log.overdue, "it is empty"
    commit(log, b"a")
    follower = Follower.open(path)
    assert log.overdue
    log.roll()
    assert (writer_of(log).active.number, log.overdue) == (2, False)
    clock.now += 20_000_000
    log.roll()
    assert writer_of(log).active.number == 2
    follower.refresh()
    assert [one[:3] for one in catalog_of(follower.reader).entries] == [
        one[:3] for one in catalog_of(log.reader).entries
    ]
    assert contents(follower) == contents(log) == [(1, [b"a"])]
    commit(log, b"b")
    follower.refresh()
    assert contents(follower) == [(1, [b"a"]), (2, [b"b"])]
    log.close()
    follower.close()
    assert not log.overdue
    with pytest.raises(LogClosed):
        log.roll()


def test_a_roll_by_age_that_fails_fails_the_log():
    """F41: but a full disk is no failure."""
    for kind, error in (("ENOSPC", LogFull), ("EIO", LogFailed)):
        system, clock = SimulatedFileSystem(), Clock(1000)
        log = opened(system, options(segment_age=10.0), clock=clock)
        commit(log, b"a")
        clock.now += 20_000_000
        system.faults = {system.operations + 3: kind}  # of the new file
        with pytest.raises(error):
            log.roll()
        assert (log.failed is None) is (error is LogFull)
        if error is LogFull:
            log.roll()
            assert writer_of(log).active.number == 2
            assert contents(log) == [(1, [b"a"])]


def test_a_transaction_larger_than_a_segment_has_one_of_its_own(path):
    log = opened(REAL, path=path)
    commit(log, b"a")
    big = [b"%06d" % number * 500 for number in range(100)]
    commit(log, *big)
    commit(log, b"c")
    assert [log.reader.locate(version).segment for version in (1, 2, 3)] == [1, 2, 3]
    assert contents(log)[1] == (2, big)
    assert log.reader.locate(2, 60).offset > log.reader.locate(2, 0).offset
    log.close()


def test_a_group_may_span_a_roll(path):
    log = opened(REAL, path=path)
    done = log.append([sealed(b"%d" % number * 20_000) for number in range(8)])
    log.sync()
    assert [item.version for item in done] == list(range(1, 9))
    assert len({item.location.segment for item in done}) > 1
    assert [version for version, _ in contents(log)] == list(range(1, 9))
    log.close()


def test_a_spooled_transaction_is_copied_in_as_one_version(path):
    """F37: its frames continue each other, as whoever reads them checks."""
    settings = options(spool_bytes=5000)
    log = opened(REAL, settings, path=path)
    system = RealFileSystem()
    given = [b"%04d" % number * 50 for number in range(100)]
    spooled = seal_transaction([batch(given)], options=settings, filesystem=system, directory=path)
    assert spooled.spool is not None
    done = log.append([sealed(b"before"), spooled, sealed(b"after")])
    spooled.discard()
    log.sync()
    assert len(done[1].frames) == len(spooled.payloads) > 1
    assert contents(log) == [(1, [b"before"]), (2, given), (3, [b"after"])]
    log.close()


def test_the_log_has_one_writer(path):
    log = opened(REAL, path=path)
    with pytest.raises(LogBusy) as caught:
        opened(REAL, path=path)
    assert caught.value.pid == REAL.process_id()
    log.close()
    opened(REAL, path=path).close()


@pytest.mark.parametrize("name", ["wal-abc.log", "wal-000000000000.log", "wal-1.idx", "notes.txt"])
def test_a_directory_of_something_else_is_refused_and_left_alone(path, name):
    path.mkdir(parents=True)
    (path / name).write_text("x")
    with pytest.raises(NotALog, match=name.replace(".", r"\.")):
        opened(REAL, path=path)
    assert REAL.listing(path) == [name]
    (path / name).unlink()
    path.rmdir()
    path.write_text("a file")
    with pytest.raises(NotALog, match="not a directory"):
        opened(REAL, path=path)


def test_foreign_files_in_a_log_are_ignored_unless_they_look_like_segments(path):
    log = opened(REAL, path=path)
    commit(log, b"a")
    log.close()
    (path / "notes.txt").write_text("x")
    (path / "slots").mkdir()
    log = opened(REAL, path=path)
    assert contents(log) == [(1, [b"a"])]
    log.close()
    (path / "wal-2.log").write_text("x")
    with pytest.raises(NotALog, match=r"wal-2\.log is named like a segment"):
        opened(REAL, path=path)


def test_unfinished_files_are_deleted_at_open(path):
    opened(REAL, path=path).close()
    (path / "spool-1-1.tmp").write_text("x")
    opened(REAL, path=path).close()
    assert not [name for name in REAL.listing(path) if name.endswith(".tmp")]


def test_a_closed_log_takes_nothing(path):
    log = opened(REAL, path=path)
    log.close()
    for call in (lambda: log.append([sealed(b"a")]), log.sync):
        with pytest.raises(LogClosed):
            call()
    assert log.maintain() is False


def test_closing_writes_a_clean_head(path):
    log = opened(REAL, path=path)
    commit(log, b"a")
    assert head_of(path).durable == 0
    log.close()
    head = head_of(path)
    assert (head.durable, head.flags) == (1, 1)
    log = opened(REAL, path=path)
    assert head_of(path).flags == 0
    log.abandon()


def test_vouching_makes_head_cover_a_version(path):
    log = opened(REAL, path=path)
    commit(log, b"a")
    commit(log, b"b")
    log.vouch(1)
    assert head_of(path).durable == 2
    counter = head_of(path).counter
    log.vouch(2)
    assert head_of(path).counter == counter
    log.append([sealed(b"c")])
    log.vouch(3)
    assert head_of(path).durable == log.durable == 3
    log.close()


def test_a_log_that_is_closed_vouches_for_nothing_more_and_has_not_failed(path):
    """A consumer may store a position while the log closes."""
    log = opened(REAL, path=path)
    commit(log, b"a")
    log.abandon()
    with pytest.raises(LogClosed):
        log.vouch(1)
    assert log.failed is None


def test_the_bytes_of_a_log_are_those_of_its_frames(path):
    log = opened(REAL, path=path)
    before = log.bytes
    (done,) = log.append([sealed(b"x" * 100)])
    assert log.bytes - before == done.end - done.location.offset
    log.close()


def test_an_interrupt_while_a_log_is_opened_leaves_it_to_the_next_one(path):
    """The lock is free, also within the same process."""
    opened(REAL, path=path).close()
    for place in ("Reader", "Retention"):
        with (
            mock.patch(f"publishers.wal.wal.{place}", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            opened(REAL, path=path)
    log = opened(REAL, path=path)
    assert commit(log, b"a") == 1
    log.close()


def test_a_group_of_nothing_is_nothing(path):
    log = opened(REAL, path=path)
    assert log.append([]) == []
    assert commit(log, b"a") == 1
    log.close()


def test_a_log_that_a_child_has_inherited_takes_nothing_and_is_closed_already():
    """F143: its files let go by themselves; here there are none that could."""
    system = SimulatedFileSystem()
    wal = opened(system)
    commit(wal, b"a")
    hold = wal.retention.holds.add("slot", Position(1))
    before = system.snapshot(wal.directory)
    wal.forked(7)
    with pytest.raises(LogClosed):
        commit(wal, b"b")
    with pytest.raises(LogForked, match="opened in process 7"):
        hold.move(Position(2))
    hold.release()
    assert not wal.maintain()
    wal.close()
    assert system.snapshot(wal.directory) == before

"""What the housekeeping of a log does: zeros ahead, a preallocated segment, HEAD, retention."""

import threading

import pytest

from publishers.errors import HistoryPruned
from publishers.model.position import Position
from publishers.wal import Rows, seal_rows
from publishers.wal.files.segment import segment_name
from tests.harness.inside import catalog_of, writer_of
from tests.publishers.wal.logs import OPTIONS, commit, contents, fill_segments, opened, options
from tests.publishers.wal.test_wal import REAL, head_of
from tests.simulation.workload import Clock


def test_housekeeping_fills_zeros_ahead_so_that_commits_do_not_grow_the_file(path):
    log = opened(REAL, options(fill_step=20_000), path=path)
    while log.maintain():
        pass
    size = (path / segment_name(1)).stat().st_size
    assert size >= 20_000
    commit(log, b"x" * 15_000)
    assert (path / segment_name(1)).stat().st_size == size
    assert log.maintain()
    assert (path / segment_name(1)).stat().st_size > size
    log.close()


def test_housekeeping_makes_a_spare_segment_that_the_roll_takes(path):
    log = opened(REAL, path=path)
    while not [name for name in REAL.listing(path) if name.startswith("spare")]:
        commit(log, b"x" * 8000)
        log.maintain()
    assert writer_of(log).active.number == 1
    fill_segments(log, 2)
    assert not [name for name in REAL.listing(path) if name.startswith("spare")]
    assert (path / segment_name(2)).stat().st_size >= OPTIONS.fill_step
    log.close()


def test_housekeeping_writes_head_after_its_time(path):
    clock = Clock(1000)
    log = opened(REAL, options(head_sync=1.0), path=path, clock=clock)
    commit(log, b"a")
    log.maintain()
    assert head_of(path).durable == 0
    clock.now += 1_001_000
    log.maintain()
    assert head_of(path).durable == 1
    log.close()


def test_housekeeping_beside_a_busy_writer_harms_nothing(path):
    log = opened(REAL, options(fill_step=30_000, retain_bytes=300_000), path=path)
    stop = threading.Event()

    def keep():
        while not stop.is_set():
            log.maintain()

    thread = threading.Thread(target=keep)
    thread.start()
    transaction = seal_rows(Rows(b"\x11", ["P"], [b"key"], [b"x" * 700], annotations=b""))
    for _ in range(1500):
        log.append([transaction])
    log.sync()
    stop.set()
    thread.join()
    while log.maintain():  # on a busy machine it may not have come to much
        pass
    assert log.failed is None
    assert log.oldest > 1
    assert [version for version, _ in contents(log)] == list(range(log.oldest, 1501))
    log.close()
    log = opened(REAL, path=path)
    assert log.durable == 1500
    log.close()


def test_retention_keeps_what_somebody_needs(path):
    log = opened(REAL, options(retain_bytes=0), path=path)
    fill_segments(log, 4)
    second, fourth = (catalog_of(log).entries[place].first_version for place in (1, 3))
    while log.maintain(second):
        pass
    assert log.oldest == second
    assert [version for version, _ in contents(log)] == list(range(second, log.durable + 1))
    with pytest.raises(HistoryPruned) as caught:
        log.reader.locate(second - 1)
    assert caught.value.oldest == Position(second)
    while log.maintain():
        pass
    assert log.oldest == fourth
    assert len([name for name in REAL.listing(path) if name.endswith(".log")]) == 1
    log.close()
    log = opened(REAL, path=path)
    assert (log.oldest, log.durable) == (fourth, contents(log)[-1][0])
    log.close()


def test_housekeeping_fills_a_segment_to_its_end_and_no_further(path):
    settings = options(segment_bytes=65536, fill_step=32768)
    log = opened(REAL, settings, path)
    while log.bytes < 65536 - 12_000:
        commit(log, b"x" * 3000)
        while log.maintain():
            pass
    live = writer_of(log).active
    assert live.filled == 65536 == (path / segment_name(1)).stat().st_size
    assert live.filled - live.offset < 16384
    assert not log.maintain()
    fill_segments(log, 2)
    assert not live.fill(1 << 20)  # it is closed by now, and as long as its frames
    assert (path / segment_name(1)).stat().st_size == live.offset
    log.close()

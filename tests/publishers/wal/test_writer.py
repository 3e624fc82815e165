"""A disk that fails under the writer."""

from unittest import mock
from uuid import uuid4

import pytest

from publishers.errors import LogFailed, LogFull
from publishers.wal import Wal
from publishers.wal.live import LiveSegment
from tests.publishers.wal.logs import OPTIONS, commit, contents, opened, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Clock


def failing(kind, operations_ahead=1, **overrides):
    system = SimulatedFileSystem()
    log = opened(system, options(**overrides))
    commit(log, b"a")
    system.faults = {system.operations + operations_ahead: kind}
    return system, log


def test_a_failed_sync_fails_the_log_for_good():
    system, log = failing("EIO", 2)
    log.append([sealed(b"b")])
    with pytest.raises(LogFailed) as caught:
        log.sync()
    assert caught.value.outcome == "unknown"
    assert "EIO" in (log.failed or "")
    for call in (lambda: log.append([sealed(b"c")]), log.sync, lambda: log.vouch(1)):
        with pytest.raises(LogFailed) as caught:
            call()
        assert caught.value.outcome == "refused"
    assert contents(log) == [(1, [b"a"])]
    assert log.maintain() is False
    log.close()
    assert opened(system).durable >= 1


def test_a_full_disk_undoes_the_group_and_leaves_the_log_good():
    system, log = failing("ENOSPC")
    end = log.bytes
    with pytest.raises(LogFull) as caught:
        log.append([sealed(b"b"), sealed(b"c", producer=uuid4(), sequence=1)])
    assert caught.value.needed > 0
    assert (log.appended, log.bytes, log.failed) == (1, end, None)
    assert commit(log, b"d") == 2
    log.abandon()
    system.power_cut()
    assert contents(opened(system)) == [(1, [b"a"]), (2, [b"d"])]


def test_a_group_of_which_a_part_is_in_a_sealed_segment_is_shortened_when_the_disk_is_full():
    system = SimulatedFileSystem(capacity=150_000)
    log = opened(system)
    group = [sealed(b"%d" % number * 30_000) for number in range(8)]
    done = log.append(group)
    assert 0 < len(done) < len(group)
    assert log.appended == len(done)
    with pytest.raises(LogFull):
        log.append(group[len(done) :])
    assert log.failed is None
    system.capacity *= 4
    assert len(log.append(group[len(done) :])) == len(group) - len(done)
    log.sync()
    assert len(contents(log)) == len(group)
    log.close()


def test_an_undo_that_fails_fails_the_log():
    system, log = failing("ENOSPC")
    number = system.operations
    for ahead in range(2, 8):
        system.faults[number + ahead] = "EIO"
    with pytest.raises(LogFailed) as caught:
        log.append([sealed(b"b")])
    assert caught.value.outcome == "unknown"
    assert log.failed


def test_a_write_error_fails_the_log():
    _, log = failing("EIO")
    with pytest.raises(LogFailed) as caught:
        log.append([sealed(b"b")])
    assert caught.value.outcome == "unknown"


def test_an_interrupt_in_the_middle_of_a_write_fails_the_log():
    _, log = failing("EIO", 1000)
    with (
        mock.patch.object(LiveSegment, "put", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.append([sealed(b"b")])
    assert log.failed == "KeyboardInterrupt"


def test_an_error_of_housekeeping_fails_the_log_and_lack_of_room_does_not():
    _, log = failing("ENOSPC", 1, fill_step=50_000)
    log.maintain()
    assert log.space_low
    assert log.failed is None
    while log.maintain():
        pass
    assert not log.space_low
    _, log = failing("EIO", 1, fill_step=50_000)
    log.maintain()
    assert log.failed
    with pytest.raises(LogFailed):
        log.append([sealed(b"b")])


def test_a_disk_that_fails_at_opening_says_which_way():
    for kind, error in (("EIO", LogFailed), ("ENOSPC", LogFull)):
        system = SimulatedFileSystem()
        commit(opened(system), b"a")
        system.kill()
        system.faults = {system.operations + 1: kind}
        with pytest.raises(error):
            opened(system)
        assert contents(opened(system)) == [(1, [b"a"])]


def test_a_slow_sync_is_logged(caplog):
    clock = Clock()
    log = Wal.open(LOG, OPTIONS, filesystem=SimulatedFileSystem(), clock=clock)
    log.append([sealed(b"a")])

    class Slow:
        def sync(self):
            clock.now += 1_500_000

    log._writer.live.file = Slow()
    log.sync()
    assert "a sync took 1.5 s" in caplog.text

"""A disk that fails under the writer."""

from unittest import mock
from uuid import uuid4

import pytest

from publishers.errors import LogFailed, LogFull
from publishers.wal import Wal
from publishers.wal.append import appender
from publishers.wal.append.active_segment import ActiveSegment
from publishers.wal.files.segment import segment_name
from tests.harness.constants import set_constant
from tests.harness.inside import writer_of
from tests.publishers.wal.logs import OPTIONS, commit, contents, opened, options, sealed
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
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


@pytest.mark.parametrize("ahead", range(1, 6))
def test_a_group_with_large_payloads_is_undone_whichever_of_its_writes_fails(ahead, monkeypatch):
    """F43: a large payload has a write of its own, between those that hold what is around it."""
    set_constant(monkeypatch, appender, "_LARGE", 300)
    system, log = failing("ENOSPC", ahead)
    end = log.bytes
    group = [sealed(b"b"), sealed(b"c" * 401), sealed(b"d"), sealed(b"e" * 404, b"f")]
    with pytest.raises(LogFull):
        log.append(group)
    assert (log.appended, log.bytes, log.failed) == (1, end, None)
    assert [done.version for done in log.append(group)] == [2, 3, 4, 5]
    (alone,) = log.append([sealed(b"g" * 300)])
    assert alone.version == 6
    log.sync()
    log.abandon()
    system.power_cut()
    bodies = [[b"a"], [b"b"], [b"c" * 401], [b"d"], [b"e" * 404, b"f"], [b"g" * 300]]
    assert contents(opened(system)) == list(enumerate(bodies, 1))


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
        mock.patch.object(ActiveSegment, "put", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.append([sealed(b"b")])
    assert log.failed == "KeyboardInterrupt"


def test_an_error_of_housekeeping_fails_the_log_and_lack_of_room_does_not():
    _, log = failing("ENOSPC", 1, fill_step=50_000, reserve_bytes=0)
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
        bare = options(reserve_bytes=0)
        commit(opened(system, bare), b"a")
        system.kill()
        system.faults = {system.operations + 1: kind}
        with pytest.raises(error):
            opened(system, bare)
        assert contents(opened(system, bare)) == [(1, [b"a"])]


def test_a_slow_sync_is_logged(caplog):
    clock = Clock()
    log = Wal.open(LOG, OPTIONS, filesystem=SimulatedFileSystem(), clock=clock)
    log.append([sealed(b"a")])

    class Slow:
        def sync(self):
            clock.now += 1_500_000

    writer_of(log).active.file = Slow()
    log.sync()
    assert "a sync took 1.5 s" in caplog.text


def test_a_spooled_transaction_that_finds_no_room_leaves_no_trace():
    system = SimulatedFileSystem()
    settings = options(spool_bytes=6000, fill_step=0)
    log = opened(system, settings)
    commit(log, b"a")
    end, size = log.bytes, len(system.content(LOG / segment_name(1)))
    spooled = sealed(*[b"x" * 3000] * 10, settings=settings, spool=system)
    system.faults = {system.operations + 4: "ENOSPC"}
    with pytest.raises(LogFull) as caught:
        log.append([spooled])
    assert caught.value.needed == spooled.size
    assert (log.bytes, log.appended) == (end, 1)
    assert len(system.content(LOG / segment_name(1))) == size
    log.append([spooled])
    spooled.discard()
    log.sync()
    assert contents(log)[1] == (2, [b"x" * 3000] * 10)


def test_a_roll_that_finds_no_room_can_be_tried_again():
    for ahead in range(1, 9):
        system = SimulatedFileSystem()
        log = opened(system)
        commit(log, b"x" * 60_000)
        system.faults = {system.operations + ahead: "ENOSPC"}
        try:
            commit(log, b"y" * 60_000)
        except LogFull:
            assert log.failed is None
            commit(log, b"y" * 60_000)
        except LogFailed:
            assert "sync" in (log.failed or "")
            continue
        assert [version for version, _ in contents(log)] == [1, 2]
        log.abandon()
        system.power_cut()
        assert opened(system).durable == 2


def test_the_free_space_is_told_where_it_is_known():
    for answer, free in ((1234, 1234), (OSError("unknown"), None)):
        system, log = failing("ENOSPC")
        with mock.patch.object(
            SimulatedFileSystem,
            "free_bytes",
            side_effect=[answer] if free is None else None,
            return_value=answer,
        ):
            with pytest.raises(LogFull) as caught:
                log.append([sealed(b"b")])
            assert caught.value.free == free
        system.kill()


def test_a_second_spare_segment_is_discarded():
    system = SimulatedFileSystem()
    log = opened(system)
    for _ in range(2):
        writer_of(log).spares.make()
    assert len([name for name in system.listing(LOG) if name.startswith("spare")]) == 1
    log.close()
    assert not [name for name in system.listing(LOG) if name.startswith("spare")]


def test_closing_a_log_whose_disk_fails_says_so():
    for kind, ahead in (("EIO", 2), ("ENOSPC", 2), ("EIO", 1), ("ENOSPC", 1)):
        system = SimulatedFileSystem()
        log = opened(system)
        commit(log, b"a")
        system.faults = {system.operations + ahead: kind}
        if (kind, ahead) == ("ENOSPC", 1):
            log.close()
        else:
            with pytest.raises(LogFailed):
                log.close()
        assert contents(opened(system)) == [(1, [b"a"])]


def test_vouching_on_a_disk_that_fails_says_which_way():
    _, log = failing("ENOSPC", reserve_bytes=0)
    with pytest.raises(LogFull):
        log.vouch(1)
    log.vouch(1)
    _, log = failing("EIO")
    with pytest.raises(LogFailed):
        log.vouch(1)
    assert log.failed


def test_an_interrupt_during_a_sync_fails_the_log():
    _, log = failing("EIO", 1000)
    log.append([sealed(b"b")])
    with (
        mock.patch.object(SimulatedFile, "sync", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.sync()
    assert log.failed


def test_a_failure_of_housekeeping_during_a_sync_is_unknown_to_the_commit():
    _, log = failing("EIO", 1000)
    log.append([sealed(b"b")])
    with (
        mock.patch.object(SimulatedFile, "sync", side_effect=lambda: writer_of(log).health.fail("elsewhere")),
        pytest.raises(LogFailed) as caught,
    ):
        log.sync()
    assert caught.value.outcome == "unknown"


def test_no_more_ends_are_kept_than_anybody_needs():
    log = opened(SimulatedFileSystem(), options(segment_bytes=8 << 20))
    transaction = sealed(b"x")
    for _ in range(5000):
        log.append([transaction])
    log.append([transaction] * 10)
    log.sync()
    assert len(writer_of(log).ends) <= 4096 + 10
    log.publish_tail(log.durable)
    assert not writer_of(log).ends or len(writer_of(log).ends) <= 4096

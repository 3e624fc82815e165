"""Hard links: what the owner has deleted, a consumer still reads. Two real processes do it in tests/crash/test_links.py."""

import contextlib
import errno
from unittest import mock

import pytest

from publishers.errors import ConsumerBusy, HistoryPruned, InvalidOption, LogBusy, LogFailed
from publishers.model.position import Position
from publishers.wal import Follower
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.segment import segment_name, segment_number
from publishers.wal.keep.hard_links import held_directory
from tests.harness.inside import catalog_of, writer_of
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG

REAL = RealFileSystem()
FORGETFUL = options(retain_bytes=0)


def linked(system, consumer="spark"):
    return [number for name in system.listing(LOG / "held" / consumer) if (number := segment_number(name))]


def kept(system):
    return [number for name in system.listing(LOG) if (number := segment_number(name))]


def tidy(log):
    while log.maintain():
        pass


def consumer(system, name="spark", path=LOG):
    return Follower.open(path, filesystem=system, consumer=name)


@pytest.mark.parametrize("real", [False, True])
def test_a_consumer_reads_to_the_end_what_retention_has_deleted(tmp_path, real):
    """F46: the owner deletes, the linked consumer still reads everything, and goes on with what comes."""
    system, path = (REAL, tmp_path) if real else (SimulatedFileSystem(), LOG)
    log = opened(system, FORGETFUL, path=path)
    log.links.add("spark")
    reader = consumer(system, path=path)
    fill_segments(log, 4)
    everything = contents(log)
    tidy(log)
    assert log.reader.oldest > 1
    assert log.links.held_bytes > 3 * 60_000
    assert reader.refresh() == log.durable
    assert reader.oldest == 1
    assert contents(reader) == everything
    with contextlib.closing(Follower.open(path, filesystem=system)) as other, pytest.raises(HistoryPruned):
        other.reader.locate(1)
    commit(log, b"more")
    reader.refresh()
    assert contents(reader)[-1] == (log.durable, [b"more"])
    reader.close()
    log.close()


def test_links_go_as_the_consumer_goes_on_and_the_last_one_stays():
    """F46, F120: the consumer removes them, by its own position, and keeps what it has not read."""
    system = SimulatedFileSystem()
    log = opened(system, FORGETFUL)
    log.links.add("spark")
    fill_segments(log, 4)
    tidy(log)
    assert kept(system) == [4]
    assert linked(system) == [1, 2, 3, 4]
    reader = consumer(system)
    second = catalog_of(reader.reader).entries[1].first_version
    assert reader.release(second - 1) == 0
    assert reader.release(second) == 1
    assert linked(system) == [2, 3, 4]
    assert (reader.oldest, contents(reader)[0][0]) == (second, second)
    with pytest.raises(HistoryPruned) as caught:
        reader.reader.locate(1)
    assert caught.value.oldest == Position(second)
    assert reader.release(10**9) == 2
    assert linked(system) == [4]
    assert reader.release(10**9) == 0
    tidy(log)
    assert log.links.held_bytes == 0
    assert linked(system) == [4], "what was released is not linked again"
    fill_segments(log, 2)
    assert linked(system) == [4, 5]
    log.close()


def test_a_consumer_that_comes_later_begins_with_what_is_kept():
    system = SimulatedFileSystem()
    log = opened(system, FORGETFUL)
    fill_segments(log, 3)
    tidy(log)
    log.links.add("late")
    log.links.add("late")
    assert log.links.consumers == ("late",)
    assert linked(system, "late") == kept(system) == [3]
    assert contents(consumer(system, "late")) == contents(log)
    log.close()


def test_above_the_bound_no_more_is_linked_and_the_consumer_is_told():
    """F46: wal.md 11: stop linking, and say so; what was linked is read up to the gap."""
    system = SimulatedFileSystem()
    log = opened(system, options(retain_bytes=0, held_max_bytes=100_000))
    log.links.add("slow")
    reader = consumer(system, "slow")
    fill_segments(log, 3)
    tidy(log)
    assert log.links.held_bytes > 100_000
    assert "GAP-000000000004" in system.listing(LOG / "held" / "slow")
    fill_segments(log, 3)
    tidy(log)
    assert linked(system, "slow") == [1, 2, 3]
    reader.refresh()
    behind = log.reader.oldest
    with pytest.raises(HistoryPruned) as caught:
        contents(reader)
    assert caught.value.oldest == Position(behind)
    assert reader.reader.statistics.frames > 3, "up to the gap it was read"
    assert reader.epochs == log.epochs
    reader.close()
    log.links.add("slow")
    assert linked(system, "slow") == kept(system)
    assert not [name for name in system.listing(LOG / "held" / "slow") if name.startswith("GAP")]
    assert contents(consumer(system, "slow")) == contents(log)
    log.close()


def test_a_missing_link_is_a_gap_and_not_a_damage():
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    fill_segments(log, 4)
    reader = consumer(system)
    third = catalog_of(reader.reader).entries[2].first_version
    system.unlink(LOG / "held" / "spark" / segment_name(2))
    with pytest.raises(HistoryPruned) as caught:
        contents(reader)
    assert caught.value.oldest == Position(third)
    reader.close()
    for number in (3, 4):
        system.unlink(LOG / "held" / "spark" / segment_name(number))
    reader = consumer(system)
    with pytest.raises(HistoryPruned) as caught:
        contents(reader)
    assert caught.value.oldest == Position(third)
    reader.close()
    system.unlink(LOG / "held" / "spark" / segment_name(1))
    with pytest.raises(HistoryPruned):
        consumer(system)
    log.close()


def test_one_process_at_a_time_is_a_consumer(tmp_path):
    """F123, F46: the second one is refused with the process id of the first."""
    log = opened(REAL, path=tmp_path)
    log.links.add("spark")
    first = consumer(REAL, path=tmp_path)
    with pytest.raises(ConsumerBusy) as caught:
        consumer(REAL, path=tmp_path)
    assert caught.value.pid == REAL.process_id()
    assert isinstance(caught.value, LogBusy)
    first.close()
    consumer(REAL, path=tmp_path).close()
    log.close()


def test_who_has_no_links_is_refused():
    system = SimulatedFileSystem()
    log = opened(system)
    with pytest.raises(InvalidOption, match="consumer"):
        consumer(system)
    for name in ("", "..", "a/b", "-x", "x" * 65, "ä"):
        with pytest.raises(InvalidOption, match="consumer"):
            log.links.add(name)
    with pytest.raises(InvalidOption, match="links through which"):
        Follower.open(LOG, filesystem=system).release(1)
    log.links.add("spark")
    log.links.remove("spark")
    log.links.remove("spark")
    assert log.links.consumers == ()
    with pytest.raises(InvalidOption):
        consumer(system)
    log.close()


def test_links_need_the_file_system_of_the_log():
    """F46: checked at the start."""
    system = SimulatedFileSystem()
    log = opened(system)
    with (
        mock.patch.object(system, "link", side_effect=OSError(errno.EXDEV, "another device")),
        pytest.raises(InvalidOption, match="file system"),
    ):
        log.links.add("far")
    log.close()
    with (
        mock.patch.object(system, "link", side_effect=OSError(errno.EXDEV, "another device")),
        pytest.raises(InvalidOption, match="file system"),
    ):
        opened(system)
    opened(system).close()
    assert linked(system, "far") == [1]


def test_a_consumer_whose_links_cannot_be_made_holds_nobody_up(caplog):
    """F46, F120: they are made later, as long as the originals are there."""
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    with mock.patch.object(system, "link", side_effect=OSError(errno.EMLINK, "too many links")):
        fill_segments(log, 3)
        log.maintain()
        log.maintain()
    assert log.failed is None
    assert caplog.text.count("spark") == 3
    assert linked(system) == [1]
    tidy(log)
    assert linked(system) == [1, 2, 3]
    system.make_directory(LOG / "held" / "gone")
    system.remove_directory(LOG / "held" / "gone")
    tidy(log)
    assert contents(consumer(system)) == contents(log)
    log.close()


def test_a_directory_of_links_that_cannot_be_synced_fails_the_log():
    """F46: nothing is known of the disk then."""
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    sync_directory = system.sync_directory

    def failing(path):
        if path.name == "spark":
            raise OSError(errno.EIO, "simulated")
        sync_directory(path)

    with mock.patch.object(system, "sync_directory", failing), pytest.raises(LogFailed):
        fill_segments(log, 2)
    assert log.failed is not None


def test_a_power_cut_at_any_point_takes_nothing_from_a_consumer():
    """F46: whatever was acknowledged since it was linked is read through its links, though retention deletes at once."""
    start = SimulatedFileSystem()
    log = opened(start, FORGETFUL)
    log.links.add("spark")
    first = start.operations
    cycle(log)
    last = start.operations
    assert last - first > 40
    for seed, operation in enumerate(range(first + 1, last + 1)):
        for again in range(2):
            system = SimulatedFileSystem(seed * 2 + again)
            log = opened(system, FORGETFUL)
            log.links.add("spark")
            system.faults = {operation: "crash"}
            given: list[tuple[int, list[bytes]]] = []
            with pytest.raises(PowerCut):
                cycle(log, given)
            system.power_cut()
            log = opened(system, FORGETFUL)
            commit(log, b"after")
            tidy(log)
            found = contents(consumer(system))
            assert [version for version, _ in found] == list(range(1, log.durable + 1))
            assert found[: len(given)] == given
            log.close()


def cycle(log, given=None):
    number = 0
    while len(catalog_of(log.reader).entries) and writer_of(log).active.number < 4:
        number += 1
        body = b"%06d" % number * 3000
        version = commit(log, body)
        if given is not None:
            given.append((version, [body]))
        log.maintain()


def test_a_segment_that_was_cut_off_does_not_stay_linked():
    """F46: its number comes again, with other content."""
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    system.replace(held_directory(LOG, "spark") / segment_name(2), b"what was withheld, and forgotten")
    fill_segments(log, 2)
    assert contents(consumer(system)) == contents(log)
    log.close()


def test_a_segment_that_is_linked_twice_at_once_is_linked():
    """F46: housekeeping may look for missing links while a roll makes the newest one."""
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    link = system.link
    with mock.patch.object(system, "link", side_effect=OSError(errno.EMLINK, "too many links")):
        fill_segments(log, 2)

    def late(source, target):
        link(source, target)  # by the roll, at this moment
        link(source, target)

    with mock.patch.object(system, "link", late):
        assert log.maintain()
    assert log.failed is None
    assert linked(system) == [1, 2]
    tidy(log)
    assert contents(consumer(system)) == contents(log)
    log.close()


def test_links_that_housekeeping_cannot_make_durable_fail_the_log():
    """F46: unlike links that cannot be made, because nothing is known of the disk then."""
    system = SimulatedFileSystem()
    log = opened(system)
    log.links.add("spark")
    with mock.patch.object(system, "link", side_effect=OSError(errno.EMLINK, "too many links")):
        fill_segments(log, 2)
    sync_directory = system.sync_directory

    def failing(path):
        if path.name == "spark":
            raise OSError(errno.EIO, "simulated")
        sync_directory(path)

    with mock.patch.object(system, "sync_directory", failing):
        log.maintain()
    assert "sync of the directory" in log.failed

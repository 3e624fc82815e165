import threading
from unittest import mock

import pytest

from publishers.errors import HistoryPruned, WalCorrupted
from publishers.wal import Follower, Location
from publishers.wal.files.segment import SparseIndex, index_name, segment_name
from publishers.wal.read.reader import BLOCK_BYTES, Reader
from tests.harness.inside import catalog_of, writer_of
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Clock


@pytest.fixture
def system():
    return SimulatedFileSystem()


def fresh(log):
    """A reader of its own with empty caches."""
    return Reader(catalog_of(log), lambda: writer_of(log).limit)


def walk(reader, location):
    while (frame := reader.read(location)) is not None:
        yield frame
        location = frame.next


def test_reading_on_costs_a_read_per_block_and_not_per_frame(system):
    log = opened(system, options(segment_bytes=8 << 20))
    log.append([sealed(b"x" * 200) for _ in range(3000)])
    log.sync()
    reader = fresh(log)
    assert sum(1 for _ in walk(reader, Location(1, 64))) == 3000
    statistics = reader.statistics
    assert statistics.frames == 3000 + 2
    assert statistics.bytes == log.bytes - 64
    assert statistics.preads <= statistics.bytes // BLOCK_BYTES + 2


def test_blocks_are_shared_by_those_who_read_the_same(system):
    log = opened(system)
    fill_segments(log, 2)
    reader = fresh(log)
    first = [frame.header for frame in walk(reader, Location(1, 64))]
    preads = reader.statistics.preads
    assert [frame.header for frame in walk(reader, Location(1, 64))] == first
    assert reader.statistics.preads == preads


def test_a_frame_larger_than_a_block_is_read_whole(system):
    settings = options(frame_bytes=4 << 20, segment_bytes=32 << 20)
    log = opened(system, settings)
    for size in (10, 3 * BLOCK_BYTES, 10, 5 << 20, 10):
        log.append([sealed(b"y" * size, settings=settings)])
    log.sync()
    reader = fresh(log)
    assert [len(frame.columns.body[0]) for frame in walk(reader, reader.locate(1))] == [
        10,
        3 * BLOCK_BYTES,
        10,
        5 << 20,
        10,
    ]


def test_every_change_is_located(system):
    log = opened(system)
    commit(log, b"one")
    commit(log, *[b"x" * 1500] * 30)
    commit(log)
    fill_segments(log, 3)
    reader = fresh(log)
    for version in range(1, log.durable + 1):
        for index in range({2: 31, 3: 1}.get(version, 2)):
            frame = reader.read(reader.locate(version, index))
            assert frame is not None
            header = frame.header
            assert header.version == version
            assert (index or 1) in range(header.first_index, header.first_index + max(header.count, 1))
    # Behind the last change of a version the next one follows.
    assert reader.read(reader.locate(2, 31)).header.version == 3
    end = reader.locate(log.durable + 1)
    assert reader.locate(log.durable + 100) == end
    assert reader.read(end) is None
    commit(log, b"more")
    assert reader.read(end).header.version == log.durable


def test_locating_is_helped_by_the_index(system):
    settings = options(segment_bytes=4 << 20)
    log = opened(system, settings)
    for _ in range(30):
        log.append([sealed(b"x" * 3000) for _ in range(30)])
    log.sync()
    reader = fresh(log)
    reader.locate(890)
    assert reader.statistics.frames <= 40
    log.close()
    log = opened(system, settings)
    log.reader.locate(890)
    assert log.reader.statistics.frames <= 40


def test_an_end_before_a_roll_leads_on_to_the_next_segment(system):
    log = opened(system)
    commit(log, b"a")
    end = log.reader.locate(2)
    fill_segments(log, 3)
    assert log.reader.read(end).header.version == 2
    last = max(frame.header.version for frame in walk(log.reader, end))
    assert last == log.durable


def test_a_frame_is_taken_apart_when_somebody_asks(system):
    log = opened(system)
    commit(log, b"a")
    frame = log.reader.read(log.reader.locate(1))
    assert frame._decoded is None
    assert frame.annotations == b"{}"
    assert frame.columns is frame.columns
    assert frame.columns.entity_types == ("Product",)


def test_compressed_frames_are_read_like_others(system):
    """F48."""
    settings = options(compress=True, frame_bytes=60_000)
    log = opened(system, settings)
    log.append([sealed(b"z" * 20_000, settings=settings)])
    log.sync()
    assert contents(log) == [(1, [b"z" * 20_000])]
    assert log.bytes < 3000


def test_damage_below_the_limit_is_reported_with_its_place(system):
    log = opened(system)
    commit(log, b"a" * 300)
    commit(log, b"b" * 300)
    place = log.reader.locate(2)
    content = system.content(LOG / segment_name(1))
    for at in (0, 3, 5, 17, 90, 300):
        content[place.offset + at] ^= 255
        with pytest.raises(WalCorrupted) as caught:
            list(walk(fresh(log), log.reader.locate(1)))
        assert (caught.value.segment, caught.value.offset) == place
        content[place.offset + at] ^= 255
    content[place.offset : place.offset + 80] = bytes(80)
    with pytest.raises(WalCorrupted, match="there is no frame"):
        fresh(log).read(place)


def test_a_good_frame_in_the_wrong_place_breaks_the_chain(system):
    log = opened(system)
    for body in (b"aaa", b"bbb", b"ccc"):
        commit(log, body)
    first, second, third = (log.reader.locate(version).offset for version in (1, 2, 3))
    content = system.content(LOG / segment_name(1))
    content[second:third] = content[first:second]
    with pytest.raises(WalCorrupted, match="does not continue"):
        list(walk(fresh(log), Location(1, first)))


def test_the_chain_is_followed_across_segments(system):
    log = opened(system)
    fill_segments(log, 3)
    reader = fresh(log)
    last = catalog_of(log).entries[1].first_version - 1
    reader.read(reader.locate(last))
    (key,) = [key for key in reader._links if key[0] == 1][-1:]
    reader._links[key] ^= 1
    with pytest.raises(WalCorrupted, match="does not continue") as caught:
        reader.read(Location(*key))
    assert caught.value.segment == 2


def test_a_payload_that_is_none_is_reported(system):
    """F37: with its place, although its checksum is right."""
    log = opened(system)
    transaction = sealed(b"a")
    payload = transaction.payloads[0]
    log.append([transaction._replace(payloads=(payload._replace(count=5),), count=5)])
    log.sync()
    frame = log.reader.read(log.reader.locate(1))
    with pytest.raises(WalCorrupted, match="payload") as caught:
        _ = frame.columns
    assert (caught.value.segment, caught.value.offset) == (frame.location.segment, frame.location.offset)


def test_a_read_error_or_a_short_file_is_damage(system):
    log = opened(system)
    commit(log, b"a" * 300)
    commit(log, b"b" * 300)
    place = log.reader.locate(2)
    system.read_faults = {system.reads + 1}
    with pytest.raises(WalCorrupted, match="cannot be read"):
        fresh(log).read(place)
    del system.content(LOG / segment_name(1))[place.offset + 200 :]
    with pytest.raises(WalCorrupted, match="the file ends in the middle"):
        fresh(log).read(place)


def test_a_segment_that_vanished_is_damage_and_one_that_was_pruned_is_history(system):
    log = opened(system, options(retain_bytes=0))
    fill_segments(log, 3)
    system.unlink(LOG / segment_name(2))
    with pytest.raises(WalCorrupted, match="missing"):
        fresh(log).read(Location(2, 64))
    system.unlink(LOG / segment_name(1))
    catalog_of(log).drop(3)
    with pytest.raises(HistoryPruned):
        fresh(log).read(Location(1, 64))


def test_few_files_are_open_however_many_segments_are_read(system):
    log = opened(system)
    fill_segments(log, 20)
    contents(log)
    assert len(catalog_of(log)._handles) <= 8
    log.close()
    assert not catalog_of(log)._handles


def test_a_file_that_is_being_read_stays_open_until_the_read_is_through(system):
    log = opened(system)
    fill_segments(log, 3)
    catalog = catalog_of(log)
    handle = catalog._acquire(1)
    catalog.drop(2)
    assert handle.file.pread(8, 0) == b"PENSTK01"
    catalog._release(handle)
    with pytest.raises(OSError, match="closed"):
        handle.file.pread(8, 0)


def test_many_threads_read_the_same_reader(system):
    log = opened(system)
    fill_segments(log, 6)
    expected = [frame.header.crc for frame in walk(fresh(log), Location(1, 64))]
    reader = fresh(log)
    found: list[list[int]] = []
    threads = [
        threading.Thread(
            target=lambda: found.append([frame.header.crc for frame in walk(reader, Location(1, 64))])
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


def test_the_memory_of_the_chain_is_bounded(system):
    log = opened(system, options(segment_bytes=1 << 20))
    log.append([sealed(b"x") for _ in range(2000)])
    log.sync()
    reader = fresh(log)
    list(walk(reader, Location(1, 64)))
    assert len(reader._links) <= 256
    assert len(reader._blocks) <= 8


def test_nothing_above_the_limit_is_read_even_before_its_end(system):
    log = opened(system)
    for body in (b"a", b"b", b"c"):
        commit(log, body)
    reader = Reader(catalog_of(log), lambda: writer_of(log).limit._replace(version=2))
    assert [frame.header.version for frame in walk(reader, Location(1, 64))] == [1, 2]


def test_a_limit_in_the_middle_of_a_frame_is_damage(system):
    log = opened(system)
    commit(log, b"a" * 100)
    limit = writer_of(log).limit
    for short in (8, 150):
        reader = Reader(catalog_of(log), lambda short=short: limit._replace(offset=limit.offset - short))
        with pytest.raises(WalCorrupted, match="ends beyond the readable log"):
            list(walk(reader, Location(1, 64)))


def test_locating_starts_again_when_retention_strikes_in_the_middle(system):
    log = opened(system)
    fill_segments(log, 4)
    reader = fresh(log)
    stale = catalog_of(log).entries[0]
    wanted = catalog_of(log).entries[3].first_version
    catalog_of(log).drop(2)
    system.unlink(LOG / segment_name(1))
    find = catalog_of(log).find
    answers = [stale]
    with mock.patch.object(
        catalog_of(log), "find", lambda version: answers.pop() if answers else find(version)
    ):
        assert reader.locate(wanted).segment == 4


def test_the_index_of_the_last_segment_is_never_forgotten(system):
    log = opened(system)
    fill_segments(log, 3)
    live = catalog_of(log).index(3)
    for number in range(100, 150):
        catalog_of(log)._keep_index(number, SparseIndex())
    assert catalog_of(log).index(3) is live
    assert len(catalog_of(log)._indexes) == 32


def test_reading_may_begin_at_the_end_of_a_closed_segment(system):
    log = opened(system)
    commit(log, b"a")
    fill_segments(log, 2)
    reader = fresh(log)
    first = catalog_of(log).entries[1].first_version
    assert reader.read(Location(1, catalog_of(log).size(1))).header.version == first


def test_a_block_that_was_used_last_is_found_first(system):
    log = opened(system)
    commit(log, b"a")
    reader = fresh(log)
    end = log.bytes
    block = reader._block(1, 64, 80, end)
    assert reader._block(1, 64, 80, end) is block
    assert reader.statistics.preads == 1


@pytest.mark.parametrize("by_index", [True, False])
def test_a_closed_segment_that_is_cut_short_is_reported_and_not_skipped(by_index):
    """F37: also where the first place that is looked for lies behind the cut."""
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=0))
    fill_segments(log, 2)
    while log.maintain():
        pass
    log.close()
    name = segment_name(1)
    whole = bytes(system.content(LOG / name))
    follower = Follower.open(LOG, filesystem=system)
    first = follower.reader.locate(1).offset
    follower.close()
    if not by_index:
        system.unlink(LOG / index_name(1))
    for size in range(64, first + 200):
        system.replace(LOG / name, whole[:size])
        follower = Follower.open(LOG, filesystem=system)
        with pytest.raises(WalCorrupted):
            contents(follower, 1)
        with pytest.raises(WalCorrupted):
            list(follower.reader.backward(1, 1))
        follower.close()


def timed(system, segment_bytes=65536):
    """A log of several segments, with its versions by their times; transactions of one and of several frames."""
    clock = Clock()
    log = opened(system, options(segment_bytes=segment_bytes), clock=clock)
    times = []
    while len(catalog_of(log).entries) < 4:
        clock.now += 10
        count = 6 if len(times) % 5 == 3 else 1
        (done,) = log.append([sealed(*[b"%05d" % len(times) * 300] * count)])
        times.append(done.committed_at)
    log.sync()
    log.publish_tail(log.durable)
    return log, times


@pytest.mark.parametrize("segment_bytes", [65536, 262144])
@pytest.mark.parametrize("owner", [True, False])
def test_the_first_version_since_a_time_is_the_one_that_a_full_scan_finds(system, segment_bytes, owner):
    """F30."""
    log, times = timed(system, segment_bytes)
    reader = log.reader if owner else Follower.open(LOG, filesystem=system).reader
    for version, time in enumerate(times, 1):
        assert [reader.at(time - 1), reader.at(time), reader.at(time + 1)] == [version, version, version + 1]
    assert (reader.at(0), reader.at(times[-1] + 1_000)) == (1, len(times) + 1)


def test_a_time_is_searched_again_in_what_retention_has_left(system):
    log, times = timed(system)
    reader, read = fresh(log), Reader.read
    oldest = catalog_of(log).entries[2]

    def late(self, location):
        if catalog_of(log).entries[0].number == 1:
            catalog_of(log).drop(3)
            for number in (1, 2):
                system.unlink(LOG / segment_name(number))
            location = Location(1, 64)
        return read(self, location)

    with mock.patch.object(Reader, "read", late):
        assert reader.at(times[0]) == oldest.first_version
    assert reader.at(times[-1]) == len(times)


def frames(found):
    return [(frame.header.version, frame.header.first_index) for frame in found]


@pytest.mark.parametrize("segment_bytes", [65536, 262144])
def test_backward_gives_what_forward_gives_in_reverse_from_any_change_on(system, segment_bytes):
    """F30, F61: by steps of an index, of which the newest segment has one too, and others get one while they are read."""
    log, _ = timed(system, segment_bytes)
    whole = frames(walk(fresh(log), Location(1, 64)))
    assert max(first for _, first in whole) > 2
    reader = fresh(log)
    for place, (version, first) in enumerate(whole):
        if place % 7 == 0 or first > 1:
            assert frames(reader.backward(version, first)) == whole[place::-1]
    assert frames(reader.backward(1 << 40, 1)) == whole[::-1]
    follower = Follower.open(LOG, filesystem=system)
    assert frames(follower.reader.backward(1 << 40, 1)) == whole[::-1]


def test_backward_ends_where_retention_has_come_meanwhile(system):
    log, _ = timed(system)
    entries = catalog_of(log).entries
    reader = fresh(log)
    going = reader.backward(log.durable, 1)
    found = [next(going).header.version]
    while found[-1] >= entries[2].first_version:
        found.append(next(going).header.version)
    index = catalog_of(log).index

    def late(number):
        if catalog_of(log).entries[0].number == 1:
            catalog_of(log).drop(3)
            for gone in (1, 2):
                system.unlink(LOG / segment_name(gone))
        return index(number)

    with mock.patch.object(catalog_of(log), "index", late):
        found += [frame.header.version for frame in going]
    assert sorted(set(found)) == list(range(found[-1], log.durable + 1))
    assert found[-1] > 1


def test_an_index_that_leads_behind_a_version_is_told_and_nothing_is_left_out(system):
    """F37: an index is whole by its crc, and wrong all the same."""
    log, _ = timed(system)
    while log.maintain():
        pass
    log.close()
    data = bytes(system.content(LOG / index_name(1)))
    _, trailer = SparseIndex.unpack(data, log.log_id, 1)
    places = {frame.header.version: frame.location.offset for frame in walk(fresh(log), Location(1, 64))}
    wrong = SparseIndex()
    wrong.add(2, 1, 1, places[3])
    system.replace(LOG / index_name(1), wrong.pack(log.log_id, 1, trailer))
    follower = Follower.open(LOG, filesystem=system)
    with pytest.raises(WalCorrupted, match="version 2 is missing"):
        list(follower.reader.backward(2, 1))

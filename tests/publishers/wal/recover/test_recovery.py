"""Recovery, verdict by verdict."""

import contextlib
from uuid import UUID

import pytest

from publishers.errors import LogFailed, LogFull, WalCorrupted
from publishers.wal.files.head import CUT, DEFERRED, HEAD_NAME, HeadState, read_head
from publishers.wal.files.segment import DATA_START, index_name, segment_name
from publishers.wal.format.frame import CONTROL, FrameHeader, padded
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG

FIRST = segment_name(1)


def log_of(*bodies: bytes, **overrides: object) -> SimulatedFileSystem:
    """A log of small transactions whose machine was started anew after its process; HEAD covers none of them."""
    system = SimulatedFileSystem()
    log = opened(system, options(head_sync=3600.0, **overrides))
    for body in bodies:
        commit(log, body)
    log.abandon()
    system.restart()
    return system


def head_of(system: SimulatedFileSystem) -> HeadState:
    state = read_head(system.open(LOG / HEAD_NAME, "read"))
    assert state is not None
    return state


def write_head(system: SimulatedFileSystem, state: HeadState) -> None:
    page = bytearray(8192)
    page[:88] = state.pack()
    system.replace(LOG / HEAD_NAME, bytes(page))


def frames(system: SimulatedFileSystem, number: int = 1) -> list[tuple[int, FrameHeader]]:
    data = system.content(LOG / segment_name(number))
    found = []
    offset = DATA_START
    while offset + 80 <= len(data):
        header = FrameHeader.unpack(data, offset)
        if not header.length:
            break
        found.append((offset, header))
        offset += header.extent
    return found


def place_of(system: SimulatedFileSystem, version: int) -> tuple[int, int]:
    """Where the frame of a version begins and ends."""
    for offset, header in frames(system):
        if header.version == version and not header.flags & CONTROL:
            return offset, offset + header.extent
    raise AssertionError(version)


def test_a_torn_tail_is_cut_copied_and_zeroed():
    """F38."""
    system = log_of(b"one", b"two", b"three")
    start, end = place_of(system, 3)
    data = system.content(LOG / FIRST)
    data[end - 12] ^= 1
    torn = bytes(data[start:end]).rstrip(b"\0")
    log = opened(system)
    assert contents(log) == [(1, [b"one"]), (2, [b"two"])]
    assert log.torn_bytes == len(torn)
    assert system.content(LOG / (FIRST + ".torn")) == torn
    assert [epoch[:2] for epoch in log.epochs] == [(1, 1), (2, 3)]
    assert commit(log, b"new") == 3
    log.abandon()
    system.power_cut()
    assert contents(opened(system)) == [(1, [b"one"]), (2, [b"two"]), (3, [b"new"])]


def test_a_hole_before_an_unsynced_frame_is_torn():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.append([sealed(b"two")])
    log.append([sealed(b"three")])
    log.abandon()
    start, _ = place_of(system, 2)
    system.content(LOG / FIRST)[start : start + 8] = bytes(8)
    log = opened(system)
    assert contents(log) == [(1, [b"one"])]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_bad_header_is_corrupt(number):
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    log.close()
    system.content(LOG / segment_name(number))[30] ^= 1
    with pytest.raises(WalCorrupted, match="the crc of the header is wrong") as caught:
        opened(system)
    assert (caught.value.segment, caught.value.offset) == (number, 0)


def test_a_segment_of_another_log_is_corrupt():
    one, other = log_of(b"a"), SimulatedFileSystem(1)
    opened(other).close()
    one.replace(LOG / FIRST, bytes(other.content(LOG / FIRST)))
    with pytest.raises(WalCorrupted, match="the header is of segment 1 of log"):
        opened(one)


def test_segments_that_do_not_continue_each_other_are_corrupt():
    system, other = SimulatedFileSystem(), SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    log.close()
    other = SimulatedFileSystem.of(LOG, system.snapshot(LOG))
    system.replace(LOG / segment_name(2), bytes(system.content(LOG / segment_name(2))[:-8]))
    with pytest.raises(WalCorrupted) as caught:
        opened(system)
    assert caught.value.segment == 2
    other.replace(LOG / FIRST, bytes(other.content(LOG / FIRST)[: frames(other)[-1][0]]))
    with pytest.raises(WalCorrupted, match="does not continue segment 1"):
        opened(other)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment_is_corrupt(number):
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    log.close()
    system.unlink(LOG / segment_name(number))
    with pytest.raises(WalCorrupted, match="missing") as caught:
        opened(system)
    assert caught.value.segment == number


def test_a_log_without_any_segment_is_corrupt():
    system = log_of(b"a")
    opened(system).close()
    system.unlink(LOG / FIRST)
    with pytest.raises(WalCorrupted, match="no segments"):
        opened(system)


def test_a_log_without_head_is_corrupt():
    system = log_of(b"a")
    system.replace(LOG / HEAD_NAME, bytes(8192))
    with pytest.raises(WalCorrupted, match="HEAD has no valid slot"):
        opened(system)
    system.unlink(LOG / HEAD_NAME)
    with pytest.raises(WalCorrupted, match="HEAD has no valid slot"):
        opened(system)


def test_a_lost_checkpoint_is_corrupt_even_if_head_covers_nothing_of_it():
    system = log_of()
    write_head(system, head_of(system)._replace(offset=0))
    system.content(LOG / FIRST)[DATA_START + 30] ^= 1
    with pytest.raises(WalCorrupted):
        opened(system)
    data = system.content(LOG / FIRST)
    data[DATA_START:] = bytes(len(data) - DATA_START)
    with pytest.raises(WalCorrupted, match="the checkpoint is missing"):
        opened(system)


def test_wrong_or_missing_indexes_are_made_again():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    while log.maintain():
        pass
    found = contents(log)
    log.close()
    files = system.snapshot(LOG)
    for damaged in (b"", files[index_name(1)][:-1], files[index_name(2)]):
        system.replace(LOG / index_name(1), damaged)
        log = opened(system)
        assert bytes(system.content(LOG / index_name(1))) == files[index_name(1)]
        assert contents(log) == found
        log.close()
    system.unlink(LOG / index_name(2))
    opened(system).close()
    assert bytes(system.content(LOG / index_name(2))) == files[index_name(2)]


def test_an_interrupted_retention_is_finished():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 4)
    while log.maintain():
        pass
    log.close()
    files = system.snapshot(LOG)
    write_head(system, head_of(system)._replace(oldest=3))
    system.unlink(LOG / segment_name(2))
    log = opened(system)
    kept = [name for name in system.listing(LOG) if name.startswith("wal-")]
    assert kept == sorted(name for name in files if name.startswith("wal-00000000000") and name[15] in "34")
    assert log.oldest == catalog_of(log).entries[0].first_version > 1


def test_frames_that_head_does_not_cover_are_written_again():
    system = SimulatedFileSystem()
    log = opened(system, options(head_sync=3600.0))
    commit(log, b"one")
    log.append([sealed(b"two")])
    system.faults = {system.operations + 1: "EIO"}
    with pytest.raises(LogFailed):
        log.sync()
    log.abandon()
    # The page cache still has the frame and believes that it is clean.
    system.kill()
    log = opened(system)
    assert log.durable == 2
    log.abandon()
    system.power_cut()
    assert contents(opened(system)) == [(1, [b"one"]), (2, [b"two"])]


def test_a_cut_that_head_tells_of_is_finished():
    for crash in range(1, 12):
        system = SimulatedFileSystem(crash)
        log = opened(system)
        fill_segments(log, 4)
        while log.maintain():
            pass
        keep = catalog_of(log).entries[1].first_version + 2
        place = log.reader.locate(keep + 1)
        expected = contents(log)[:keep]
        log.close()
        state = head_of(system)
        write_head(
            system,
            state._replace(
                counter=state.counter + 1, flags=CUT, durable=keep, segment=place.segment, offset=place.offset
            ),
        )
        system.faults = {system.operations + crash: "crash"}
        with contextlib.suppress(PowerCut):
            opened(system).abandon()
        system.faults.clear()
        system.power_cut()
        log = opened(system)
        assert log.durable == keep
        assert contents(log) == expected
        assert not head_of(system).flags & CUT
        assert log.epochs[-1].first_version == keep + 1
        commit(log, b"and on")
        log.close()
        assert len(contents(opened(system))) == keep + 1


def test_a_cut_in_a_missing_segment_is_corrupt():
    system = log_of(b"a")
    write_head(system, head_of(system)._replace(flags=CUT, segment=5))
    with pytest.raises(WalCorrupted, match="a truncation in this segment"):
        opened(system)


def test_withheld_versions_stay_withheld_over_a_reopening():
    system = log_of(b"one", b"two", b"three")
    state = head_of(system)
    write_head(system, state._replace(counter=state.counter + 1, flags=DEFERRED, visible=1))
    log = opened(system)
    assert (log.durable, log.visible) == (3, 1)
    commit(log, b"four")
    assert log.visible == 1
    log.close()
    log = opened(system)
    assert (log.durable, log.visible) == (4, 1)


def test_only_whole_transactions_are_kept():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.append([sealed(*[b"x" * 3000] * 4, producer=UUID(int=1), sequence=1)])
    log.abandon()
    found = [(offset, header) for offset, header in frames(system) if header.version == 2]
    assert len(found) > 2
    system.content(LOG / FIRST)[found[-1][0] + 100] ^= 1
    log = opened(system)
    assert contents(log) == [(1, [b"one"])]
    assert log.producer(UUID(int=1)) is None
    assert commit(log, b"two") == 2
    log.abandon()
    assert contents(opened(system)) == [(1, [b"one"]), (2, [b"two"])]


def test_a_stale_frame_with_the_right_version_does_not_continue_the_chain():
    """Content that was cut off must not come back to life behind new content of the same size."""
    system = log_of(b"aaa", b"bbb", b"ccc")
    _, end = place_of(system, 2)
    stale = bytes(system.content(LOG / FIRST)[end:])
    system.content(LOG / FIRST)[place_of(system, 2)[0] : end] = bytes(end - place_of(system, 2)[0])
    again = log_of(b"aaa", b"xxx")
    data = again.content(LOG / FIRST)
    assert place_of(again, 2)[1] == end
    assert system.content(LOG / FIRST)[32:48] == data[32:48], "they are of one log"
    data[end : end + len(stale)] = stale
    assert contents(opened(again)) == [(1, [b"aaa"]), (2, [b"xxx"])]


def test_recovery_of_a_full_disk_keeps_working():
    system = log_of(b"one", b"two")
    start, end = place_of(system, 2)
    system.content(LOG / FIRST)[end - 10] ^= 1
    size = sum(len(data) for data in system.snapshot(LOG).values())
    system.capacity = size - (end - start)
    log = opened(system)
    assert contents(log) == [(1, [b"one"])]


def test_padding_never_matters():
    system = log_of(b"one!!", b"two!!")
    offset, header = next(
        (offset, header) for offset, header in frames(system) if header.version == 1 and not header.flags & 8
    )
    assert padded(header.length) > header.length
    system.content(LOG / FIRST)[offset + 80 + header.length] = 7
    assert contents(opened(system)) == [(1, [b"one!!"]), (2, [b"two!!"])]


def test_a_segment_that_begins_with_a_transaction_is_corrupt():
    system = log_of(b"one")
    transaction = sealed(b"one")
    header, _ = transaction.seal(0, 0, 1, 0, 1)
    system.content(LOG / FIRST)[DATA_START:] = header + transaction.payloads[0].data + bytes(100)
    with pytest.raises(WalCorrupted, match="does not begin with a checkpoint"):
        opened(system)


def test_a_closed_segment_that_cannot_be_read_is_corrupt():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    log.abandon()
    files = system.snapshot(LOG)
    whole = SimulatedFileSystem.of(LOG, files)
    opened(whole)
    segments = set()
    for number in range(1, whole.reads + 1):
        damaged = SimulatedFileSystem.of(LOG, files)
        damaged.read_faults = {number}
        # HEAD is read once more before it is written; what fails there fails the opening, and nothing is damaged.
        with pytest.raises((WalCorrupted, LogFailed), match=r"cannot be read|simulated at read") as caught:
            opened(damaged)
        if isinstance(caught.value, WalCorrupted):
            segments.add(caught.value.segment)
    assert segments == {1, 2, 3}


def test_a_disk_that_fails_while_what_is_torn_is_made_zeros_refuses_the_opening_and_the_next_one_goes_on():
    """F38: the file ends behind the last whole frame by then; a disk that is merely full does no harm."""
    seen = set()
    for kind in ("EIO", "ENOSPC"):
        for ahead in range(1, 60):
            system = log_of(b"one", b"two" * 100)
            content = system.content(LOG / FIRST)
            end = len(bytes(content).rstrip(b"\0"))
            content[end - 20] ^= 1
            system.faults = {system.operations + ahead: kind}
            try:
                log = opened(system)
            except (LogFailed, LogFull) as error:
                seen.add((kind, type(error)))
                system.kill()
                log = opened(system)
            system.faults = {}
            assert contents(log) == [(1, [b"one"])], (kind, ahead)
            assert commit(log, b"again") == 2
            log.close()
    assert seen == {("EIO", LogFailed), ("ENOSPC", LogFull), ("ENOSPC", LogFailed)}

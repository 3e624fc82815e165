from uuid import UUID, uuid4

import pytest

from publishers.errors import FormatTooNew
from publishers.wal.files.segment import (
    INDEX_STEP,
    SegmentHeader,
    SparseIndex,
    Trailer,
    index_name,
    segment_name,
    segment_number,
    write_index,
)
from tests.harness.constants import set_constant
from tests.harness.inside import lock_of
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

LOG_ID = UUID(int=7)


def test_names_and_numbers_of_segments_belong_together():
    assert segment_name(42) == "wal-000000000042.log"
    assert index_name(42) == "wal-000000000042.idx"
    assert segment_number("wal-000000000042.log") == 42
    assert segment_number("wal-000000000042.idx") is None
    assert segment_number("wal-000000000042.idx", "idx") == 42
    for name in (
        "wal-42.log",
        "wal-000000000000.log",
        "wal-000000000042.log.torn",
        "xwal-000000000042.log",
        "HEAD",
    ):
        assert segment_number(name) is None


def test_a_header_is_sixty_four_bytes_laid_out_as_the_format_says():
    header = SegmentHeader(3, 100, LOG_ID, 1_700_000_000_000_000, 0xAABBCCDD)
    data = header.pack()
    assert len(data) == 64
    assert data[:16] == b"PENSTK01" + bytes.fromhex("0200000040000000")
    assert data[16:24] == (3).to_bytes(8, "little")
    assert data[24:32] == (100).to_bytes(8, "little")
    assert data[32:48] == LOG_ID.bytes
    assert data[56:60] == bytes.fromhex("ddccbbaa")
    assert SegmentHeader.unpack(data) == header
    older = header._replace(form=1)
    assert older.pack()[8:10] == b"\1\0"
    assert SegmentHeader.unpack(older.pack()) == older


def test_every_bit_of_a_header_counts():
    data = SegmentHeader(3, 100, LOG_ID, 1, 2).pack()
    for bit in range(64 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="the crc of the header is wrong"):
            SegmentHeader.unpack(bytes(damaged))
    with pytest.raises(ValueError, match="has 63 of 64 bytes"):
        SegmentHeader.unpack(data[:63])


def test_a_header_of_another_format_is_refused(monkeypatch):
    set_constant(monkeypatch, "publishers.wal.files.segment._MAGIC", b"PENSTK02")
    data = SegmentHeader(3, 100, LOG_ID, 1, 2).pack()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="not of format 1 or 2"):
        SegmentHeader.unpack(data)
    with pytest.raises(ValueError, match="not of format 1 or 2"):
        SegmentHeader.unpack(SegmentHeader(3, 100, LOG_ID, 1, 2, 0).pack())
    with pytest.raises(FormatTooNew) as caught:
        SegmentHeader.unpack(SegmentHeader(3, 100, LOG_ID, 1, 2, 3).pack())
    assert (caught.value.found, caught.value.known) == (3, 2)


def filled(count=50):
    index = SparseIndex()
    for version in range(1, count + 1):
        index.add(version, 1, version * 10, 64 + (version - 1) * INDEX_STEP // 2)
    return index


def test_an_index_has_an_entry_about_each_64_kilobytes():
    index = filled()
    assert len(index) == 25
    assert index.before(1, 0) == 64
    assert index.before(2, 0) == 64
    assert index.before(3, 0) == 64 + INDEX_STEP
    assert index.before(1000, 5) == 64 + 24 * INDEX_STEP
    assert SparseIndex().before(9, 9) == 64


def test_an_index_finds_the_middle_of_a_continued_transaction():
    index = SparseIndex()
    for number in range(10):
        index.add(1, 1 + number * 100, 5, 64 + number * INDEX_STEP)
    assert index.before(1, 0) == 64
    assert index.before(1, 99) == 64
    assert index.before(1, 101) == 64 + INDEX_STEP
    assert index.before(1, 950) == 64 + 9 * INDEX_STEP


def test_an_index_comes_back_from_its_file():
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    trailer = Trailer(50, 0xAABBCCDD, 2_000_000, 500)
    data = filled().pack(LOG_ID, 3, trailer)
    write_index(system, LOG, 3, data)
    assert system.snapshot(LOG) == {index_name(3): data}
    index, found = SparseIndex.unpack(data, LOG_ID, 3)
    assert found == trailer
    assert len(index) == 25
    assert [index.before(version, 0) for version in range(60)] == [
        filled().before(version, 0) for version in range(60)
    ]
    index.add(99, 1, 1, 1_999_999)
    assert len(index) == 25


def test_a_damaged_or_foreign_index_is_refused():
    data = filled().pack(LOG_ID, 3, Trailer(50, 1, 2_000_000, 500))
    for log_id, number in ((uuid4(), 3), (LOG_ID, 4)):
        with pytest.raises(ValueError, match="another segment"):
            SparseIndex.unpack(data, log_id, number)
    for size in range(len(data)):
        with pytest.raises(ValueError, match="index"):
            SparseIndex.unpack(data[:size], LOG_ID, 3)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 16
        with pytest.raises(ValueError, match="index"):
            SparseIndex.unpack(bytes(damaged), LOG_ID, 3)


def test_of_two_who_add_the_same_frame_at_once_one_does():
    """Readers add what they come by, each on a thread of its own."""
    index = SparseIndex()
    lock = lock_of(index)

    class Late:
        """Taken by the other one first."""

        def __enter__(self):
            index._lock = lock
            index.add(1, 1, 5, 64)

        def __exit__(self, *_):
            pass

    index._lock = Late()
    index.add(1, 1, 5, 64)
    assert index.entries() == {64: (1, 1, 5)}

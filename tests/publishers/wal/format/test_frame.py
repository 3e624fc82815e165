from zlib import crc32

import pytest

from publishers.wal.format.frame import (
    CONTROL,
    FIRST,
    HEADER_BYTES,
    LAST,
    NO_PRODUCER,
    Chain,
    FrameHeader,
    Scan,
    padded,
    seal,
)


def frame(
    chain,
    payload=b"payload",
    *,
    version=None,
    flags=FIRST | LAST,
    index=1,
    count=1,
    at=None,
    total=None,
    previous=None,
):
    """A frame that by default continues the chain."""
    version = version or chain.version + (not flags & CONTROL)
    header, fields = seal(
        len(payload),
        crc32(payload),
        chain.crc if previous is None else previous,
        count,
        version,
        index,
        flags,
        0,
        chain.committed_at + 1 if at is None else at,
        NO_PRODUCER,
        0,
        index + count if total is None else total,
        len(payload),
    )
    return header + payload + bytes(-len(payload) & 7), fields


class Bytes:
    """A file in memory."""

    def __init__(self, data):
        self.data = bytes(data)
        self.preads = 0

    def pread(self, size, offset):
        self.preads += 1
        return self.data[offset : offset + size]


def scan(data, chain, start=0):
    found = Scan(Bytes(data), start, len(data), chain)
    frames = [(offset, header, bytes(payload)) for offset, header, payload in found]
    return found, frames


def test_a_header_is_eighty_bytes_laid_out_as_the_format_says():
    data, fields = frame(Chain(0xAABBCCDD, 41, 1000), b"12345")
    assert len(data) == HEADER_BYTES + 8
    assert data[:4] == (5).to_bytes(4, "little")
    assert data[8:12] == bytes.fromhex("ddccbbaa")
    assert data[12:16] == (1).to_bytes(4, "little")
    assert data[16:24] == (42).to_bytes(8, "little")
    assert data[24:28] == (1).to_bytes(4, "little")
    assert data[28:32] == (3).to_bytes(4, "little")
    assert data[40:48] == (1001).to_bytes(8, "little")
    assert int.from_bytes(data[4:8], "little") == crc32(data[8:80], crc32(b"12345"))
    assert FrameHeader.unpack(data) == fields
    assert fields.pack() == data[:HEADER_BYTES]
    assert fields.extent == len(data)
    assert padded(0) == 0
    assert padded(9) == 16


def test_every_bit_of_a_frame_but_its_padding_is_verified():
    data, _ = frame(Chain(7, 1), b"payload")
    for at in range(4, HEADER_BYTES + 7):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            header = FrameHeader.unpack(damaged)
            assert not header.verify(damaged[HEADER_BYTES : HEADER_BYTES + 7])


def test_frames_that_continue_each_other_are_scanned_to_the_zeros():
    chain = Chain(5, 3, 100)
    data = b""
    for part in (b"one", b"two" * 100, b"three"):
        more, fields = frame(chain, part)
        chain.advance(fields)
        data += more
    found, frames = scan(data + bytes(200), Chain(5, 3, 100))
    assert [payload for _, _, payload in frames] == [b"one", b"two" * 100, b"three"]
    assert (found.end, found.offset, found.why, found.end_crc) == (len(data), len(data), None, chain.crc)


def test_a_scan_ends_behind_the_last_whole_transaction():
    chain = Chain(5, 3, 100)
    first, fields = frame(chain)
    chain.advance(fields)
    second, fields = frame(chain, flags=FIRST, total=3)
    chain.advance(fields)
    assert chain.next_index == 2
    third, fields = frame(chain, flags=LAST, index=2, total=3)
    found, frames = scan(first + second, Chain(5, 3, 100))
    assert len(frames) == 2
    assert (found.end, found.offset) == (len(first), len(first + second))
    found, frames = scan(first + second + third, Chain(5, 3, 100))
    assert found.end == len(first + second + third)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"previous": 6}, "it follows a frame with crc 0x00000006"),
        ({"version": 6}, "version 6 after version 3"),
        ({"version": 3}, "version 3 after version 3"),
        ({"at": 100}, "time 100 is not after 100"),
        ({"index": 2}, "index 2 does not continue"),
        ({"flags": LAST}, "does not continue the transaction"),
        ({"flags": 16 | FIRST | LAST}, "unknown flags 0x13"),
        ({"flags": CONTROL | LAST}, "a control frame out of place"),
        ({"flags": CONTROL, "version": 4}, "a control frame out of place"),
        ({"total": 3}, "ends at index 2 of 3"),
    ],
)
def test_a_frame_that_does_not_continue_the_chain_ends_the_scan(change, why):
    data, _ = frame(Chain(5, 3, 100), **change)
    found, frames = scan(data, Chain(5, 3, 100))
    assert frames == []
    assert why in (found.why or "")


def test_a_control_frame_inside_a_transaction_is_out_of_place():
    chain = Chain(5, 3)
    first, fields = frame(chain, flags=FIRST, total=9)
    chain.advance(fields)
    second, _ = frame(chain, flags=CONTROL, count=0)
    found, frames = scan(first + second, Chain(5, 3))
    assert len(frames) == 1
    assert found.why == "a control frame out of place"


def test_what_cannot_be_a_frame_is_named():
    assert scan(b"\0\0\0\0" + b"x" * 200, Chain(5, 3))[0].why == "a frame without a length"
    data, _ = frame(Chain(5, 3), b"x" * 300)
    assert "ends beyond the segment" in (scan(data[:200], Chain(5, 3))[0].why or "")
    damaged = bytearray(data)
    damaged[200] ^= 1
    assert scan(damaged, Chain(5, 3))[0].why == "the crc of the frame is wrong"
    assert scan(b"x" * 79, Chain(5, 3))[0].why is None


def test_many_small_frames_are_read_in_few_blocks():
    chain = Chain(5, 3)
    parts = []
    for _ in range(2000):
        more, fields = frame(chain, b"x" * 900)
        chain.advance(fields)
        parts.append(more)
    file = Bytes(b"".join(parts))
    assert sum(1 for _ in Scan(file, 0, len(file.data), Chain(5, 3))) == 2000
    assert file.preads <= 4

"""What the last segment alone restores: the chain, the producers, the epochs and the sparse index."""

from typing import NamedTuple

from publishers.errors import WalCorrupted
from publishers.wal.disk.filesystem import File
from publishers.wal.files.segment import DATA_START, SegmentHeader, SparseIndex
from publishers.wal.format.control import Kind, ProducerState, Tables, decode_control
from publishers.wal.format.frame import CONTROL, LAST, NO_PRODUCER, Chain, FrameHeader, Scan

__all__ = ["Restored", "restore"]


class Restored(NamedTuple):
    """What a segment holds up to the end of its last whole transaction or control frame.

    Attributes:
        chain: What the next frame continues.
        end: Where it goes.
        tables: Producers and epochs.
        sparse: The sparse index.
        bad: Where the scan stopped.
        why: Why it stopped there; None if only zeros follow.
    """

    chain: Chain
    end: int
    tables: Tables
    sparse: SparseIndex
    bad: int
    why: str | None


def restore(file: File, header: SegmentHeader, size: int) -> Restored:
    """Scans a segment from its header up to ``size``.

    Raises:
        FormatTooNew: If a later version of penstock wrote in it.
        WalCorrupted: If it cannot be read, or does not begin with a whole checkpoint.
    """
    number = header.number
    chain = Chain(header.previous, header.first_version - 1)
    scan = Scan(file, DATA_START, size, chain)
    tables = Tables()
    index = SparseIndex()
    frames: list[tuple[int, FrameHeader]] = []
    try:
        for offset, frame, payload in scan:
            if frame.flags & CONTROL:
                if (decode_control(payload, tables) is Kind.CHECKPOINT) != (offset == DATA_START):
                    raise WalCorrupted(number, offset, "a checkpoint in the wrong place")
            elif offset == DATA_START:
                raise WalCorrupted(number, offset, "the segment does not begin with a checkpoint")
            else:
                frames.append((offset, frame))
                if frame.flags & LAST:
                    _take(frames, tables, index)
                    frames.clear()
    except OSError as error:
        raise WalCorrupted(number, scan.offset, f"it cannot be read ({error})") from error
    except ValueError as error:
        raise WalCorrupted(number, scan.offset, str(error)) from error
    if scan.end == DATA_START:
        # The checkpoint was synced before the segment got its name.
        raise WalCorrupted(number, DATA_START, scan.why or "the checkpoint is missing")
    whole = Chain(scan.end_crc, chain.version, chain.committed_at)
    return Restored(whole, scan.end, tables, index, scan.offset, scan.why)


def _take(frames: list[tuple[int, FrameHeader]], tables: Tables, index: SparseIndex) -> None:
    """Notes a whole transaction."""
    for offset, frame in frames:
        index.add(frame.version, frame.first_index, frame.committed_at, offset)
    frame = frames[0][1]
    if frame.producer != NO_PRODUCER:
        state = ProducerState(frame.producer_sequence, frame.version, frame.committed_at)
        tables.committed(frame.producer, state)

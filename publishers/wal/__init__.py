"""The segmented write-ahead log. It handles bytes, versions and producers, and does not interpret changes.

Guarantees: commits for which `Wal.sync` has returned survive any crash; the log is an unbroken sequence of whole transactions;
damage to acknowledged data is reported, never truncated, skipped or delivered.

**Use.** `seal_transaction` (or, for a few changes, `Rows` and `seal_rows`) makes a `Transaction` outside every
lock. The only `Wal` of a directory assigns it a version and writes it (`Wal.append`), and makes it durable (`Wal.sync`).
Its `Reader` reads durable transactions; a `Follower` reads published ones, from any process, without a lock and without
writing. A thread of its own calls `Wal.maintain`, which keeps slow work off the commit path.

**On disk.** All numbers are little endian; every structure carries a crc32. A directory holds::

    LOCK                     flock of the one writer; text: pid, boot id, number of the epoch
    HEAD                     8 KiB, two slots at 0 and 4096: evidence of the acknowledged data
    TAIL                     4 KiB, mapped, never synced: the live visible position for other processes
    BELL                     a byte that is rewritten to wake readers that watch it (`disk.notify`)
    readers/                 datagram sockets of readers that wait for a notification
    held/<consumer>/         hard links to segments, for a reader that must not depend on retention (`keep.hard_links`)
    wal-<12 digits>.log      segments, numbered from 1 without holes
    wal-<12 digits>.idx      index of a closed segment: an entry each 64 KiB, and a trailer with its end
    *.tmp                    unfinished: spare segments, transactions that are spooled, or staged by other processes
                             (`append.staged`); deleted at the next opening
    wal-<12 digits>.log.torn bytes that recovery truncated; never read

A *segment* begins with a header of 64 bytes (`files.segment.SegmentHeader`): magic ``PENSTK01``, format, number, first
version, log id, time, and the crc of the last frame of the previous segment. Frames follow, the first of them a
CHECKPOINT; then zeros, written ahead so that a commit does not change the size of the file. A segment gets its name
when its header and CHECKPOINT are durable; the next segment gets its name only after this one was truncated to its end and
synced as a whole. The header states the format of the whole segment, 1 or 2; an opening for writing begins a new segment if the
last one has format 1.

A *frame* is a header of 80 bytes (`format.frame.FrameHeader`), a payload, and zeros up to a multiple of 8. Its crc covers the
header from byte 8 on and the payload; ``previous`` repeats the crc of the previous frame, across segments too, so that
the log is one chain and any frame can still be checked alone. Versions rise by exactly 1 per transaction. A large
transaction continues in further frames of the same version and of the same segment: the first is flagged FIRST, the
last LAST, nearly every frame both. CONTROL frames take no version: the CHECKPOINT restores the tables of producers and
epochs from the last segment alone; an EPOCH records that a writer opened the log (`format.control`). An epoch is a number and,
since format 2, 64 random bits, which distinguish the openings of two copies of a directory. SKIP and SCHEMAS are reserved: they
are read, but not written yet.

A *payload* holds the changes as columns in buffers that Arrow can take over without copying (`format.columns`). COMPRESSED
payloads are a u32 raw length and a zlib stream.

A *HEAD slot* is 88 bytes (`files.head.HeadState`): log id, counter, epoch, the newest version known to be synced, the end of
the synced data, the oldest kept segment, and flags. Since format 2 an addition of 20 bytes follows, with the random bits of the
epoch and a crc of its own. The valid slot with the highest counter counts. HEAD is written before the first segment, after
recovery, at each roll, before retention deletes, ``head_sync`` after a commit, before a consumer stores a position that HEAD
does not cover (`Wal.vouch`), and at a clean close.

*Recovery* (`recover.recovery`) scans the last segment only. Behind its last whole transaction it distinguishes torn writes from
damage. A frame that was written when later versions than those found were durable, or a HEAD that covers more data than the
scan finds, means damage, and the log is not opened. Anything else was never acknowledged, and is truncated.
"""

from publishers.wal.append.sealed import Appended, Transaction, seal_rows, seal_transaction
from publishers.wal.disk.filesystem import File, FileSystem, RealFileSystem
from publishers.wal.disk.notify import Listener
from publishers.wal.files.directory import LogWriter, writer_of
from publishers.wal.follower import Follower
from publishers.wal.format.columns import Column, Columns, encode_payload
from publishers.wal.format.control import Epoch, ProducerState
from publishers.wal.format.frame import FrameHeader
from publishers.wal.format.rows import Rows
from publishers.wal.format.stored import decode_payload
from publishers.wal.keep.holds import Hold, HoldState, HoldStatistics
from publishers.wal.keep.retention import Retention
from publishers.wal.read.catalog import Location
from publishers.wal.read.reader import Frame, Reader, ReadStatistics
from publishers.wal.wal import Wal

__all__ = [
    "Appended",
    "Column",
    "Columns",
    "Epoch",
    "File",
    "FileSystem",
    "Follower",
    "Frame",
    "FrameHeader",
    "Hold",
    "HoldState",
    "HoldStatistics",
    "Listener",
    "Location",
    "LogWriter",
    "ProducerState",
    "ReadStatistics",
    "Reader",
    "RealFileSystem",
    "Retention",
    "Rows",
    "Transaction",
    "Wal",
    "decode_payload",
    "encode_payload",
    "seal_rows",
    "seal_transaction",
    "writer_of",
]

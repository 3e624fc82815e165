"""The segmented write-ahead log: bytes, versions and producers, and nothing of what they mean.

Promise: what `Wal.sync` returned for is there after any crash; what is there is an unbroken run of whole transactions;
damage to acknowledged data is reported, never cut, skipped or delivered.

**Use.** `seal_transaction` (or, for a few changes, `Rows` and `seal_rows`) makes a `Transaction` outside every
lock. The one `Wal` of a directory gives it a version and writes it (`Wal.append`), and makes it durable (`Wal.sync`).
Its `Reader` reads what is durable; a `Follower` reads what the owner has published, from any process, without a lock
and without a write. `Wal.maintain` is called by a thread of its own and keeps the slow work off the commit path.

**On disk.** All numbers are little endian; every structure carries a crc32. A directory holds::

    LOCK                     flock of the one writer; text: pid, boot id, number of the epoch
    HEAD                     8 KiB, two slots at 0 and 4096: evidence of what was acknowledged
    TAIL                     4 KiB, mapped, never synced: the live visible position for other processes
    BELL                     a byte that is written again for readers that watch it (`disk.notify`)
    readers/                 datagram sockets of readers that wait for a notification
    held/<consumer>/         hard links to segments, for a reader that must not depend on retention (`keep.hard_links`)
    wal-<12 digits>.log      segments, numbered from 1 without holes
    wal-<12 digits>.idx      of a closed segment: an entry each 64 KiB, and a trailer that tells its end
    *.tmp                    unfinished: spare segments, transactions that are spooled, or staged by other processes
                             (`append.staged`); deleted at the next opening
    wal-<12 digits>.log.torn what recovery cut off; never read

A *segment* begins with a header of 64 bytes (`files.segment.SegmentHeader`): magic ``PENSTK01``, format, number, first
version, log id, time, and the crc of the last frame of the segment before. Frames follow, the first of them a
CHECKPOINT; then zeros, written ahead so that a commit does not change the size of the file. A segment gets its name
when header and CHECKPOINT are durable, and the next one only when this one is cut to its end and durable as a whole. The header
tells the format of everything in the segment, 1 or 2; an opening for writing begins a segment where the last one is of
format 1.

A *frame* is a header of 80 bytes (`format.frame.FrameHeader`), a payload, and zeros up to a multiple of 8. Its crc covers the
header from byte 8 on and the payload; ``previous`` repeats the crc of the frame before, across segments too, so that
the log is one chain and any frame can still be checked alone. Versions rise by exactly 1 per transaction. A large
transaction continues in further frames of the same version and of the same segment: the first is flagged FIRST, the
last LAST, nearly every frame both. CONTROL frames take no version: the CHECKPOINT restores the tables of producers and
epochs from the last segment alone, an EPOCH tells that a writer opened the log (`format.control`). An epoch is a number and, since
format 2, 64 random bits, so that two openings of two copies of a directory are never taken for one. SKIP and SCHEMAS
are reserved: they are read, and not written yet.

A *payload* holds the changes as columns in buffers that Arrow can take over without copying (`format.columns`). COMPRESSED
payloads are a u32 raw length and a zlib stream.

A *HEAD slot* is 88 bytes (`files.head.HeadState`): log id, counter, epoch, the newest version known to be synced and where
the synced data end, the oldest segment that is kept, and flags. Since format 2 an addition of 20 bytes follows, with the
random bits of the epoch and a crc of its own. The valid slot with the highest counter counts. HEAD is written before the
first segment, after recovery, at each roll, before retention deletes, ``head_sync`` after a commit, before anybody stores
a position that it does not cover (`Wal.vouch`), and at a clean close.

*Recovery* (`recover.recovery`) scans the last segment only. Behind its last whole transaction it tells torn from corrupt: a
frame that was written when later versions than those found were durable, or a HEAD that vouches for more than there
is, means damage, and the log is not opened; anything else was never acknowledged, and is cut off.
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

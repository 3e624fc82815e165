"""The segmented write-ahead log: bytes, versions and producers."""

from publishers.wal.catalog import Location
from publishers.wal.columns import Column, Columns, decode_payload, encode_one, encode_payload
from publishers.wal.control import Epoch, ProducerState
from publishers.wal.filesystem import File, FileSystem, RealFileSystem
from publishers.wal.follower import Follower
from publishers.wal.frame import FrameHeader
from publishers.wal.reader import Frame, Reader, ReadStatistics
from publishers.wal.transaction import Transaction, seal_change, seal_transaction
from publishers.wal.wal import Wal, system_clock
from publishers.wal.writer import Appended, Clock

__all__ = [
    "Appended",
    "Clock",
    "Column",
    "Columns",
    "Epoch",
    "File",
    "FileSystem",
    "Follower",
    "Frame",
    "FrameHeader",
    "Location",
    "ProducerState",
    "ReadStatistics",
    "Reader",
    "RealFileSystem",
    "Transaction",
    "Wal",
    "decode_payload",
    "encode_one",
    "encode_payload",
    "seal_change",
    "seal_transaction",
    "system_clock",
]

"""Staged parts: payloads that other processes have sealed, in files in the directory of the log, for one transaction of the owner.

The owner reads the payloads of the reported parts, verifies their crcs, and copies them into the log without decoding them. The names
of the files contain the transaction, and end in ``.tmp`` as those of spools do. After the transaction was appended or abandoned, the
owner removes all its files, whichever process made them; the next opening removes files that a crash left.
"""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from publishers.options import LogOptions
from publishers.wal.append.sealed import Sealed, Transaction, check_bounds, seal_payloads
from publishers.wal.disk.filesystem import File, FileSystem, write_all
from publishers.wal.files.directory import STAGED
from publishers.wal.format.columns import Columns
from publishers.wal.format.frame import HEADER_BYTES, NO_PRODUCER, padded

__all__ = ["StagedPart", "remove_abandoned", "remove_staged", "stage_part", "staged_transaction"]

_LOG: Final = logging.getLogger("penstock.housekeeping")


class StagedPart(NamedTuple):
    """A part of a transaction in a file.

    Attributes:
        file: The name of the file; empty if the part has no changes.
        payloads: Its payloads, with offsets in the file and indices within the part.
    """

    file: str
    payloads: tuple[Sealed, ...]

    @property
    def changes(self) -> int:
        """The number of changes."""
        return sum(payload.count for payload in self.payloads)


def stage_part(
    batches: Iterable[Columns],
    annotations: bytes,
    *,
    options: LogOptions,
    filesystem: FileSystem,
    directory: Path,
    transaction: str,
    part: str,
) -> StagedPart:
    """Seals a part of a transaction, payload by payload, into a file of its own; for any process.

    Args:
        batches: The changes; if there are none, no file is made.
        annotations: JSON of the transaction.
        options: The options of the log.
        filesystem: The file system of the directory.
        directory: The directory of the log.
        transaction: The name of the transaction.
        part: The unique name of this attempt at a part.

    Raises:
        TransactionTooLarge: If this part alone exceeds a bound.
        ValueError: If the columns of a batch do not fit together.
        OSError: If the file cannot be written.
    """
    file = f"{STAGED}{transaction}-{part}.tmp"
    with contextlib.ExitStack() as stack:
        opened: File | None = None
        payloads: list[Sealed] = []
        end = 0
        for payload in seal_payloads(batches, annotations, options):
            if not payload.count:
                continue
            if opened is None:
                opened = stack.enter_context(contextlib.closing(filesystem.open(directory / file, "create")))
            write_all(opened, payload.data, end)
            payloads.append(payload._replace(data=b"", offset=end))
            end += payload.length
    return StagedPart(file if payloads else "", tuple(payloads))


def staged_transaction(
    parts: Sequence[StagedPart],
    *,
    options: LogOptions,
    producer: UUID | None,
    sequence: int,
    filesystem: FileSystem,
    directory: Path,
) -> Transaction:
    """Makes a transaction of parts, in the given order, after verifying the payloads of all parts.

    Raises:
        TransactionTooLarge: If the parts together exceed a bound.
        OSError: If a part is missing, or differs from the sealed bytes.
    """
    payloads: list[Sealed] = []
    files: list[
        tuple[int, str]
    ] = []  # each with the offset of its first byte in the concatenation of all files
    changes = end = 0
    for part in parts:
        if part.payloads:
            files.append((end, part.file))
        payloads += (
            payload._replace(first_index=changes + payload.first_index, offset=end + payload.offset)
            for payload in part.payloads
        )
        changes += part.changes
        end += sum(payload.length for payload in part.payloads)
    total = sum(payload.raw for payload in payloads)
    check_bounds(changes, total)
    size = sum(HEADER_BYTES + padded(payload.length) for payload in payloads)
    identity = NO_PRODUCER if producer is None else producer.bytes
    spool = _StagedFiles(filesystem, directory, files)
    made = Transaction(tuple(payloads), changes, total, size, identity, sequence, spool)
    try:
        # Verified here, before the write gate: an error while it is copied into the log would fail the log.
        for _ in made.read():
            pass
    except BaseException:
        spool.remove()
        raise
    return made


class _StagedFiles:
    """The files of a transaction, of which one is open at a time. It does not remove them; see `remove_staged`."""

    def __init__(self, filesystem: FileSystem, directory: Path, files: list[tuple[int, str]]) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._files = files
        self._name = ""
        self._file: File | None = None

    def read(self, payload: Sealed) -> bytes:
        start, name = self._files[bisect_right(self._files, payload.offset, key=itemgetter(0)) - 1]
        if name != self._name or self._file is None:
            self.remove()
            self._file = self._filesystem.open(self._directory / name, "read")
            self._name = name
        data = self._file.pread(payload.length, payload.offset - start)
        if crc32(data) != payload.crc:
            raise OSError(f"{name} does not hold what was staged there")
        return data

    def remove(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def remove_staged(filesystem: FileSystem, directory: Path, transaction: str) -> None:
    """Removes all staged files of a transaction, of every attempt.

    Raises:
        OSError: From the file system.
    """
    prefix = f"{STAGED}{transaction}-"
    for name in filesystem.listing(directory):
        if name.startswith(prefix):
            filesystem.unlink(directory / name)


def remove_abandoned(filesystem: FileSystem, directory: Path, going_on: Iterable[str]) -> int:
    """Removes staged files of transactions that have ended, left by tasks that outlived them; returns the number of files.

    Args:
        filesystem: The file system of the directory.
        directory: The directory of the log.
        going_on: The names of transactions that have not ended; iterated after the directory was listed.

    Raises:
        OSError: From the file system.
    """
    staged = [name for name in filesystem.listing(directory) if name.startswith(STAGED)]
    kept = tuple(f"{STAGED}{transaction}-" for transaction in going_on)
    left = [name for name in staged if not name.startswith(kept)]
    for name in left:
        with contextlib.suppress(FileNotFoundError):  # removed by the end of its transaction
            filesystem.unlink(directory / name)
    if left:
        _LOG.warning("%d staged files of ended transactions were removed from %s", len(left), directory)
    return len(left)

"""A small file beside the segments that is stored twice, so that one damaged copy loses nothing.

Each copy is a text and, in a last line, its crc32. A write replaces the first copy and then the second, each atomically. A
crash in between leaves two intact copies that differ, so the owner of the content must be able to continue from
either. The first copy is used if it is intact.
"""

from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.disk.filesystem import FileSystem, put_file, read_file, sync_names

__all__ = ["COPY_SUFFIX", "TWINS", "MirroredFile", "MirroredState"]

COPY_SUFFIX: Final = ".copy"
TWINS: Final = ("SCHEMAS", "OPTIONS")
"""The names of all mirrored files; their content is defined by higher layers."""


class MirroredState(NamedTuple):
    """The state of both copies.

    Attributes:
        text: The text in use; None if no copy is intact.
        exists: Whether there is any copy, intact or not.
        even: Whether both copies are intact and equal, or both are missing.
        damaged: The names of the copies that are not intact.
    """

    text: bytes | None
    exists: bool
    even: bool
    damaged: tuple[str, ...]


class MirroredFile:
    """Two copies of a small file."""

    def __init__(self, filesystem: FileSystem, directory: Path, name: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._names = (name, name + COPY_SUFFIX)

    def read(self) -> MirroredState:
        """Reads both copies.

        Raises:
            OSError: From the file system, except for a missing copy.
        """
        found = [(name, self._read(name)) for name in self._names]
        texts = [None if data is None else _unsealed(data) for _, data in found]
        damaged = tuple(
            name for (name, data), text in zip(found, texts, strict=True) if data is not None and text is None
        )
        text = texts[0] if texts[0] is not None else texts[1]
        exists = any(data is not None for _, data in found)
        return MirroredState(text, exists, (not exists) or (texts[0] == texts[1] and not damaged), damaged)

    def write(self, text: bytes) -> None:
        """Replaces both copies durably, one after the other.

        Raises:
            OSError: From the file system; each copy is then the old or the new one.
        """
        data = b"%b\n%08x" % (text, crc32(text))
        for name in self._names:
            put_file(self._filesystem, self._directory / name, data)
            sync_names(self._filesystem, self._directory)

    def _read(self, name: str) -> bytes | None:
        try:
            return read_file(self._filesystem, self._directory / name)
        except FileNotFoundError:
            return None


def _unsealed(data: bytes) -> bytes | None:
    """Returns the text before the last line if that is its crc32; else None."""
    text, _, crc = data.rpartition(b"\n")
    return text if crc == b"%08x" % crc32(text) else None

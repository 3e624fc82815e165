"""A small file beside the segments that lies there twice, so that one damaged file loses nothing.

Each copy is a text and, in a last line, its crc32. A write replaces the one and then the other, each whole or not at all;
so what a crash in between leaves is two whole copies that differ, and whoever keeps something here must be able to go on
from either of them. The first one counts, if it is whole.
"""

from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from publishers.wal.disk.filesystem import FileSystem, put_file, read_file, sync_names

__all__ = ["COPY_SUFFIX", "TWINS", "MirroredFile", "MirroredState"]

COPY_SUFFIX: Final = ".copy"
TWINS: Final = ("SCHEMAS",)
"""The files that there may be; what stands in them is for those above to know."""


class MirroredState(NamedTuple):
    """What was found.

    Attributes:
        text: The text that counts; None if no copy is whole.
        exists: Whether there is any copy, whole or not.
        even: Whether both copies are whole and the same, or there is none at all.
        damaged: The names of the copies that are not whole.
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
            OSError: What the file system raises, unless it is that a copy is missing.
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
        """Replaces both copies, durably, one after the other.

        Raises:
            OSError: What the file system raises; each copy is then the old one or the new one.
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
    """The text whose crc32 stands in the last line; None if it is another one."""
    text, _, crc = data.rpartition(b"\n")
    return text if crc == b"%08x" % crc32(text) else None

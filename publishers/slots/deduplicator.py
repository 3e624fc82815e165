"""Recognises repeated changes, for receivers of at-least-once deliveries."""

import threading
from collections import OrderedDict
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from publishers.errors import InvalidOption, PositionMalformed
from publishers.model.change import ROW_ID
from publishers.options import check_directory, check_whole
from publishers.wal import RealFileSystem
from publishers.wal.disk.filesystem import put_file, read_file, sync_names

__all__ = ["Deduplicator"]

_FORMAT: Final = 1
_WINDOW: Final = 10_000
_SOURCES: Final = 100
_ID_PARTS: Final = (3, 4)  # without and with an epoch

Place = tuple[int, int]


class _SavedSource(msgspec.Struct, array_like=True):
    name: str
    floor: Place
    seen: list[Place]


class _Saved(msgspec.Struct):
    format: int
    sources: list[_SavedSource]


class _Source:
    """The remembered positions of one history of one log: all up to the floor, and those in the window."""

    __slots__ = ("floor", "heap", "seen")

    def __init__(self, floor: Place, seen: list[Place]) -> None:
        self.floor = floor
        self.heap = seen
        heapify(self.heap)
        self.seen = set(seen)

    def __contains__(self, place: Place) -> bool:
        return place <= self.floor or place in self.seen

    def add(self, place: Place, window: int) -> None:
        heappush(self.heap, place)
        self.seen.add(place)
        while len(self.heap) > window:
            self.floor = heappop(self.heap)
            self.seen.remove(self.floor)


class Deduplicator:
    """Remembers received changes by their ids: ``log.idempotency_key(change)``, or ``change.id`` of a client. Thread-safe.

    ::

        if change_id not in known:
            apply(change)
            known.add(change_id)

    For each history of each log it remembers the ``window`` highest positions, and takes all lower ones for repeats. So it
    recognises repeats of any age, and changes may arrive out of order by less than ``window``.

    A row of a snapshot is never a repeat: applying it twice is harmless.

    Args:
        path: The file of `save`, read here if it exists. None to keep everything in memory.
        window: Most ids per history, at least 1.
        sources: Most histories, at least 1; beyond it the least recently used one is forgotten.

    Raises:
        InvalidOption: If a bound is out of its range, or the file is damaged or another file.
        OSError: If the file cannot be read.
    """

    def __init__(
        self, path: str | Path | None = None, *, window: int = _WINDOW, sources: int = _SOURCES
    ) -> None:
        check_whole("window", window, "a whole number from 1", 1)
        check_whole("sources", sources, "a whole number from 1", 1)
        self._path = None if path is None else check_directory(path)
        self._window = window
        self._most = sources
        self._lock = threading.Lock()
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        if self._path is not None:
            self._load(self._path)

    def __contains__(self, change_id: object) -> bool:
        if _of_row(change_id):
            return False
        name, place = _parsed(change_id)
        with self._lock:
            source = self._sources.get(name)
            return source is not None and place in source

    def add(self, change_id: str) -> bool:
        """Remembers a change; returns whether it is new.

        Raises:
            PositionMalformed: If it is not the id of a change.
        """
        if _of_row(change_id):
            return True
        name, place = _parsed(change_id)
        with self._lock:
            source = self._sources.get(name)
            if source is None:
                source = self._sources[name] = _Source((0, 0), [])
                if len(self._sources) > self._most:
                    self._sources.popitem(last=False)
            self._sources.move_to_end(name)
            if place in source:
                return False
            source.add(place, self._window)
            return True

    def __len__(self) -> int:
        """The number of ids in the windows: at most ``window`` for each of ``sources`` histories."""
        with self._lock:
            return sum(len(source.seen) for source in self._sources.values())

    def save(self) -> None:
        """Writes the file atomically and durably. Call it after the applied changes are durable.

        Raises:
            InvalidOption: If there is no path.
            OSError: If the file cannot be written; the old one stays.
        """
        path = self._path
        if path is None:
            raise InvalidOption("path", None, "given to Deduplicator(path), to be saved")
        with self._lock:
            saved = [_SavedSource(name, one.floor, sorted(one.seen)) for name, one in self._sources.items()]
            text = msgspec.json.encode(_Saved(_FORMAT, saved))
            filesystem = RealFileSystem()
            put_file(filesystem, path, b"%b\n%08x" % (text, crc32(text)))
            sync_names(filesystem, path.parent)

    def _load(self, path: Path) -> None:
        try:
            data = read_file(RealFileSystem(), path)
        except FileNotFoundError:
            return
        text, _, crc = data.rpartition(b"\n")
        right = "a file that Deduplicator.save has written, or none yet"
        try:
            saved = msgspec.json.decode(text, type=_Saved)
        except ValueError:
            raise InvalidOption("path", str(path), right) from None
        if crc != b"%08x" % crc32(text) or saved.format != _FORMAT:
            raise InvalidOption("path", str(path), right)
        for one in saved.sources[-self._most :]:
            source = _Source(one.floor, [])
            for place in one.seen:
                source.add(place, self._window)
            self._sources[one.name] = source


def _of_row(change_id: object) -> bool:
    return isinstance(change_id, str) and change_id.startswith(ROW_ID)


def _parsed(change_id: object) -> tuple[str, Place]:
    """The history of a change, and its position there."""
    if not isinstance(change_id, str) or len(change_id) > 120 or not change_id.isascii():
        raise PositionMalformed(change_id)
    parts = change_id.split(":")
    if len(parts) not in _ID_PARTS or not all(part.isdigit() for part in parts[-2:]):
        raise PositionMalformed(change_id)
    return ":".join(parts[:-2]), (int(parts[-2]), int(parts[-1]))

"""Writes changes as JSON lines to rotated files, and the position beside them, so that a crash repeats no line."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from publishers.errors import InvalidOption
from publishers.model.position import Position
from publishers.options import MIB, check_whole
from publishers.views.view import Images
from transports.sinks.directory import replace_file, sync_directory
from transports.sinks.errors import TargetRefused
from transports.sinks.retry import check_seconds
from transports.sinks.sink import SinkBatch, SinkContext
from transports.sinks.stream import lines_of

__all__ = ["FileSink"]

_PLACE: Final = ".place"
_UNFINISHED: Final = ".tmp"


class _Place(msgspec.Struct, frozen=True):
    """The content of the sidecar file.

    Attributes:
        place: The position behind the committed lines.
        file: The file being written, or last written; None without one.
        nbytes: The committed bytes of that file.
        finished: Whether the file is complete and gets its final name.
    """

    place: str
    file: str | None = None
    nbytes: int = 0
    finished: bool = False


@dataclass(slots=True)
class _Writing:
    """The file being written.

    Attributes:
        name: Its final name.
        number: Its file descriptor.
        nbytes: The bytes written completely; a failed write may have left more.
        since: When it was created or reopened, by the monotonic clock.
    """

    name: str
    number: int
    nbytes: int
    since: float


class FileSink:
    """Writes each change as a line of JSON to files in a directory.

    The file being written is named ``NAME-VERSION-INDEX.jsonl.tmp`` after its first change. It is complete at the end of a
    transaction, once it is large or old enough: then it is synced and renamed, so a ``.jsonl`` never changes. ``NAME.place`` holds
    the position and the bytes of the file that belong to it. After a crash, bytes beyond these are truncated, so each change is
    there once.

    Args:
        directory: The directory of the files; created if missing.
        name: The prefix of their names: letters, digits, ``.``, ``_`` and ``-``.
        max_bytes: The size in bytes from which a file is complete, from 1.
        max_age: The age in seconds from which a file is complete, from 1; None for no bound.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    stores_position: ClassVar[bool] = True
    idempotent: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    images: ClassVar[Images | None] = None

    def __init__(
        self,
        directory: str | Path,
        name: str = "changes",
        *,
        max_bytes: int = 64 * MIB,
        max_age: float | None = 3600.0,
    ) -> None:
        plain = isinstance(name, str) and name[:1] not in ("", ".", "-")
        if not plain or not all(one.isascii() and (one.isalnum() or one in "._-") for one in name):
            raise InvalidOption(
                "name", name, "letters, digits, '.', '_' and '-', the first a letter or a digit"
            )
        check_whole("max_bytes", max_bytes, "a number of bytes, from 1", 1)
        if max_age is not None:
            check_seconds("max_age", max_age, 1.0, 366 * 86400.0)
        self.directory: Path = Path(directory)
        self.name = name
        self._max_bytes, self._max_age = max_bytes, max_age
        self._context: SinkContext | None = None
        self._writing: _Writing | None = None
        self._next: Position | None = None  # behind what was written
        self._kept: _Place | None = None  # the content of the sidecar
        self._split = False  # a transaction is partly written

    @property
    def place_path(self) -> Path:
        """The path of the sidecar."""
        return self.directory / (self.name + _PLACE)

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`.

        Raises:
            TargetRefused: If the sidecar is damaged, or the file that it names is missing or too short.
            TargetOfOtherHistory: If the stored position is not of this log's history.
            HistoryPruned: If the changes behind it are no longer kept.
        """
        self._context = context
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            kept = msgspec.json.decode(self.place_path.read_bytes(), type=_Place)
        except FileNotFoundError:
            self._clear(None)
            return None
        except msgspec.MsgspecError as error:
            raise TargetRefused(f"{self.place_path} is damaged: {error}") from None
        self._kept = kept
        position = context.place_of(
            kept.place, str(self.place_path), f"{self.directory} of files with such changes"
        )
        if kept.file is not None:
            self._restore(kept, kept.file)
        self._clear(kept.file)
        self._next, self._split = position, position.index != 0
        return position

    def write(self, batch: SinkBatch) -> None:
        """See `Sink.write`."""
        writing = self._writing or self._begin(batch.first)
        lines = memoryview(lines_of(batch, self._opened))
        done = 0
        while done < len(lines):
            done += os.pwrite(writing.number, lines[done:], writing.nbytes + done)
        writing.nbytes += len(lines)
        self._next, self._split = batch.next, not batch.boundary
        self._finish_if_due()

    def flush(self) -> None:
        """See `Sink.flush`."""
        self._finish_if_due()
        writing = self._writing
        if writing is not None and self._next is not None:
            kept = _Place(self._opened.token(self._next), writing.name, writing.nbytes)
            if kept != self._kept:
                os.fsync(writing.number)
                self._keep(kept)

    def move(self, position: Position) -> None:
        """See `Sink.move`."""
        self._next, self._split = position, False
        if self._writing is None:
            self._leave_refused()
            self._keep(_Place(self._opened.token(position)))
        else:
            self.flush()

    def finish(self) -> None:
        """Gives the last file its final name, because no change follows."""
        if self._writing is not None and self._next is not None:
            self._finish(self._writing, self._next)

    def close(self) -> None:
        """See `Sink.close`."""
        writing, self._writing = self._writing, None
        self._next = self._kept = self._context = None
        if writing is not None:
            os.close(writing.number)

    def alive(self) -> bool:
        """See `Sink.alive`."""
        return os.access(self.directory, os.W_OK)

    # The file being written.

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None
        return self._context

    def _begin(self, first: Position) -> _Writing:
        stem = name = f"{self.name}-{first.version:020d}-{first.index:06d}"
        again = 1
        while (self.directory / f"{name}.jsonl").exists():  # the sink was moved back
            again += 1
            name = f"{stem}-{again}"
        return self._take(f"{name}.jsonl", os.O_CREAT | os.O_TRUNC, 0)

    def _take(self, name: str, how: int, nbytes: int) -> _Writing:
        number = os.open(self.directory / (name + _UNFINISHED), os.O_RDWR | os.O_CLOEXEC | how, 0o644)
        self._writing = _Writing(name, number, nbytes, self._opened.clock.monotonic())
        sync_directory(self.directory)
        return self._writing

    def _finish_if_due(self) -> None:
        writing, place = self._writing, self._next
        if writing is None or place is None or self._split:
            return
        age = self._opened.clock.monotonic() - writing.since
        if writing.nbytes >= self._max_bytes or (self._max_age is not None and age >= self._max_age):
            self._finish(writing, place)

    def _finish(self, writing: _Writing, place: Position) -> None:
        os.ftruncate(writing.number, writing.nbytes)
        os.fsync(writing.number)
        self._keep(_Place(self._opened.token(place), writing.name, writing.nbytes, finished=True))
        self._rename(writing.name)
        self._writing = None
        os.close(writing.number)

    def _rename(self, name: str) -> None:
        (self.directory / (name + _UNFINISHED)).replace(self.directory / name)
        sync_directory(self.directory)

    def _keep(self, place: _Place) -> None:
        replace_file(self.place_path, msgspec.json.encode(place))
        self._kept = place

    # After a restart.

    def _restore(self, kept: _Place, name: str) -> None:
        """Reopens the file being written and truncates it to the committed bytes; renames it if it was complete."""
        path = self.directory / (name + _UNFINISHED)
        if kept.finished:
            if path.exists():
                self._rename(name)
            return
        size = path.stat().st_size if path.exists() else -1
        if size < kept.nbytes:
            what = "missing" if size < 0 else f"{size} bytes long instead of {kept.nbytes}"
            raise TargetRefused(
                f"{path} is {what}; put it back, or remove {self.place_path.name}, after which the sink continues at the place of its slot"
            )
        writing = self._take(name, 0, kept.nbytes)
        os.ftruncate(writing.number, kept.nbytes)

    def _leave_refused(self) -> None:
        """Finishes the file of a position that `open` has refused, unless the operator has moved the file away."""
        kept = self._kept
        if kept is None or kept.file is None:
            return
        path = self.directory / (kept.file + _UNFINISHED)
        if path.exists():
            os.truncate(path, min(kept.nbytes, path.stat().st_size))
            self._rename(kept.file)

    def _clear(self, kept: str | None) -> None:
        """Removes unfinished files without committed lines."""
        ours = re.compile(re.escape(self.name) + r"-\d{20}-\d{6}(-\d+)?\.jsonl" + re.escape(_UNFINISHED))
        for path in self.directory.iterdir():
            if ours.fullmatch(path.name) and path.name != f"{kept}{_UNFINISHED}":
                path.unlink()

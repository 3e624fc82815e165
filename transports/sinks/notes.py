"""What a sink has to know over restarts beside the place of its slot: one small file, replaced whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption, PenstockError
from publishers.model.position import Position
from transports.sinks.directory import replace_file

__all__ = ["GapNote", "RowsNote", "SinkNote", "SinkNotes"]

_FOLDER: Final = "sinks"
_RIGHT: Final = "a note that a sink has written; delete it if what it says is of no use any more"


class GapNote(msgspec.Struct, frozen=True):
    """Changes that the target will never get.

    Attributes:
        first: The place of the first, as the text of a token.
        next: The place behind the last, likewise.
    """

    first: str
    next: str


class RowsNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows that are given before changes go on.

    Attributes:
        cursor: The place behind the rows that the target has, as a subscriber keeps it; None if it has none yet.
        only: For rows that an operator wants again: which, as criteria travel. None for those of a first snapshot.
        after: The key behind which these begin.
        until: The last one.
    """

    cursor: str | None = None
    only: list[dict[str, Any]] | None = None
    after: str | None = None
    until: str | None = None


class SinkNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is noted.

    Attributes:
        off: Where the sink was when it was switched off, as the text of a token; None if it is on.
        gap: What was left out while it was off, until the target has been told.
        rows: Rows that are given at the moment.
        done: Behind which place rows were given, where nothing else is wanted.
    """

    off: str | None = None
    gap: GapNote | None = None
    rows: RowsNote | None = None
    done: str | None = None

    def place(self, position_of: Callable[[str], Position]) -> Position | None:
        """Where the sink was when its slot was dropped; None if it was not, or in another history."""
        token = self.off or self.done
        try:
            return None if token is None else position_of(token)
        except PenstockError:
            return None


class SinkNotes:
    """The note of one sink, in the directory ``sinks`` of its log.

    Args:
        directory: Of the log.
        name: Of the sink.

    Raises:
        InvalidOption: If what is there was not written here.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / _FOLDER / f"{name}.json"
        self.read()

    def read(self) -> None:
        """Looks what is noted by now: another runner may have had the sink; raises ``InvalidOption`` likewise."""
        try:
            self._told = msgspec.json.decode(self._path.read_bytes(), type=SinkNote)
        except FileNotFoundError:
            self._told = SinkNote()
        except msgspec.MsgspecError:
            raise InvalidOption(str(self._path), "what is there", _RIGHT) from None

    @property
    def told(self) -> SinkNote:
        """What is noted."""
        return self._told

    def write(self, **changed: Any) -> None:
        """Changes the note; durable when it returns.

        Raises:
            OSError: If the disk has no room or fails; nothing has changed.
        """
        told = msgspec.structs.replace(self._told, **changed)
        if told == self._told:
            return
        if told == SinkNote():
            self._path.unlink(missing_ok=True)
        else:
            self._path.parent.mkdir(exist_ok=True)
            replace_file(self._path, msgspec.json.encode(told))
        self._told = told

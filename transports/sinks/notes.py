"""What a sink keeps across restarts besides the position of its slot: a small file that is replaced as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption, PenstockError
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from transports.sinks.directory import replace_file
from transports.sinks.sink import EntitySpace

__all__ = ["GapNote", "HeldNote", "RowsNote", "SinkNote", "SinkNotes"]

_FOLDER: Final = "sinks"
_RIGHT: Final = "a note that a sink has written; delete it if what it says is of no use any more"


class GapNote(msgspec.Struct, frozen=True):
    """A range of changes that the target does not get.

    Attributes:
        first: The position of the first change, as the text of a token.
        next: The position behind the last change, as the text of a token.
    """

    first: str
    next: str


class RowsNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows that are carried before changes follow.

    Attributes:
        cursor: The cursor behind the rows that the target has; None if it has none yet.
        only: For rows that an operator orders once more: their criteria as JSON. None for the rows of a first snapshot.
        after: The key behind which these rows begin.
        until: The last key.
        held: Whether the target may have rows of the sink already, so that rows outside its criteria are removed.
    """

    cursor: str | None = None
    only: list[dict[str, Any]] | None = None
    after: str | None = None
    until: str | None = None
    held: bool = False


class HeldNote(msgspec.Struct, frozen=True):
    """What a target holds.

    Attributes:
        target: The target, as it is shown.
        spaces: The entity types, with the space of each.
    """

    target: str
    spaces: dict[str, EntitySpace]


class SinkNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole note.

    Attributes:
        off: The position of the sink when it was switched off, as the text of a token; None if it is on.
        gap: The range that was left out while it was off, until the target has confirmed it.
        rows: The rows that are being carried.
        done: The position behind the rows, for a sink of rows only that has carried them.
        held: The entity types that the target holds, if it keeps them under names; None before the first.
        kept: What the sink itself keeps.
        stored: Whether the target has stored a position, which it must have at the next start.
    """

    off: str | None = None
    gap: GapNote | None = None
    rows: RowsNote | None = None
    done: str | None = None
    held: HeldNote | None = None
    kept: Any = None
    stored: bool = False

    def place(self, position_of: Callable[[str], Position]) -> Position | None:
        """Returns the position of the sink when its slot was dropped; None if it was not, or if the history is another one."""
        token = self.off or self.done
        try:
            return None if token is None else position_of(token)
        except PenstockError:
            return None


class SinkNotes:
    """The note of one sink, in the directory ``sinks`` of its log.

    Args:
        directory: The directory of the log.
        name: The name of the sink.

    Raises:
        InvalidOption: If the file is not a note.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / _FOLDER / f"{name}.json"
        self.read()

    def read(self) -> None:
        """Reads the note again, because another runner may have changed it; raises ``InvalidOption`` if the file is not a note."""
        try:
            self._current = msgspec.json.decode(self._path.read_bytes(), type=SinkNote)
        except FileNotFoundError:
            self._current = SinkNote()
        except msgspec.MsgspecError:
            raise InvalidOption(str(self._path), HIDDEN, _RIGHT) from None

    @property
    def current(self) -> SinkNote:
        """The note."""
        return self._current

    def kept(self) -> Any:
        """Returns what the sink itself keeps."""
        return self._current.kept

    def keep(self, kept: Any) -> None:
        """Notes what the sink itself keeps; as `write`."""
        self.write(kept=kept)

    def clear(self) -> None:
        """Forgets everything, because the sink is dropped."""
        self.write(**msgspec.structs.asdict(SinkNote()))

    def write(self, **changed: Any) -> None:
        """Changes the note; durable when it returns.

        Raises:
            OSError: If the disk is full or fails; nothing has changed.
        """
        note = msgspec.structs.replace(self._current, **changed)
        if note == self._current:
            return
        if note == SinkNote():
            self._path.unlink(missing_ok=True)
        else:
            self._path.parent.mkdir(exist_ok=True)
            replace_file(self._path, msgspec.json.encode(note))
        self._current = note

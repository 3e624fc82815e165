"""What a sink keeps across restarts besides the position of its slot, in a small file that is replaced as a whole; above all which entity types its target holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption, PenstockError
from publishers.model.change import Change
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from transports.sinks.directory import replace_file
from transports.sinks.sink import EntityEffect, EntitySpace, Sink, effect_of

__all__ = ["GapNote", "HeldTypes", "RowsNote", "SinkNotes"]


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


_APART: Final = (
    "each would overwrite and truncate the other. Give every entity type its own, such as by {entity_type}, "
    "or leave one out by the criteria of the sink"
)


class HeldTypes:
    """The entity types that a sink has sent, with the space of each in the target; used by the thread that steps the runner.

    The note of the sink keeps them, so that a restart does not let in what was refused before.

    Args:
        sink: The sink. Without a method ``space`` its target tells entity types apart by itself.
        notes: The note of the sink.
    """

    def __init__(self, sink: Sink, notes: SinkNotes) -> None:
        self._space: Any = getattr(sink, "space", None)
        self._target, self._notes = repr(sink), notes
        self._seen: set[str] = set()  # in the note, or without a space
        self._new: dict[str, EntitySpace] = {}

    @property
    def takes_all(self) -> bool:
        """Whether the target tells entity types apart by itself, so that `flaw` finds none."""
        return self._space is None

    def flaw(self, change: Change) -> str | None:
        """Returns why the target cannot hold the entity of a change; None if it can."""
        kind = change.entity_type
        if (
            self._space is None
            or kind is None
            or kind in self._seen
            or effect_of(change) is EntityEffect.NONE
        ):
            return None
        space = self._space(kind)
        if space is not None and kind not in self._new:
            for other, held in {**self._noted(), **self._new}.items():
                if other != kind and space.meets(held):
                    return f"{self._target} would keep {kind!r} and {other!r} in {space}: {_APART}"
            self._new[kind] = space
        return None

    def note(self) -> None:
        """Notes the entity types that were found to fit since the last call; they must not be sent before.

        Raises:
            OSError: If the disk is full or fails.
        """
        if self._new:
            self._notes.write(held=HeldNote(self._target, {**self._noted(), **self._new}))
            self._seen |= self._new.keys()
            self._new = {}

    def _noted(self) -> dict[str, EntitySpace]:
        held = self._notes.current.held
        return held.spaces if held is not None and held.target == self._target else {}

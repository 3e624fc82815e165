"""Which entity types a target holds, so that two of them never overwrite each other under one name."""

from typing import Any, Final

from publishers.model.change import Change
from transports.sinks.effects import EntityEffect, effect_of
from transports.sinks.notes import HeldNote, SinkNotes
from transports.sinks.sink import EntitySpace, Sink

__all__ = ["HeldTypes"]

_RIGHT: Final = (
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
                    return f"{self._target} would keep {kind!r} and {other!r} in {space}: {_RIGHT}"
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

"""Determines which fields of a change an operation selects, and under which names, by asking graphql-core itself.

One trial execution gets a sample in which every field has a distinct value. The fields that it reads from the sample are
those to read from a change; the places of the values in its result give the shape of every payload. Aliases, fragments,
directives and ``__typename`` are thus resolved exactly as for real events, by the same code.
"""

import enum
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from graphql import ExecutionResult

from publishers.model.change import Action, Area, Operation
from publishers.model.fields import FIELDS, FieldKind
from publishers.views.view import Content, Images, View
from transports.graphql.types import JSON, ChangeEvent, Cursor, DateTime, Long

__all__ = ["TYPENAME", "SelectionProbe", "fields_of", "view_for"]

TYPENAME: Final = "__typename"

# Values that differ from each other, so that they tell where they come from.
_SAMPLES: Final[Mapping[FieldKind, Callable[[int, str], object]]] = {
    FieldKind.NUMBER: lambda place, _name: Long(7001 + place),
    FieldKind.COUNT: lambda place, _name: 7001 + place,
    FieldKind.MOMENT: lambda _place, name: DateTime(name),
    FieldKind.JSON: lambda _place, name: JSON(msgspec.json.encode(name)),
    FieldKind.NAMES: lambda _place, name: [name],
}
_WORDS: Final = {"area": Area.HOST, "operation": Operation.READ, "action": Action.DISCARD}


def _sample() -> ChangeEvent:
    made = {
        field.name: _SAMPLES[field.kind](place, field.name)
        if field.kind in _SAMPLES
        else _WORDS.get(field.name, field.name)
        for place, field in enumerate(FIELDS)
    }
    return ChangeEvent(cursor=Cursor("cursor"), **made)


_SAMPLE: Final = _sample()
_DIFFERENCES: Final = frozenset({Images.CHANGE, Images.CHANGED_WITH_OLD})
_BODIES: Final = frozenset(field.name for field in FIELDS if field.images) | {"error"}
_FOUND_OUT: Final = frozenset({"changed"})  # determined by comparing bodies


def _text(value: object) -> str:
    """A value of the sample as it appears in a result."""
    if isinstance(value, enum.Enum):
        return value.name
    return bytes(value).decode() if isinstance(value, bytes | msgspec.Raw) else str(value)


_BY_VALUE: Final[Mapping[str, str]] = {_text(value): name for name, value in vars(_SAMPLE).items()} | {
    "Change": TYPENAME
}


class SelectionProbe:
    """Stands for a change in a trial execution, and records the fields that are read.

    Attributes:
        asked: The names of the fields.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(_SAMPLE, name)

    def view(self, widest: View) -> View:
        """Returns the view that shows the fields that were read."""
        return view_for(widest, self.asked)


def view_for(widest: View, fields: AbstractSet[str]) -> View:
    """Returns the view that shows the given fields of a change: BODY exactly if one of them needs bodies."""
    takers = _BODIES | _FOUND_OUT if widest.images in _DIFFERENCES else _BODIES
    content = widest.content if fields & takers else Content.HEADER
    return View(content, widest.images, widest.lenses, widest.integers, widest.apart)


def fields_of(trial: ExecutionResult) -> tuple[str, list[tuple[str, str]]] | None:
    """Derives the shape of a subscription's payloads from a trial execution.

    Returns:
        The name of the root field, and for each field in it the response name and the field of the change, in order; None if
        the result has another shape, so that graphql-core must execute each event.
    """
    if trial.errors or not trial.data or len(trial.data) != 1:
        return None
    ((root, event),) = trial.data.items()
    if not isinstance(event, dict):
        return None
    found = []
    for name, value in event.items():
        held = _BY_VALUE.get(_text(value))
        if held is None:
            return None
        found.append((name, held))
    return root, found

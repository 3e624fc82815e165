"""Which fields of a change an operation selects, and under which names: asked of graphql-core itself.

One trial execution is given a sample in which every field has a value of its own. What it asks the sample for says what
has to be read of a change; where the values turn up in its result says what the payload of any change looks like. So
aliases, fragments, directives and ``__typename`` are resolved as for real events, and by the same code.
"""

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from graphql import ExecutionResult

from publishers.model.change import Action, Area, Operation
from publishers.views.view import Content, Images, View
from transports.graphql.types import JSON, ChangeEvent, Cursor, DateTime, Long

__all__ = ["TYPENAME", "SelectionProbe", "fields_of", "view_for"]

TYPENAME: Final = "__typename"

_SAMPLE: Final = ChangeEvent(
    version=Long(7001),
    index=7002,
    count=7003,
    cursor=Cursor("cursor"),
    timestamp=DateTime("timestamp"),
    area=Area.HOST,
    operation=Operation.READ,
    entity_type="entity type",
    key="key",
    body=JSON(b'"body"'),
    before=JSON(b'"before"'),
    changed=["changed"],
    schema_version=Long(7004),
    entry_version=Long(7005),
    origin="origin",
    meta=JSON(b'"meta"'),
    expires_at=DateTime("expires at"),
    linked="linked",
    field="field",
    action=Action.DISCARD,
    error="error",
    lacking=["lacking"],
)
_DIFFERENCES: Final = frozenset({Images.CHANGE, Images.CHANGED_WITH_OLD})
_BODIES: Final = frozenset({"body", "before", "error", "lacking"})
_FOUND_OUT: Final = frozenset({"changed"})  # by comparing bodies


def _text(value: object) -> str:
    """A value of the sample as it stands in a result."""
    if isinstance(value, enum.Enum):
        return value.name
    return bytes(value).decode() if isinstance(value, bytes | msgspec.Raw) else str(value)


_BY_VALUE: Final[Mapping[str, str]] = {_text(value): name for name, value in vars(_SAMPLE).items()} | {
    "Change": TYPENAME
}


class SelectionProbe:
    """Stands for a change in a trial execution, and remembers what it is asked for.

    Attributes:
        asked: Names of the fields.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(_SAMPLE, name)

    def view(self, widest: View) -> View:
        """The view that shows what was asked for."""
        return view_for(widest, self.asked)


def view_for(widest: View, fields: AbstractSet[str]) -> View:
    """The view that shows some fields of a change: BODY exactly if one of them takes bodies."""
    takers = _BODIES | _FOUND_OUT if widest.images in _DIFFERENCES else _BODIES
    content = widest.content if fields & takers else Content.HEADER
    return View(content, widest.images, widest.lenses, widest.integers, widest.apart)


def fields_of(trial: ExecutionResult) -> tuple[str, list[tuple[str, str]]] | None:
    """What the payloads of a subscription look like, read off a trial execution.

    Returns:
        The name of the root field, and of each field in it the name and what it holds, in order; None if the result has
        another shape than that, so that it must be left to graphql-core each time.
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

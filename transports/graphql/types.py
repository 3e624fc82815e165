"""Types and scalars of the schema: changes, logs, pages of history, and schemas."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from datetime import datetime
from typing import Any, Final, NewType, TypeVar

import msgspec
import strawberry
from strawberry.types.scalar import ScalarDefinition

from publishers.lossless import flaw_of
from publishers.model.change import Action, Area, Change, Operation
from publishers.model.fields import FIELDS, Field, FieldKind, FieldPlace, compiled
from publishers.schemas.registry import SchemaVersion
from publishers.views.view import Images, Integers

__all__ = [
    "JSON",
    "SCALARS",
    "ChangeEvent",
    "Cursor",
    "DateTime",
    "HistoryPage",
    "LogState",
    "Long",
    "SchemaState",
    "SchemaVersions",
    "Value",
    "argument",
    "declares",
    "described",
    "stamp",
]

_LONG_MAX: Final = 2**63 - 1
_T = TypeVar("_T")

Long = NewType("Long", int)
Cursor = NewType("Cursor", str)
DateTime = NewType("DateTime", str)
JSON = NewType("JSON", bytes)
Value = NewType("Value", object)


def described(description: str, **named: Any) -> Any:
    """A field of the schema with its description."""
    return strawberry.field(description=description, **named)


def argument(description: str) -> Any:
    """An argument of a field with its description."""
    return strawberry.argument(description=description)


def _parse_long(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LONG_MAX:
        raise ValueError(
            f"Long is {value!r:.40}, but must be a whole number from 0 to 2^63 - 1, as text or number"
        )
    return value


def _parse_cursor(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"Cursor is {value!r:.40}, but must be text that an event, a page or a log told")
    return value


SCALARS: Final[Mapping[object, ScalarDefinition]] = {
    Long: strawberry.scalar(
        name="Long",
        description="A whole number of 63 bits, sent as text because Int has 32 bits and JavaScript 53.",
        serialize=str,
        parse_value=_parse_long,
    ),
    Cursor: strawberry.scalar(
        name="Cursor",
        description="A place in a log, opaque. Store the cursor of the last change you handled, and subscribe with "
        "`since` to resume after it.",
        parse_value=_parse_cursor,
    ),
    DateTime: strawberry.scalar(name="DateTime", description="RFC 3339 in UTC, with microseconds."),
    JSON: strawberry.scalar(
        name="JSON",
        description="JSON exactly as it was written, with numbers of any length.",
        serialize=msgspec.Raw,
        parse_value=msgspec.json.encode,
    ),
    Value: strawberry.scalar(
        name="Value",
        description="The value of a comparison: a number, text, true, false or null, or a list of them.",
    ),
}

strawberry.enum(Action, name="Action", description="The action on a field.")
strawberry.enum(Area, name="Area", description="What part of the system a change concerns.")
strawberry.enum(Operation, name="Operation", description="What happened.")
strawberry.enum(Images, name="Images", description="Which images of an entity `body` and `before` show.")
strawberry.enum(
    Integers,
    name="Integers",
    description="How whole numbers beyond 2^53 appear in JSON: as numbers, or as text for readers that would round them.",
)


# The type of the values of each kind in the schema; of a word it is its enumeration.
TYPES: Final[Mapping[FieldKind, Any]] = {
    FieldKind.NUMBER: Long,
    FieldKind.COUNT: int,
    FieldKind.TEXT: str,
    FieldKind.KEY: str,
    FieldKind.PATH: str,
    FieldKind.MOMENT: DateTime,
    FieldKind.JSON: JSON,
    FieldKind.NAMES: list[str],
}


def declares(
    fields: Iterable[Field], order: Sequence[str], default: Any = MISSING
) -> Callable[[type[_T]], type[_T]]:
    """Gives a class of the schema those fields that it does not declare itself, in an order of all."""

    def declare(kind: type[_T]) -> type[_T]:
        types = dict(kind.__annotations__)
        for field in fields:
            if field.name not in types:
                plain = TYPES.get(field.kind, field.type)
                types[field.name] = plain | None if field.optional else plain
                says = field.says
                if field.kind is FieldKind.JSON and field.images:
                    says = f"{says.removesuffix('.')}; read only if selected."
                setattr(kind, field.name, described(says, default=default))
        kind.__annotations__ = {name: types[name] for name in sorted(types, key=order.index)}
        return kind

    return declare


_ORDER: Final = [field.name for field in FIELDS if field.name != "lacking"]
_ORDER.insert(_ORDER.index("timestamp"), "cursor")
_ORDER.insert(_ORDER.index("expires_at"), "lacking")


@strawberry.type(name="Change", description="One event of a change log.")
@declares(FIELDS, _ORDER)
class ChangeEvent:
    """A change in the schema; JSON stays the stored text."""

    cursor: Cursor = described("The place after this change.")

    @classmethod
    def of(cls, change: Change, cursor: str) -> "ChangeEvent":
        """Makes the event of a change, with the cursor behind it."""
        event: ChangeEvent = _event(cls, change, cursor)
        return event


def stamp(moment: datetime) -> str:
    """Formats a UTC time as RFC 3339, always with microseconds."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _image(text: bytes | None) -> JSON | None:
    """Returns an image; None if it is damaged and would spoil the payload, in which case ``error`` reports it."""
    return None if text is None or flaw_of(text) is not None else JSON(text)


_CONVERTS: Final[Mapping[FieldKind, Callable[[Any], object]]] = {
    FieldKind.MOMENT: stamp,
    FieldKind.JSON: _image,
    FieldKind.NAMES: list,
}


def _told(field: Field) -> str:
    # ``error`` also tells of images that are damaged, which no one has read yet.
    text = f"change.{field.name if field.place is FieldPlace.MADE else field.attribute}"
    return f"None if {text} is None else {field.kind.name}({text})" if field.kind in _CONVERTS else text


_event: Final = compiled(
    "event(kind, change, cursor)",
    f"return kind(cursor=cursor, {', '.join(f'{field.name}={_told(field)}' for field in FIELDS)})",
    **{kind.name: convert for kind, convert in _CONVERTS.items()},
)


@strawberry.type(name="History", description="A page of past changes.")
class HistoryPage:
    """A page of past changes, and where to continue."""

    changes: list[ChangeEvent] = described("The changes, in order.")
    since: Cursor = described("Where the page begins.")
    next: Cursor = described(
        "Where the next page begins, and, unless reversed, where to subscribe after the last."
    )
    has_next: bool = described("Whether there is a next page now.")

    @classmethod
    def of(
        cls, changes: list[ChangeEvent], since: str = "", following: str = "", *, more: bool = False
    ) -> "HistoryPage":
        """Makes a page."""
        return cls(changes=changes, since=Cursor(since), next=Cursor(following), has_next=more)


@strawberry.type(name="Log", description="A change log of this server.")
class LogState:
    """A log at this moment."""

    name: str = described("What to pass as `log`.")
    epoch: int = described("Rises each time the log is opened for writing.")
    oldest: Cursor = described("The oldest place that is kept.")
    head: Cursor = described("The place after the newest visible change.")


@strawberry.type(name="SchemaPart", description="A part of a schema.")
class SchemaPart:
    """One part of a schema."""

    name: str = described("Its name; `entity` describes the entity itself.")
    body: JSON | None = described("The schema; null if it cannot be rendered.")


@strawberry.type(name="Schema", description="A schema of entities, as it was registered.")
class SchemaState:
    """One version of a schema."""

    entity_type: str = described("Of which entities.")
    version: Long = described("Its version: `schemaVersion` of changes.")
    told: Cursor = described(
        "Subscribe with it as `since` to begin with the change that registered the schema."
    )
    parts: list[SchemaPart] = described(
        "The parts that this version changed, and those that it left unchanged."
    )

    @classmethod
    def of(cls, found: SchemaVersion, told: str) -> "SchemaState":
        """Makes a schema, with the cursor of the change that recorded it."""
        parts = [SchemaPart(name=name, body=_image(text)) for name, text in found.parts.items()]
        return cls(entity_type=found.entity_type, version=Long(found.version), told=Cursor(told), parts=parts)


@strawberry.type(name="SchemaVersions", description="The schemas of an entity type.")
class SchemaVersions:
    """The schema versions of one entity type."""

    entity_type: str = described("Of which entities.")
    versions: list[Long] = described("Every registered version, ascending.")

"""Types and scalars of the schema: changes, logs, pages of history, and schemas."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NewType

import msgspec
import strawberry
from strawberry.types.scalar import ScalarDefinition

from publishers.lossless import flaw_of
from publishers.model.change import Action, Area, Change, Operation
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
    "described",
    "stamp",
]

_LONG_MAX: Final = 2**63 - 1
_AS_IT_IS: Final = (
    *("version", "index", "count", "area", "operation", "entity_type", "key", "schema_version"),
    *("entry_version", "origin", "linked", "field", "action", "error"),
)

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


@strawberry.type(name="Change", description="One event of a change log.")
class ChangeEvent:
    """A change in the schema; JSON stays the stored text."""

    version: Long = described("Version of the transaction.")
    index: int = described("Place in the transaction; 0 is the leading TRANSACTION event.")
    count: int = described("Changes of the whole transaction, the TRANSACTION event included.")
    cursor: Cursor = described("The place after this change.")
    timestamp: DateTime = described("When the transaction was committed.")
    area: Area = described("What part of the system it concerns.")
    operation: Operation = described("What happened.")
    entity_type: str | None = described("Kind of the entity.")
    key: str | None = described("Key of the entity.")
    body: JSON | None = described("The entity after the change; read only if selected.")
    before: JSON | None = described("The entity before the change; read only if selected.")
    changed: list[str] | None = described("Names of the fields that changed.")
    schema_version: Long | None = described("Version of the schema in force.")
    entry_version: Long | None = described("Version of the entity, for conflict resolution.")
    origin: str | None = described("Where the change was first made.")
    meta: JSON | None = described("The `meta` of the transaction (index 0) or of the change.")
    lacking: list[str] = described("The parts that the requested images need and the log lacks.")
    expires_at: DateTime | None = described("When the entity expires, or expired.")
    linked: str | None = described("Of the two halves of a key change, the key of the other.")
    field: str | None = described(
        "Path of the one field that a field-level change concerns; null for the entity as a whole."
    )
    action: Action | None = described("The action of a field-level change on the field.")
    error: str | None = described(
        "What of this change cannot be rendered, and why; it is null in the other fields."
    )

    @classmethod
    def of(cls, change: Change, cursor: str) -> "ChangeEvent":
        """Makes the event of a change, with the cursor behind it."""
        return cls(
            **{name: getattr(change, name) for name in _AS_IT_IS},
            cursor=Cursor(cursor),
            timestamp=DateTime(stamp(change.timestamp)),
            body=_image(change.body_bytes),
            before=_image(change.before_bytes),
            changed=None if change.changed is None else list(change.changed),
            meta=None if change.meta_bytes is None else JSON(change.meta_bytes),
            expires_at=None if change.expires_at is None else DateTime(stamp(change.expires_at)),
            lacking=list(change.lacking),
        )


def stamp(moment: datetime) -> str:
    """Formats a UTC time as RFC 3339, always with microseconds."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _image(text: bytes | None) -> JSON | None:
    """Returns an image; None if it is damaged and would spoil the payload, in which case ``error`` reports it."""
    return None if text is None or flaw_of(text) is not None else JSON(text)


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

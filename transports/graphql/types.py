"""What the schema speaks of: changes, logs, pages of history, and wishes."""

import enum
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NewType

import msgspec
import strawberry
from strawberry.types.scalar import ScalarDefinition

from publishers.change import Action, Area, Change, Operation
from publishers.criteria.conditions import ABSENT, Comparison, Image, Transition, Where
from publishers.criteria.criteria import Criterion
from publishers.errors import InvalidCriteria
from publishers.lossless import flaw_of
from publishers.views.view import Images

__all__ = [
    "JSON",
    "SCALARS",
    "ChangeEvent",
    "ConditionInput",
    "CriterionInput",
    "Cursor",
    "DateTime",
    "HistoryPage",
    "LogState",
    "Long",
    "MaskRuleInput",
    "Value",
    "stamp",
]

_LONG_MAX: Final = 2**63 - 1

Long = NewType("Long", int)
Cursor = NewType("Cursor", str)
DateTime = NewType("DateTime", str)
JSON = NewType("JSON", bytes)
Value = NewType("Value", object)


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
        "`since` to go on behind it.",
        parse_value=_parse_cursor,
    ),
    DateTime: strawberry.scalar(name="DateTime", description="RFC 3339 in UTC, with microseconds."),
    JSON: strawberry.scalar(
        name="JSON",
        description="JSON exactly as it was written, with numbers of any length.",
        serialize=msgspec.Raw,
    ),
    Value: strawberry.scalar(
        name="Value",
        description="What a field is compared with: a number, text, true, false or null, or a list of them.",
    ),
}

strawberry.enum(Action, name="Action", description="What is done to a field.")
strawberry.enum(Area, name="Area", description="What part of the system a change concerns.")
strawberry.enum(Operation, name="Operation", description="What happened.")
strawberry.enum(Comparison, name="Comparison", description="How a value is compared.")
strawberry.enum(Image, name="Image", description="Which image of the entity a condition looks at.")
strawberry.enum(
    Transition,
    name="Transition",
    description="What a change does to the place of an entity in a filter: ENTERED holds after it and not before, "
    "LEFT before it and not after, STAYED both.",
)
strawberry.enum(Images, name="Images", description="Which images of an entity `body` and `before` show.")


@strawberry.type(name="Change", description="One event of a change log.")
class ChangeEvent:
    """A change as the schema sees it; JSON stays the text that it is in the log."""

    version: Long = strawberry.field(description="Version of the transaction.")
    index: int = strawberry.field(description="Place in the transaction; 0 is the leading TRANSACTION event.")
    count: int = strawberry.field(
        description="Changes of the whole transaction, the TRANSACTION event included."
    )
    cursor: Cursor = strawberry.field(description="The place after this change.")
    timestamp: DateTime = strawberry.field(description="When the transaction was committed.")
    area: Area = strawberry.field(description="What part of the system it concerns.")
    operation: Operation = strawberry.field(description="What happened.")
    entity_type: str | None = strawberry.field(description="Kind of the entity.")
    key: str | None = strawberry.field(description="Key of the entity.")
    body: JSON | None = strawberry.field(description="The entity after the change; read only if selected.")
    before: JSON | None = strawberry.field(description="The entity before the change; read only if selected.")
    changed: list[str] | None = strawberry.field(description="Names of the fields that changed.")
    schema_version: Long | None = strawberry.field(description="Version of the schema in force.")
    entry_version: Long | None = strawberry.field(
        description="Version of the entity, for conflict resolution."
    )
    origin: str | None = strawberry.field(description="Where the change was first made.")
    meta: JSON | None = strawberry.field(
        description="What the application attached: to the transaction (index 0), or to the change."
    )
    lacking: list[str] = strawberry.field(
        description="What the images that were asked for need and the log does not hold."
    )
    expires_at: DateTime | None = strawberry.field(description="When the entity expires, or expired.")
    linked: str | None = strawberry.field(
        description="Of the two halves of a key change, the key of the other."
    )
    field: str | None = strawberry.field(
        description="Path of the one field that a field-level change concerns; null for the entity as a whole."
    )
    action: Action | None = strawberry.field(description="What a field-level change does to the field.")
    error: str | None = strawberry.field(
        description="What of this change cannot be rendered, and why; it is null in the other fields."
    )

    @classmethod
    def of(cls, change: Change, cursor: str) -> "ChangeEvent":
        """A change, with the cursor after it."""
        return cls(
            version=Long(change.version),
            index=change.index,
            count=change.count,
            cursor=Cursor(cursor),
            timestamp=DateTime(stamp(change.timestamp)),
            area=change.area,
            operation=change.operation,
            entity_type=change.entity_type,
            key=change.key,
            body=_image(change.body_bytes),
            before=_image(change.before_bytes),
            changed=None if change.changed is None else list(change.changed),
            schema_version=_long(change.schema_version),
            entry_version=_long(change.entry_version),
            origin=change.origin,
            meta=_json(change.meta_bytes),
            expires_at=None if change.expires_at is None else DateTime(stamp(change.expires_at)),
            linked=change.linked,
            field=change.field,
            action=change.action,
            error=change.error,
            lacking=list(change.lacking),
        )


def stamp(moment: datetime) -> str:
    """RFC 3339 of a moment in UTC, always with microseconds."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _json(text: bytes | None) -> JSON | None:
    return None if text is None else JSON(text)


def _image(text: bytes | None) -> JSON | None:
    """An image, unless it is damaged and would spoil the payload; then ``error`` says so."""
    return None if text is None or flaw_of(text) is not None else JSON(text)


def _long(number: int | None) -> Long | None:
    return None if number is None else Long(number)


@strawberry.type(name="History", description="A page of past changes.")
class HistoryPage:
    """Past changes, and where to go on."""

    changes: list[ChangeEvent] = strawberry.field(description="The changes, in order.")
    since: Cursor = strawberry.field(description="Where the page begins.")
    next: Cursor = strawberry.field(
        description="Where the next page begins, and, unless reversed, where to subscribe after the last."
    )
    has_next: bool = strawberry.field(description="Whether there is a next page now.")

    @classmethod
    def of(
        cls, changes: list[ChangeEvent], since: str = "", following: str = "", *, more: bool = False
    ) -> "HistoryPage":
        """A page."""
        return cls(changes=changes, since=Cursor(since), next=Cursor(following), has_next=more)


@strawberry.type(name="Log", description="A change log of this server.")
class LogState:
    """A log at this moment."""

    name: str = strawberry.field(description="What to pass as `log`.")
    epoch: int = strawberry.field(description="Rises each time the log is opened for writing.")
    oldest: Cursor = strawberry.field(description="The oldest place that is kept.")
    head: Cursor = strawberry.field(description="The place after the newest visible change.")


@strawberry.enum(name="MaskRule", description="What is shown in place of a value.")
class MaskRule(enum.Enum):
    """The rules of a mask."""

    REDACT = "REDACT"
    HASH = "HASH"
    PARTIAL = "PARTIAL"
    DROP = "DROP"


@strawberry.input(name="MaskRuleInput", description="What is shown in place of the value at a path.")
class MaskRuleInput:
    """One rule of a mask as it is given in a document or in variables."""

    path: str = strawberry.field(description="Names separated by dots, `$key`, or `$meta` and what is in it.")
    rule: MaskRule = strawberry.field(default=MaskRule.REDACT, description="What is shown.")
    text: str | None = strawberry.field(
        default=None, description="REDACT: the text that is shown, *** if left out."
    )
    key: str | None = strawberry.field(
        default=None, description="HASH: the key of the HMAC, at least 16 bytes."
    )
    last: int | None = strawberry.field(
        default=None, description="PARTIAL: how many characters are shown, 4 if left out."
    )

    def plain(self) -> dict[str, str | int]:
        """The rule as it travels elsewhere."""
        parts = {"rule": self.rule.value, "text": self.text, "key": self.key, "last": self.last}
        return {name: value for name, value in parts.items() if value is not None}


@strawberry.input(name="Condition", description="A condition on the value of a field.")
class ConditionInput:
    """A condition as it is given in a document or in variables."""

    path: str = strawberry.field(description="Names of the fields that lead to the value, separated by dots.")
    compare: Comparison = strawberry.field(description="How it is compared.")
    value: Value | None = strawberry.field(
        default=strawberry.UNSET,
        description="With what: for IN a list; for EXISTS and IS_NULL true (if left out) or false.",
    )
    image: Image = strawberry.field(
        default=Image.AFTER, description="Which image of the entity is looked at."
    )

    def condition(self, place: str) -> Where:
        """The condition, checked.

        Raises:
            InvalidCriteria: If it is none; ``path`` tells where, in the words of the schema.
        """
        value = ABSENT if self.value is strawberry.UNSET else self.value
        try:
            return Where(self.path, self.compare, value, image=self.image)
        except InvalidCriteria as error:
            raise error.at(place) from None


@strawberry.input(
    name="Criterion",
    description="One wish. All its fields must hold; a field that is left out holds for every change.",
)
class CriterionInput:
    """A wish as it is given in a document or in variables."""

    areas: list[Area] | None = strawberry.field(default=None, description="Any of these areas.")
    entity_types: list[str] | None = strawberry.field(default=None, description="Any of these entity types.")
    keys: list[str] | None = strawberry.field(default=None, description="Any of these keys.")
    key_globs: list[str] | None = strawberry.field(
        default=None, description="Any of these patterns of keys, in which * and ? stand for characters."
    )
    key_patterns: list[str] | None = strawberry.field(
        default=None, description="Any of these regular expressions, which the whole key must match."
    )
    operations: list[Operation] | None = strawberry.field(
        default=None, description="Any of these operations."
    )
    changed: list[str] | None = strawberry.field(
        default=None, description="Any of these fields was changed, and the change says so."
    )
    where: list[ConditionInput] | None = strawberry.field(
        default=None, description="All of these conditions on values hold."
    )
    transitions: list[Transition] | None = strawberry.field(
        default=None, description="Any of these happens to the entity in the filter that `where` is."
    )

    def criterion(self, place: int) -> Criterion:
        """The wish, checked.

        Raises:
            InvalidCriteria: If values contradict each other; ``path`` tells where, in the words of the schema.
        """
        conditions = [
            condition.condition(f"criteria[{place}].where[{number}]")
            for number, condition in enumerate(self.where or ())
        ]
        try:
            return Criterion(
                areas=self.areas or (),
                entity_types=self.entity_types or (),
                keys=self.keys or (),
                key_globs=self.key_globs or (),
                key_patterns=self.key_patterns or (),
                operations=self.operations or (),
                changed=self.changed or (),
                where=conditions,
                transitions=self.transitions or (),
            )
        except InvalidCriteria as error:
            path = re.sub("_([a-z])", lambda found: found[1].upper(), error.path)
            raise InvalidCriteria(f"criteria[{place}].{path}", error.value, error.right) from None

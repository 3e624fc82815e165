"""The fields of a change: one table, from which each face of a change is made.

A face is what tells of a change or takes one: the columns of the log, JSON of the WebSocket protocol, GraphQL, bodies of sinks, Spark, rows
of the state, commands, and the types of penstock.js. A face knows each `FieldKind` of value, and asks this table for the fields; so a field of
a known kind is added here alone, and described in docs/events.md.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Final, TypedDict, TypeVar, cast, get_args, get_type_hints

import msgspec

__all__ = [
    "ATTACHED",
    "FIELDS",
    "GIVEN",
    "Action",
    "Area",
    "ChangeFields",
    "Field",
    "FieldKind",
    "FieldPlace",
    "Given",
    "Operation",
    "compiled",
    "extended",
    "values_of",
]


class Area(enum.IntEnum):
    """The part of the system that a change concerns. The numbers are on disk and are never reused."""

    DATA = 1
    SCHEMA = 2
    INFRASTRUCTURE = 3
    ENGINE = 4
    HOST = 5


class Operation(enum.IntEnum):
    """The operation of a change. The numbers are on disk and are never reused."""

    UPSERT = 1
    REMOVE = 2
    TRANSACTION = 3
    TRUNCATE = 4
    EXPIRE = 5
    READ = 6


class Action(enum.Enum):
    """What a field-level change does to its field."""

    SET = "SET"
    REMOVE = "REMOVE"
    PUSH = "PUSH"
    ADD = "ADD"
    DISCARD = "DISCARD"


class FieldKind(enum.Enum):
    """What the values of a field are. Each face has a table by kind, which says how it writes them."""

    NUMBER = "a whole number of 64 bits"
    COUNT = "a whole number of 32 bits"
    TEXT = "text, the same in every view"
    KEY = "the key of an entity: bytes, shown as text, and masked as keys are"
    PATH = "the path of a field, not shown if the view hides the field"
    WORD = "a member of an enumeration"
    MOMENT = "a moment, in UTC"
    JSON = "JSON as it was written"
    NAMES = "a list of texts"


class FieldPlace(enum.Enum):
    """Where the log keeps a field."""

    FRAME = "in the header of the frame, for the whole transaction, or counted"
    COLUMN = "in a column of its own"
    META = "as a member of the JSON object in the column ``meta``, of the same name"
    MADE = "nowhere: it is found when the change is rendered"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a change.

    Attributes:
        kind: What its values are.
        says: What it is, in one sentence, for schemas and types of other languages.
        place: Where the log keeps it.
        images: Whether it is told with ``Content.BODY`` only.
        given: Whether writers give it for any change, as a keyword argument of ``upsert``, ``remove`` and the like.
        kept: Whether the state keeps it with the entity.
        always: Whether bodies of sinks tell it also where it does not apply, as null.
        apart: Whether it is told to a subscriber that sees each change as if it were alone.
        left: Whether it is told of a change that is shown as the removal of an entity which left what a subscriber keeps.
        repeated: Whether a repetition of a transaction has to say the same, because neither the log nor the clock gives it.
        versioned: Whether it is, for a change of an entity, the version of the change unless another one is given.
        since: The format of the log from which on it is there. A member of ``meta`` needs no new format: older readers skip it.
        attribute: Its name as an attribute of ``Change``.
        name: Its name everywhere else.
        type: The type of its values in Python.
        optional: Whether it may not apply, and is None then.
    """

    kind: FieldKind
    says: str
    place: FieldPlace = FieldPlace.COLUMN
    images: bool = False
    given: bool = False
    kept: bool = False
    always: bool = True
    apart: bool = True
    left: bool = True
    repeated: bool = True
    versioned: bool = False
    since: int = 1
    attribute: str = ""
    name: str = ""
    type: Any = None
    optional: bool = True


_META: Final = FieldPlace.META
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class ChangeFields(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The table: the attributes of `Change`, in the order of its constructor.

    Attributes:
        version: Version of the transaction.
        index: Place in the transaction; 0 is the leading TRANSACTION event.
        count: Changes of the whole transaction, the TRANSACTION event included.
        timestamp: Commit time of the transaction, UTC; not part of equality.
        area: DATA, SCHEMA, INFRASTRUCTURE, ENGINE or HOST.
        operation: UPSERT, REMOVE, TRANSACTION, TRUNCATE, EXPIRE or READ.
        entity_type: Kind of the entity.
        key: Key of the entity. Bytes that are not UTF-8 appear as lone surrogates (PEP 383).
        body_bytes: JSON of the entity after the change.
        before_bytes: JSON of the entity before the change.
        changed: Names of the fields that changed.
        schema_version: Version of the schema in force.
        entry_version: Version of the entity, for conflict resolution.
        origin: Where the change was first made.
        meta_bytes: JSON that the application attached: to the transaction (index 0) or to the change.
        expires_at: When the entity expires, or expired.
        linked: For each of the two halves of a key change, the key of the other half.
        field: Path of the only field that a field-level change concerns, such as ``lines[0].price``; None for a change of
            the entity as a whole. Body and before image then hold nothing but that field.
        action: What the change does to the field.
        error_text: Which stored part of the change cannot be read; see ``error``.
        lacking: Which of ``body``, ``before`` and ``changed`` the view needs although the log lacks them, or holds them as
            unreadable JSON; empty if none.
    """

    version: Annotated[int, Field(FieldKind.NUMBER, "Version of the transaction.", FieldPlace.FRAME)]
    index: Annotated[
        int,
        Field(
            FieldKind.COUNT, "Place in the transaction; 0 is the leading TRANSACTION event.", FieldPlace.FRAME
        ),
    ]
    count: Annotated[
        int,
        Field(
            FieldKind.COUNT,
            "Changes of the whole transaction, the TRANSACTION event included.",
            FieldPlace.FRAME,
        ),
    ]
    timestamp: Annotated[
        datetime, Field(FieldKind.MOMENT, "When the transaction was committed.", FieldPlace.FRAME)
    ]
    area: Annotated[Area, Field(FieldKind.WORD, "What part of the system it concerns.")]
    operation: Annotated[Operation, Field(FieldKind.WORD, "What happened.")]
    entity_type: Annotated[str | None, Field(FieldKind.TEXT, "Kind of the entity.")] = None
    key: Annotated[str | None, Field(FieldKind.KEY, "Key of the entity.")] = None
    body_bytes: Annotated[
        bytes | None,
        Field(FieldKind.JSON, "The entity after the change.", images=True),
    ] = None
    before_bytes: Annotated[
        bytes | None,
        Field(FieldKind.JSON, "The entity before the change.", images=True),
    ] = None
    changed: Annotated[
        tuple[str, ...] | None, Field(FieldKind.NAMES, "Names of the fields that changed.")
    ] = None
    schema_version: Annotated[
        int | None,
        Field(
            FieldKind.NUMBER, "Version of the schema in force.", _META, given=True, kept=True, repeated=False
        ),
    ] = None
    entry_version: Annotated[
        int | None,
        Field(
            FieldKind.NUMBER,
            "Version of the entity, for conflict resolution.",
            _META,
            versioned=True,
            given=True,
            kept=True,
            repeated=False,
        ),
    ] = None
    origin: Annotated[
        str | None,
        Field(
            FieldKind.TEXT, "Where the change was first made.", _META, given=True, kept=True, repeated=False
        ),
    ] = None
    meta_bytes: Annotated[
        bytes | None,
        Field(FieldKind.JSON, "The `meta` of the transaction (index 0) or of the change.", _META, kept=True),
    ] = None
    expires_at: Annotated[
        datetime | None,
        Field(
            FieldKind.MOMENT,
            "When the entity expires, or expired.",
            _META,
            kept=True,
            always=False,
            left=False,
            repeated=False,
        ),
    ] = None
    linked: Annotated[
        str | None,
        Field(
            FieldKind.KEY,
            "Of the two halves of a key change, the key of the other.",
            _META,
            always=False,
            apart=False,
            left=False,
        ),
    ] = None
    field: Annotated[
        str | None,
        Field(
            FieldKind.PATH,
            "Path of the one field that a field-level change concerns; none for the entity as a whole.",
            _META,
            always=False,
        ),
    ] = None
    action: Annotated[
        Action | None,
        Field(FieldKind.WORD, "The action of a field-level change on the field.", _META, always=False),
    ] = None
    error_text: Annotated[
        str | None,
        Field(
            FieldKind.TEXT,
            "What of this change cannot be rendered, and why; the other fields lack it.",
            FieldPlace.MADE,
            always=False,
        ),
    ] = None
    lacking: Annotated[
        tuple[str, ...],
        Field(
            FieldKind.NAMES,
            "The parts that the requested images need and the log lacks.",
            FieldPlace.MADE,
            images=True,
            always=False,
        ),
    ] = ()


class Given(TypedDict, total=False):
    """What writers may say of any change, by keyword arguments; `GIVEN` are the names.

    Attributes:
        schema_version: Version of the schema in force; None for the newest one that the log knows.
        entry_version: Version of the entity; it must not fall.
        origin: Where the change was first made.
    """

    schema_version: int | None
    entry_version: int | None
    origin: str | None


def _table() -> tuple[Field, ...]:
    made = []
    for attribute, hint in get_type_hints(ChangeFields, include_extras=True).items():
        kind, field = get_args(hint)
        name = attribute.removesuffix("_bytes").removesuffix("_text")
        plain = next(one for one in (*get_args(kind), kind) if one is not type(None))
        plain = tuple[str, ...] if field.kind is FieldKind.NAMES else plain
        optional = type(None) in get_args(kind)
        made.append(replace(field, attribute=attribute, name=name, type=plain, optional=optional))
    return tuple(made)


FIELDS: Final[tuple[Field, ...]] = _table()
"""All fields, in the order of `ChangeFields`."""

ATTACHED: Final[tuple[Field, ...]] = tuple(field for field in FIELDS if field.place is FieldPlace.META)
"""The fields that most changes lack: they are members of one JSON object, in the column ``meta``."""

GIVEN: Final = frozenset(field.name for field in FIELDS if field.given)
"""The names of those that writers give for any change."""


def values_of(fields: tuple[Field, ...], *, stored: bool = False) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that reads the fields of an object: the attributes of a ``Change``, or those that are stored."""
    return attrgetter(*(field.name if stored else field.attribute for field in fields))


def extended(members: Iterable[tuple[str, Any, Any]]) -> Callable[[type[_Struct]], type[_Struct]]:
    """Gives a Struct those members, of a name, a type and a default, that it does not declare itself.

    A class declares what code calls by name, so that types are checked; the table has the rest.
    """

    def extend(kind: type[_Struct]) -> type[_Struct]:
        further = [member for member in members if member[0] not in kind.__struct_fields__]
        if not further:
            return kind
        how = kind.__struct_config__
        made = msgspec.defstruct(
            kind.__name__,
            further,
            bases=(kind,),
            module=kind.__module__,
            namespace={"__doc__": kind.__doc__},
            frozen=how.frozen,
            eq=how.eq,
            gc=how.gc,
            forbid_unknown_fields=how.forbid_unknown_fields,
        )
        return cast("type[_Struct]", made)

    return extend


def compiled(signature: str, *lines: str, **names: Any) -> Any:
    """Compiles a function whose lines were made of the table; it may use the names.

    So it is as fast as one written by hand: a loop over the fields of each change would take two to three times as long.

    Args:
        signature: Its name and parameters, such as ``shown(row)``.
        *lines: Its body.
        **names: The objects to which it refers.
    """
    text = "\n    ".join((f"def {signature}:", *lines))
    exec(compile(text, f"<{signature}, made of the fields>", "exec"), names)  # noqa: S102 - the text is made of the table alone
    return names[signature.partition("(")[0]]

"""Changes as JSON: the one parser for lines of commands, appends of clients, and request bodies.

The parser is strict: it refuses unknown fields, and its errors name the path, field and value that are wrong. It accepts the
output of ``penstock tail``, so a log can be copied line by line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from publishers.blocks.decode import Attached, attached_of
from publishers.errors import InvalidChange
from publishers.model.change import Action, Area, Operation
from publishers.model.fields import ATTACHED, Field, FieldKind, compiled, extended
from publishers.mutations.arguments import meta_of
from publishers.mutations.fields import path_names
from publishers.mutations.mutation import (
    REMOVE,
    Mutation,
    expire,
    rekey,
    remove,
    schema,
    truncate,
    upsert,
)
from publishers.mutations.rows import flattened
from transports.errors import InvalidInput

__all__ = ["changes_json", "read_array", "read_change", "read_lines", "read_objects"]

_RIGHT: Final = 'a JSON object such as {"entity_type": "order", "key": "42", "body": {...}}'
_BROKEN: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_Word = Literal["UPSERT", "REMOVE", "TRUNCATE", "EXPIRE", "REKEY", "READ", "TRANSACTION"]


@extended(
    (field.name, (dict[str, object] if field.kind is FieldKind.JSON else field.type) | None, None)
    for field in ATTACHED
)
class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """One change.

    The output of ``penstock tail`` has further fields. ``version`` serves as the entry version of an entity that has none of
    its own, as it does for subscribers. The other fields are ignored, and so is the TRANSACTION event. READ, a row of a state,
    is an UPSERT. A line with a ``gap``, which the file sink writes, is not a change.

    ``tail`` prints both halves of a key change, ``linked`` to each other; an input line with ``REKEY`` and ``new_key`` makes
    both.
    """

    entity_type: str | None = None
    key: str | None = None
    operation: _Word | None = None
    body: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()
    changed: list[str] | Literal["auto"] | None = None
    meta: dict[str, object] | None = None
    schema_version: int | None = None
    origin: str | None = None
    expires_at: datetime | None = None
    linked: str | None = None
    new_key: str | None = None
    field: str | None = None
    action: Action | None = None
    area: Literal["DATA", "SCHEMA", "INFRASTRUCTURE"] = "DATA"
    lacking: list[str] | None = None
    cursor: str | None = None
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    index: int | None = None
    count: int | None = None
    timestamp: str | None = None
    gap: dict[str, str] | None = None


def _said(field: Field) -> str:
    text = f"said.{field.name}"
    return f"said.version if {text} is None else {text}" if field.versioned else text


_attached: Final[Callable[[_Said], dict[str, Any]]] = compiled(
    "attached(said)",
    "return {" + ", ".join(f"{field.name!r}: {_said(field)}" for field in ATTACHED) + "}",
)
"""Returns the fields that are attached to a change; the version of a line is what ``versioned`` ones are by default."""

_written: Final[Callable[[_Said, dict[str, Any]], None]] = compiled(
    "written(said, arguments)",
    *(
        f"if (value := {_said(field)}) is not None: arguments[{field.name!r}] = value"
        for field in ATTACHED
        if field.given
    ),
)
"""Adds what writers give for any change to the arguments of one."""

_decoder: Final = msgspec.json.Decoder(_Said)
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _Malformed(Exception):
    """The input is not well-formed JSON of a change."""


def read_change(text: bytes | msgspec.Raw) -> Mutation | None:
    """Parses one change; None for a TRANSACTION event, because each log makes its own, and for a gap.

    Raises:
        InvalidChange: If the text is not a change, or contradicts itself.
    """
    try:
        return _read(text)
    except _Malformed as error:
        raise InvalidChange("change", bytes(text)[:100], f"{_RIGHT} ({error})") from None


def read_lines(lines: Iterable[bytes]) -> Iterator[Mutation]:
    """Parses one change per line; skips empty lines.

    Raises:
        InvalidInput: If a line is invalid; names the line.
    """
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            change = _read(text)
        except _Malformed as error:
            raise InvalidInput(number, f"{_RIGHT} is expected ({error})") from None
        except InvalidChange as error:
            raise InvalidInput(number, str(error)) from None
        if change is not None:
            yield change


def read_array(text: bytes | msgspec.Raw, name: str = "changes") -> list[Mutation]:
    """Parses a JSON array of changes.

    Args:
        text: The array.
        name: The name of the array in errors.

    Raises:
        InvalidChange: If the text is not an array, or an element is not a change; names the path, such as
            ``changes[3].key``.
    """
    try:
        items = _array.decode(text)
    except _BROKEN as error:
        raise InvalidChange(name, bytes(text)[:100], f"an array of changes ({error})") from None
    return _each(items, read_change, name)


def read_objects(items: Iterable[object], name: str = "changes") -> list[Mutation]:
    """Converts changes that were parsed from a format other than JSON; their keys may be bytes.

    Raises:
        InvalidChange: As `read_array`.
    """
    return _each(items, _read_object, name)


def _each(items: Iterable[Any], read: Callable[[Any], Mutation | None], name: str) -> list[Mutation]:
    found = []
    for place, item in enumerate(items):
        try:
            change = read(item)
        except InvalidChange as error:
            raise error.at(f"{name}[{place}]") from None
        if change is not None:
            found.append(change)
    return found


def _read_object(item: object) -> Mutation | None:
    if not isinstance(item, dict):
        raise InvalidChange("change", item, "an object such as {entity_type, key, body}")
    given, keys = dict(item), {}
    for name in ("key", "new_key"):
        if isinstance(given.get(name), bytes):
            keys[name], given[name] = given[name], "k"
    raw = {name: msgspec.json.encode(given.pop(name)) for name in ("body", "before") if name in given}
    try:
        said = msgspec.convert(given, _Said)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidChange("change", "an object", f"one of the fields that there are ({error})") from None
    for name, text in raw.items():
        setattr(said, name, msgspec.Raw(text))
    for name, key in keys.items():
        setattr(said, name, key.decode("utf-8", "surrogateescape"))
    return _wanted(said)


def _read(text: bytes | msgspec.Raw) -> Mutation | None:
    try:
        said = _decoder.decode(text)
    except _BROKEN as error:
        raise _Malformed(error) from None
    return _wanted(said)


def _wanted(said: _Said) -> Mutation | None:
    if said.gap is not None and said.entity_type is not None:
        raise InvalidChange("gap", said.gap, "alone in its line")
    return None if said.gap is not None or said.operation == "TRANSACTION" else _mutation(said)


def _mutation(said: _Said) -> Mutation:
    if said.entity_type is None:
        raise InvalidChange("entity_type", None, "given")
    if said.area == "SCHEMA":
        return _schema(said, said.entity_type)
    arguments: dict[str, Any] = {"meta": said.meta}
    _written(said, arguments)
    if said.operation == "TRUNCATE":
        return truncate(said.entity_type, **arguments)
    if said.key is None:
        raise InvalidChange("key", None, "given")
    before, body = _given(said.before), _given(said.body)
    arguments["before"] = before
    if said.field is not None or said.linked is not None:
        return _part(said, said.entity_type, said.key, body)
    if said.operation in ("REMOVE", "EXPIRE"):
        if body is not None:
            raise InvalidChange("body", body, f"left out with {said.operation}")
        if said.operation == "EXPIRE":
            return expire(said.entity_type, said.key, expires_at=said.expires_at, **arguments)
        return remove(said.entity_type, said.key, **arguments)
    if body is None:
        raise InvalidChange("body", None, f"given with {said.operation or 'UPSERT'}")
    arguments |= {"changed": said.changed, "expires_at": said.expires_at}
    if said.operation == "REKEY":
        if said.new_key is None:
            raise InvalidChange("new_key", None, "given with REKEY")
        return rekey(said.entity_type, said.key, said.new_key, body, **arguments)
    return upsert(said.entity_type, said.key, body, **arguments)


def _schema(said: _Said, entity_type: str) -> Mutation:
    body = _given(said.body)
    if body is None:
        raise InvalidChange("body", None, "given with SCHEMA")
    return schema(
        entity_type,
        body,
        said.schema_version,
        part=said.key or "entity",
        before=_given(said.before),
        changed=said.changed,
        meta=said.meta,
        origin=said.origin,
    )


def _part(said: _Said, entity_type: str, key: str, body: bytes | None) -> Mutation:
    """Makes a change that follows another one: a change of a field, or the other half of a key change."""
    if said.field is not None:
        path_names(said.field)
        if said.action is None:
            raise InvalidChange("action", None, "given with field")
        if body is None and said.action is not Action.REMOVE:
            raise InvalidChange("body", None, f"given with the action {said.action.value}")
    made = upsert(entity_type, key, body or b"{}", before=_given(said.before), changed=said.changed)
    attached = _attached(said)
    return msgspec.structs.replace(
        made,
        operation=REMOVE if said.operation == "REMOVE" else made.operation,
        body=body,
        meta=meta_of(**attached),
        entry_version=attached["entry_version"],
    )


def _given(raw: msgspec.Raw) -> bytes | None:
    value = bytes(raw)
    return None if value in (b"", b"null") else value


def changes_json(mutations: Iterable[Mutation]) -> list[dict[str, Any]]:
    """Returns changes as JSON in the format that this module parses, to send them to a server.

    Raises:
        InvalidChange: If an item is not a change, or cannot be expressed in JSON, e.g. because its key is not UTF-8.
    """
    return [_line_fields(row, place) for place, row in enumerate(flattened(mutations))]


def _line_fields(row: Mutation, place: int) -> dict[str, Any]:
    if row.operation == Operation.READ:
        raise InvalidChange(
            f"changes[{place}].operation", "READ", "that of a change: a snapshot is made by its server"
        )
    fields: dict[str, Any] = {
        "entity_type": row.entity_type,
        "key": _text(row.key, place) or None,
        "operation": None if row.area == Area.SCHEMA else Operation(row.operation).name,
        "area": None if row.area == Area.DATA else Area(row.area).name,
        "body": None if row.body is None else msgspec.Raw(row.body),
        "before": None if row.before is None else msgspec.Raw(row.before),
        "changed": None if row.changed is None else msgspec.Raw(row.changed),
    }
    if row.meta is not None:
        _attach(fields, attached_of(row.meta), place)
    return {name: value for name, value in fields.items() if value is not None}


def _text(key: bytes, place: int) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise InvalidChange(f"changes[{place}].key", key, "UTF-8, to be sent to a server") from None


_SENDS: Final[Mapping[FieldKind, Callable[[Any, int], Any]]] = {
    FieldKind.KEY: _text,
    FieldKind.WORD: lambda word, _place: word.value,
    FieldKind.JSON: lambda raw, _place: raw if bytes(raw) else None,
}
_attach: Final[Callable[[dict[str, Any], Attached, int], None]] = compiled(
    "attach(fields, attached, place)",
    *(
        f"if attached.{field.name} is not None: fields[{field.name!r}] = "
        + (
            f"{field.kind.name}(attached.{field.name}, place)"
            if field.kind in _SENDS
            else f"attached.{field.name}"
        )
        for field in sorted(ATTACHED, key=lambda one: one.name != "meta")
    ),
    **{kind.name: send for kind, send in _SENDS.items()},
)
"""Adds what is attached to a change; meta is the first."""

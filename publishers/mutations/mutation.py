"""The operations of a writer: each function checks its arguments and returns them in stored form."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from publishers.errors import InvalidChange
from publishers.model.change import Action
from publishers.mutations.arguments import (
    check_entity_type,
    encode_json,
    encode_names,
    key_bytes,
    listed,
    meta_of,
    whole,
)
from publishers.mutations.fields import FieldChange, changed_fields, check_follows, field_changes
from publishers.mutations.rows import DATA, Mutation, columns_of, flattened
from publishers.views.entities import Model

__all__ = [
    "DATA",
    "EXPIRE",
    "REMOVE",
    "SCHEMA",
    "TRUNCATE",
    "UPSERT",
    "Mutation",
    "columns_of",
    "encode_json",
    "expire",
    "flattened",
    "rekey",
    "remove",
    "schema",
    "truncate",
    "upsert",
]

# The numbers of ``Area.SCHEMA`` and of operations, which are fixed on disk.
SCHEMA: Final = 2
UPSERT: Final = 1
REMOVE: Final = 2
TRUNCATE: Final = 4
EXPIRE: Final = 5

_NO_EXTRAS: Final = (None,) * 5

Image = Mapping[str, Any] | bytes | Model
"""An entity: a mapping or a model, encoded by the rules of ``publishers.lossless``, or JSON bytes, stored unchanged."""

_REMOVALS: Final = frozenset({Action.REMOVE, Action.DISCARD})


def upsert(
    entity_type: str,
    key: str | bytes,
    body: Image,
    *,
    before: Image | None = None,
    changed: Collection[str] | Literal["auto"] | None = None,
    changes: Collection[FieldChange] | Literal["auto"] | None = None,
    expires_at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """Creates or changes an entity.

    Args:
        entity_type: Kind of the entity.
        key: Key of the entity; text is stored as UTF-8.
        body: The entity after the change: a mapping, a dataclass, a ``msgspec.Struct``, a pydantic model, or JSON bytes,
            which are stored unchanged.
        before: The entity before the change, in the same forms.
        changed: Names of the fields that changed; ``"auto"`` compares the top-level fields of both images.
        changes: Field-level changes, which follow as changes of their own, in this order; ``"auto"`` computes changes that
            lead from ``before`` to ``body``. Together with ``before``, the given changes must do so too.
        expires_at: When the entity will expire.
        meta: Anything that the application attaches to this change.
        schema_version: Version of the schema in force; None for the newest one that the log knows.
        entry_version: Version of the entity; it must not fall.
        origin: Where the change was first made.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    check_entity_type(entity_type)
    stored = key_bytes(key)
    image = encode_json("body", body)
    old = None if before is None else encode_json("before", before)
    follows: tuple[Mutation, ...] = ()
    if changes is not None:
        parts = changes
        if isinstance(parts, str):
            _check_auto("changes", parts)
            parts = field_changes(old, image)
        else:
            parts = tuple(
                listed("changes", parts, "a list of what set_field(), push() and the like returned")
            )
            if old is not None:
                check_follows(old, image, parts)
        follows = tuple(
            _field(entity_type, stored, part, schema_version, entry_version, origin) for part in parts
        )
    names = None
    if isinstance(changed, str):
        _check_auto("changed", changed)
        names = encode_names(changed_fields(old, image))
    elif changed is not None:
        names = encode_names(changed)
    extras = None
    if (meta, schema_version, entry_version, origin, expires_at) != _NO_EXTRAS:
        extras = meta_of(meta, schema_version, entry_version, origin, expires_at=expires_at)
    return Mutation(UPSERT, entity_type, stored, image, old, names, extras, DATA, entry_version, follows)


def remove(
    entity_type: str,
    key: str | bytes,
    *,
    before: Image | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """Removes an entity; the arguments are those of ``upsert``.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    extras = meta_of(meta, schema_version, entry_version, origin)
    return _gone(REMOVE, entity_type, key, before, extras, entry_version)


def expire(
    entity_type: str,
    key: str | bytes,
    *,
    before: Image | None = None,
    expires_at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """Ends an entity whose lifetime has run out; it needs no removal beside it.

    Args:
        entity_type: Kind of the entity.
        key: Key of the entity.
        before: The entity before its end.
        expires_at: When it expired.
        meta: As for ``upsert``, like all that follow.
        schema_version: Version of the schema.
        entry_version: Version of the entity.
        origin: Where the change was first made.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    extras = meta_of(meta, schema_version, entry_version, origin, expires_at=expires_at)
    return _gone(EXPIRE, entity_type, key, before, extras, entry_version)


def truncate(
    entity_type: str,
    *,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """Removes all entities of a type: one change without a key, in order with the changes around it.

    Args:
        entity_type: The entity type.
        meta: Attached metadata.
        schema_version: Version of the schema.
        entry_version: Version of the change, as that of an entity.
        origin: Where the change was made.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    check_entity_type(entity_type)
    extras = meta_of(meta, schema_version, entry_version, origin)
    return Mutation(TRUNCATE, entity_type, b"", meta=extras, entry_version=entry_version)


def rekey(
    entity_type: str,
    old: str | bytes,
    new: str | bytes,
    body: Image,
    *,
    before: Image | None = None,
    changed: Collection[str] | Literal["auto"] | None = None,
    expires_at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    schema_version: int | None = None,
    entry_version: int | None = None,
    origin: str | None = None,
) -> Mutation:
    """Gives an entity another key: the removal of the old key and, right after it, the creation of the new one.

    ``Change.linked`` of each is the key of the other. Both have the same before image.

    Args:
        entity_type: Kind of the entity.
        old: Its previous key.
        new: Its new key.
        body: As for ``upsert``, like all that follow.
        before: The entity under its old key.
        changed: Names of the fields that changed.
        expires_at: When the entity will expire.
        meta: Anything that the application attaches to both changes.
        schema_version: Version of the schema.
        entry_version: Version of the entity.
        origin: Where the change was first made.

    Raises:
        InvalidChange: If an argument cannot be stored, or both keys are the same.
    """
    was, now = key_bytes(old, "old"), key_bytes(new, "new")
    if was == now:
        raise InvalidChange("new", new, "another key than the old one")
    made = upsert(entity_type, now, body, before=before, changed=changed, entry_version=entry_version)
    attached = meta_of(meta, schema_version, entry_version, origin, expires_at=expires_at, linked=was)
    made = Mutation(
        UPSERT, entity_type, now, made.body, made.before, made.changed, attached, DATA, entry_version
    )
    extras = meta_of(meta, schema_version, entry_version, origin, linked=now)
    return Mutation(REMOVE, entity_type, was, None, made.before, None, extras, DATA, entry_version, (made,))


def schema(
    entity_type: str,
    body: Image,
    version: int | None = None,
    *,
    part: str = "entity",
    before: Image | None = None,
    changed: Collection[str] | Literal["auto"] | None = None,
    meta: Mapping[str, Any] | None = None,
    origin: str | None = None,
) -> Mutation:
    """Records or changes the schema of an entity type: a change of the area SCHEMA.

    It must precede the first change that is written by it, in the same transaction or in an earlier one.

    Args:
        entity_type: Kind of the entities.
        body: The schema; any JSON. ``publishers.lossless`` describes a form by which values can be read back.
        version: Its version, above all earlier versions; None for the next.
        part: The part of the schema, if entities have several (attributes, references): the change's key.
        before: The schema before.
        changed: What was touched, such as names of fields; ``"auto"`` for the top-level names that differ.
        meta: As for ``upsert``.
        origin: Where the change was first made.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    if version is not None and whole("version", version) == 0:
        raise InvalidChange("version", version, "at least 1")
    made = upsert(entity_type, key_bytes(part, "part"), body, before=before, changed=changed)
    attached = meta_of(meta, version, origin=origin)
    return Mutation(UPSERT, entity_type, made.key, made.body, made.before, made.changed, attached, SCHEMA)


def _gone(
    operation: int,
    entity_type: str,
    key: str | bytes,
    before: Image | None,
    extras: bytes | None,
    entry_version: int | None,
) -> Mutation:
    check_entity_type(entity_type)
    old = None if before is None else encode_json("before", before)
    return Mutation(operation, entity_type, key_bytes(key), None, old, None, extras, DATA, entry_version)


def _field(
    entity_type: str,
    key: bytes,
    part: FieldChange,
    schema_version: int | None,
    entry_version: int | None,
    origin: str | None,
) -> Mutation:
    if not isinstance(part, FieldChange):
        raise InvalidChange("changes", part, "what set_field(), push() and the like returned")
    return Mutation(
        REMOVE if part.action in _REMOVALS else UPSERT,
        entity_type,
        key,
        part.sparse(part.value),
        part.sparse(part.before),
        encode_names([str(part.path[0])]),
        meta_of(None, schema_version, entry_version, origin, field=part.field, action=part.action.value),
        DATA,
        entry_version,
    )


def _check_auto(parameter: str, given: str) -> None:
    if given != "auto":
        raise InvalidChange(parameter, given, "a list of names, or 'auto'")

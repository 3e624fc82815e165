"""The operations of a writer: each function checks its arguments and returns them in stored form; also of changes of another log."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Literal, Unpack

from publishers.errors import InvalidChange
from publishers.model.change import Action, Area, Change, Operation
from publishers.model.fields import Given
from publishers.mutations.arguments import (
    check_entity_type,
    check_given,
    encode_json,
    encode_names,
    key_bytes,
    listed,
    meta_again,
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
    "copied",
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

Image = Mapping[str, Any] | bytes | Model
"""An entity: a mapping or a model, encoded by the rules of ``publishers.lossless``, or JSON bytes, stored unchanged."""

_AREAS: Final = frozenset({Area.DATA, Area.SCHEMA})
_WITH_BODY: Final = frozenset({Operation.UPSERT, Operation.READ})
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
    **given: Unpack[Given],
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
        **given: What else there is to say of any change, see ``Given``: ``schema_version``, the version of the schema in force,
            None for the newest one that the log knows; ``entry_version``, the version of the entity, which must not fall;
            ``origin``, where the change was first made.

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
        follows = tuple(_field(entity_type, stored, part, given) for part in parts)
    names = None
    if isinstance(changed, str):
        _check_auto("changed", changed)
        names = encode_names(changed_fields(old, image))
    elif changed is not None:
        names = encode_names(changed)
    extras = None
    if given or meta is not None or expires_at is not None:
        check_given("upsert", given)
        extras = meta_of(meta, expires_at=expires_at, **given)
    return Mutation(
        UPSERT, entity_type, stored, image, old, names, extras, DATA, given.get("entry_version"), follows
    )


def remove(
    entity_type: str,
    key: str | bytes,
    *,
    before: Image | None = None,
    meta: Mapping[str, Any] | None = None,
    **given: Unpack[Given],
) -> Mutation:
    """Removes an entity; the arguments are those of ``upsert``.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    extras = None
    if given or meta is not None:
        check_given("remove", given)
        extras = meta_of(meta, **given)
    return _gone(REMOVE, entity_type, key, before, extras, given)


def expire(
    entity_type: str,
    key: str | bytes,
    *,
    before: Image | None = None,
    expires_at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    **given: Unpack[Given],
) -> Mutation:
    """Ends an entity whose lifetime has run out; it needs no removal beside it.

    Args:
        entity_type: Kind of the entity.
        key: Key of the entity.
        before: The entity before its end.
        expires_at: When it expired.
        meta: As for ``upsert``.
        **given: As for ``upsert``.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    check_given("expire", given)
    extras = meta_of(meta, expires_at=expires_at, **given)
    return _gone(EXPIRE, entity_type, key, before, extras, given)


def truncate(
    entity_type: str,
    *,
    meta: Mapping[str, Any] | None = None,
    **given: Unpack[Given],
) -> Mutation:
    """Removes all entities of a type: one change without a key, in order with the changes around it.

    Args:
        entity_type: The entity type.
        meta: Attached metadata.
        **given: As for ``upsert``; ``entry_version`` is that of the change.

    Raises:
        InvalidChange: If an argument cannot be stored.
    """
    check_given("truncate", given)
    check_entity_type(entity_type)
    extras = meta_of(meta, **given)
    return Mutation(TRUNCATE, entity_type, b"", meta=extras, entry_version=given.get("entry_version"))


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
    **given: Unpack[Given],
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
        **given: As for ``upsert``.

    Raises:
        InvalidChange: If an argument cannot be stored, or both keys are the same.
    """
    check_given("rekey", given)
    was, now = key_bytes(old, "old"), key_bytes(new, "new")
    if was == now:
        raise InvalidChange("new", new, "another key than the old one")
    version = given.get("entry_version")
    made = upsert(entity_type, now, body, before=before, changed=changed)
    attached = meta_of(meta, expires_at=expires_at, linked=was, **given)
    made = Mutation(UPSERT, entity_type, now, made.body, made.before, made.changed, attached, DATA, version)
    extras = meta_of(meta, linked=now, **given)
    return Mutation(REMOVE, entity_type, was, None, made.before, None, extras, DATA, version, (made,))


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
    attached = meta_of(meta, schema_version=version, origin=origin)
    return Mutation(UPSERT, entity_type, made.key, made.body, made.before, made.changed, attached, SCHEMA)


def copied(change: Change, *, origin: str | None = None) -> Mutation:
    """Makes the mutation that copies a change to another log: a replica keeps the entry version and the origin of the source.

    Commit the changes of one version together and in their order, without the TRANSACTION event, which the other log makes
    itself. Their versions there differ; entry versions and origins stay the same over any number of logs.

    Args:
        change: A change as delivered to a subscriber, with ``Content.BODY`` and no image mode, projection or mask.
        origin: Where it was first made, if it does not say so.

    Raises:
        InvalidChange: If it is a TRANSACTION event, concerns a log, cannot be rendered, or lacks the body that changes of its
            kind have.
    """
    if not isinstance(change, Change):
        raise InvalidChange("change", change, "a Change, as subscribers get it")
    if change.area not in _AREAS or change.entity_type is None:
        raise InvalidChange(
            "change", change, "of the area DATA or SCHEMA; each log makes its own TRANSACTION events"
        )
    if change.error is not None:
        raise InvalidChange("change", change.error, "one that can be rendered")
    partial = change.field is not None
    if change.body_bytes is None and change.operation in _WITH_BODY and not partial:
        raise InvalidChange("change.body", None, "there; subscribe with Content.BODY")
    return Mutation(
        int(change.operation),
        change.entity_type,
        b"" if change.key is None else key_bytes(change.key),
        change.body_bytes,
        change.before_bytes,
        None if change.changed is None else encode_names(change.changed),
        meta_again(change, origin if change.origin is None else change.origin, implied=True),
        int(change.area),
        change.entry_version,
    )


def _gone(
    operation: int,
    entity_type: str,
    key: str | bytes,
    before: Image | None,
    extras: bytes | None,
    given: Given,
) -> Mutation:
    check_entity_type(entity_type)
    old = None if before is None else encode_json("before", before)
    version = given.get("entry_version")
    return Mutation(operation, entity_type, key_bytes(key), None, old, None, extras, DATA, version)


def _field(
    entity_type: str,
    key: bytes,
    part: FieldChange,
    given: Given,
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
        meta_of(None, field=part.field, action=part.action, **given),
        DATA,
        given.get("entry_version"),
    )


def _check_auto(parameter: str, given: str) -> None:
    if given != "auto":
        raise InvalidChange(parameter, given, "a list of names, or 'auto'")

"""Copies of changes from one log to another."""

from typing import Final

from publishers.errors import InvalidChange
from publishers.model.change import Area, Change, Operation
from publishers.mutations.arguments import encode_names, key_bytes, meta_of
from publishers.mutations.rows import Mutation

__all__ = ["copied"]

_AREAS: Final = frozenset({Area.DATA, Area.SCHEMA})
_WITH_BODY: Final = frozenset({Operation.UPSERT, Operation.READ})


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
    linked = None if change.linked is None else key_bytes(change.linked, "linked")
    return Mutation(
        int(change.operation),
        change.entity_type,
        b"" if change.key is None else key_bytes(change.key),
        change.body_bytes,
        change.before_bytes,
        None if change.changed is None else encode_names(change.changed),
        meta_of(
            change.meta_bytes,
            change.schema_version,
            change.entry_version,
            origin if change.origin is None else change.origin,
            expires_at=change.expires_at,
            linked=linked,
            field=change.field,
            action=None if change.action is None else change.action.value,
        ),
        int(change.area),
        change.entry_version,
    )

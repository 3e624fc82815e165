"""Changes of single fields: what ``upsert(..., changes=[...])`` takes, and how they are read and applied."""

from publishers.mutations.fields import (
    FieldChange,
    add,
    apply_field,
    changed_fields,
    discard,
    field_changes,
    field_value,
    push,
    remove_field,
    set_field,
)

__all__ = [
    "FieldChange",
    "add",
    "apply_field",
    "changed_fields",
    "discard",
    "field_changes",
    "field_value",
    "push",
    "remove_field",
    "set_field",
]

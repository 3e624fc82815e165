"""The effect of a change on a target that keeps entities."""

import enum
from typing import Final

from publishers.model.change import Area, Change, Operation

__all__ = ["EntityEffect", "Unfit", "effect_of"]


class EntityEffect(enum.Enum):
    """The effect on an entity, or on all entities of a type."""

    PUT = "PUT"
    """The entity gets the body as its state."""
    DELETE = "DELETE"
    """The entity is removed."""
    CLEAR = "CLEAR"
    """All entities of the type are removed."""
    NONE = "NONE"
    """None: the change concerns no entity, or repeats a part of another change."""


_EFFECTS: Final = {
    Operation.UPSERT: EntityEffect.PUT,
    Operation.READ: EntityEffect.PUT,
    Operation.REMOVE: EntityEffect.DELETE,
    Operation.EXPIRE: EntityEffect.DELETE,
    Operation.TRUNCATE: EntityEffect.CLEAR,
}


class Unfit(ValueError):
    """A change that the target can never hold."""


def effect_of(change: Change) -> EntityEffect:
    """Returns the effect of a change."""
    if change.area is not Area.DATA or change.field is not None:
        return EntityEffect.NONE
    return _EFFECTS.get(change.operation, EntityEffect.NONE)

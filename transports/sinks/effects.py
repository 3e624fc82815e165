"""What a change does to the state of a target that keeps entities."""

import enum
from typing import Final

from publishers.model.change import Area, Change, Operation

__all__ = ["EntityEffect", "Unfit", "effect_of"]


class EntityEffect(enum.Enum):
    """What becomes of an entity, or of all of its type."""

    PUT = "PUT"
    """It is as the body says."""
    DELETE = "DELETE"
    """It is gone."""
    CLEAR = "CLEAR"
    """All of its type are gone."""
    NONE = "NONE"
    """Nothing: the change concerns no entity, or tells a part of what another one tells whole."""


_EFFECTS: Final = {
    Operation.UPSERT: EntityEffect.PUT,
    Operation.READ: EntityEffect.PUT,
    Operation.REMOVE: EntityEffect.DELETE,
    Operation.EXPIRE: EntityEffect.DELETE,
    Operation.TRUNCATE: EntityEffect.CLEAR,
}


class Unfit(ValueError):
    """A change that the target cannot hold, whatever is tried."""


def effect_of(change: Change) -> EntityEffect:
    """What a change does."""
    if change.area is not Area.DATA or change.field is not None:
        return EntityEffect.NONE
    return _EFFECTS.get(change.operation, EntityEffect.NONE)

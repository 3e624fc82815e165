"""What a client asks for of the rows of a snapshot, once more, while changes go on."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from publishers.criteria.cost import Cost, weigh, weigh_json
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import TooCostly
from publishers.snapshots.subscription import checked_again
from transports.codec.fields import typed
from transports.errors import InvalidRequest

__all__ = ["AgainWish"]

_TYPES: Final = "a list of names"


def _check_weight(cost: Cost, most: int) -> None:
    if cost.weight > most:
        raise TooCostly("inline_weight", cost.weight, most, cost.cheaper)


class AgainWish(msgspec.Struct, frozen=True):
    """Which rows are asked for again, checked.

    Attributes:
        criteria: What they must fulfil, beside what the subscription was made with.
        after: The key behind which they begin; None for the first.
        until: The last key; None for no bound.
    """

    criteria: Criteria
    after: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any], most: int) -> "AgainWish":
        """Checks the payload of an ``again`` message.

        Args:
            payload: The payload.
            most: Most that its criteria may weigh, as they are read on an event loop: ``inline_weight``.

        Raises:
            InvalidRequest, InvalidChange: If a field has a value that it does not take.
            InvalidCriteria: If a criterion has, or has an unknown field.
            InvalidOption: If keys are given, and not exactly one entity type.
            TooCostly: If the criteria weigh more.
        """
        wishes = payload.get("criteria", [])
        _check_weight(weigh_json(wishes, most), most)
        criteria = Criteria.from_json(wishes)
        _check_weight(weigh(criteria), most)
        return cls._checked(criteria, payload)

    @classmethod
    def of_types(cls, payload: object) -> "AgainWish":
        """Checks what a ping of GraphQL says: ``entityTypes`` in place of criteria.

        Raises:
            InvalidRequest, InvalidCriteria, InvalidChange, InvalidOption: As ``of``.
        """
        if not isinstance(payload, dict):
            raise InvalidRequest("again", payload, "an object")
        types = typed(payload, "entityTypes", list, _TYPES) or []
        if not all(isinstance(name, str) for name in types):
            raise InvalidRequest("entityTypes", types, _TYPES)
        return cls._checked(Criteria.of(Criterion(entity_types=types) if types else None), payload)

    @classmethod
    def _checked(cls, criteria: Criteria, payload: Mapping[str, Any]) -> "AgainWish":
        after, until = typed(payload, "after", str, "a key"), typed(payload, "until", str, "a key")
        checked_again(criteria, after=after, until=until)
        return cls(criteria, after, until)

    @property
    def asked(self) -> tuple[Criteria, ...]:
        """What it asks about: criteria that a principal must be allowed to have, all of them."""
        keys = {key for key in (self.after, self.until) if key is not None}
        return (self.criteria, Criteria.of(Criterion(keys=keys))) if keys else (self.criteria,)

"""A client's request for more rows while its subscription delivers changes."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from publishers.criteria.cost import Cost, weigh, weigh_json
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import TooCostly
from publishers.snapshots.subscription import checked_refresh
from transports.codec.fields import convert
from transports.errors import InvalidRequest
from transports.limits import INLINE_WEIGHT

__all__ = ["AgainRequest"]

_Key = Annotated[str, msgspec.Meta(description="a key")]


class _Payload(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a request beside its criteria; a GraphQL ping has ``entityTypes`` in place of criteria."""

    after: _Key | None = None
    until: _Key | None = None
    entity_types: Annotated[tuple[str, ...], msgspec.Meta(description="a list of names")] = ()


def _check_weight(cost: Cost) -> None:
    if cost.weight > INLINE_WEIGHT:
        raise TooCostly("inline_weight", cost.weight, INLINE_WEIGHT, cost.cheaper)


class AgainRequest(msgspec.Struct, frozen=True):
    """The requested rows, validated.

    Attributes:
        criteria: The criteria that rows must match, in addition to those of the subscription.
        after: The key behind which the rows begin; None to begin with the first.
        until: The last key; None for no bound.
    """

    criteria: Criteria
    after: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "AgainRequest":
        """Validates the payload of an ``again`` message, whose criteria are parsed on an event loop.

        Raises:
            InvalidRequest, InvalidChange: If the value of a field is invalid.
            InvalidCriteria: If a criterion is invalid or has an unknown field.
            InvalidOption: If keys are given without exactly one entity type.
            TooCostly: If the criteria weigh more than `INLINE_WEIGHT`.
        """
        listed = payload.get("criteria", [])
        _check_weight(weigh_json(listed, INLINE_WEIGHT))
        criteria = Criteria.from_json(listed)
        _check_weight(weigh(criteria))
        return cls._checked(criteria, payload)

    @classmethod
    def of_types(cls, payload: object) -> "AgainRequest":
        """Validates the request in a GraphQL ping, which has ``entityTypes`` in place of criteria.

        Raises:
            InvalidRequest, InvalidCriteria, InvalidChange, InvalidOption: As ``of``.
        """
        if not isinstance(payload, dict):
            raise InvalidRequest("again", payload, "an object")
        types = convert(_Payload, payload).entity_types
        return cls._checked(Criteria.of(Criterion(entity_types=types) if types else None), payload)

    @classmethod
    def _checked(cls, criteria: Criteria, payload: Mapping[str, Any]) -> "AgainRequest":
        asked = convert(_Payload, payload)
        checked_refresh(criteria, after=asked.after, until=asked.until)
        return cls(criteria, asked.after, asked.until)

    @property
    def asked(self) -> tuple[Criteria, ...]:
        """The criteria to authorise: the principal must be allowed all of them."""
        keys = {key for key in (self.after, self.until) if key is not None}
        return (self.criteria, Criteria.of(Criterion(keys=keys))) if keys else (self.criteria,)

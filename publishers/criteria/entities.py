"""Criteria as filters of entities: which entities are inside, which keys they may have, and which changes a copy of these entities needs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from publishers.criteria.conditions import LEAVING, Image, Where
from publishers.criteria.criteria import FITTING, Criteria, Criterion
from publishers.criteria.facts import facts_of
from publishers.criteria.globs import glob_head
from publishers.criteria.patterns import Pattern
from publishers.criteria.predicate import CompiledCriterion
from publishers.model.change import Area, Operation

__all__ = ["EntityFilter", "KeyReach", "Keys", "with_leaving"]


_PUT: Final = frozenset({Operation.UPSERT, Operation.READ})
_REMOVALS: Final = FITTING[Area.DATA] - _PUT


@dataclass(frozen=True)
class EntityFilter:
    """Criteria as a filter of entities.

    Attributes:
        criteria: The criteria; none has an ``also``.
    """

    criteria: Criteria

    @cached_property
    def leaves(self) -> bool:
        """Whether an entity can leave the filter otherwise than by its removal."""
        return any(_puts(one) and _values(one) for one in self.criteria.criterions)

    @cached_property
    def tells_leaving(self) -> bool:
        """Whether the criteria ask for changes by which entities leave."""
        return any(not LEAVING.isdisjoint(one.transitions) for one in self.criteria.criterions)

    def outside(self, block: Any, index: int) -> bool:
        """Whether a change is an UPSERT or READ that leaves its entity outside the filter."""
        kind = block.kind(index)
        if kind >> 4 != Area.DATA or kind & 15 not in _PUT or block.body(index) is None:
            return False
        if getattr(block.attached(index), "field", None) is not None:
            return False
        facts = facts_of(block)
        return not any(one.holds(facts, index) for one in self._inside)

    @cached_property
    def _inside(self) -> tuple[CompiledCriterion, ...]:
        return tuple(
            CompiledCriterion(_of_entities(one, where=_values(one)))
            for one in self.criteria.criterions
            if _puts(one)
        )


def with_leaving(criteria: Criteria, *, rows: bool = False) -> Criteria:
    """Returns criteria with the changes by which an entity leaves them, for a copy of the entities that they select.

    Args:
        criteria: The criteria; none has an ``also``.
        rows: Whether rows outside are wanted too, because the copy may have them.
    """
    further = {more for one in criteria.criterions if _puts(one) for more in _leaving(one, rows=rows)}
    return Criteria.of(*criteria.criterions, *further) if further else criteria


def _leaving(one: Criterion, *, rows: bool) -> Iterator[Criterion]:
    changes = {"operations": one.operations & FITTING[Area.DATA], "annotations": one.annotations}
    removals = (one.operations or _REMOVALS) & _REMOVALS
    if values := _values(one):
        yield _of_entities(one, **changes, where=values, transitions=LEAVING)
        if rows:
            yield _of_entities(one, operations={Operation.READ})
    elif (one.where or one.changed) and removals - {Operation.TRUNCATE}:
        yield _of_entities(one, **changes | {"operations": removals})
    if one.asks and Operation.TRUNCATE in removals:  # which has no key, no fields and no values
        yield Criterion(
            areas={Area.DATA},
            entity_types=one.entity_types,
            operations={Operation.TRUNCATE},
            annotations=one.annotations,
        )


def _of_entities(one: Criterion, **further: Any) -> Criterion:
    """Returns a criterion of the same entity types and keys."""
    return Criterion(
        areas={Area.DATA},
        entity_types=one.entity_types,
        keys=one.keys,
        key_globs=one.key_globs,
        key_patterns=one.key_patterns,
        **further,
    )


def _puts(one: Criterion) -> bool:
    """Whether a criterion asks for entities as they are, and not only for their removals."""
    areas = not one.areas or Area.DATA in one.areas
    return areas and (not one.operations or not one.operations.isdisjoint(_PUT))


def _values(one: Criterion) -> frozenset[Where]:
    """Returns the conditions on the after image."""
    return frozenset(condition for condition in one.where if condition.image is Image.AFTER)


KeySpan = tuple[bytes, bytes]
"""Keys from the first one up to the second one, which is excluded."""

_MANY: Final = 10_000


class Keys(NamedTuple):
    """Keys of one entity type.

    Attributes:
        exact: Keys, as stored.
        heads: Beginnings of further keys, none of them empty.
    """

    exact: frozenset[bytes]
    heads: frozenset[bytes]

    @property
    def spans(self) -> list[KeySpan]:
        """The keys as spans in their order, none of which meets another one."""
        merged: list[KeySpan] = []
        for low, high in sorted([*((key, key + b"\0") for key in self.exact), *map(_behind, self.heads)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(high, merged[-1][1])
            else:
                merged.append((low, high))
        return merged


class KeyReach:
    """The keys that rows may have, by entity type; rows with them need not fulfil the criteria.

    Args:
        criterions: Criterions, one of which must hold.
    """

    def __init__(self, criterions: Iterable[Criterion]) -> None:
        self._found = [(one.entity_types, _keys(one)) for one in criterions]
        self.narrow: bool = any(keys is not None for _, keys in self._found)
        self._spans: dict[str, list[KeySpan] | None] = {}

    def of(self, entity_type: str) -> Keys | None:
        """Returns the keys of an entity type; None if they may be any."""
        exact: set[bytes] = set()
        heads: set[bytes] = set()
        for types, keys in self._found:
            if not types or entity_type in types:
                if keys is None:
                    return None
                exact |= keys.exact
                heads |= keys.heads
        return Keys(frozenset(exact), frozenset(heads)) if len(exact) + len(heads) <= _MANY else None

    def spans(self, entity_type: str) -> list[KeySpan] | None:
        """Returns the spans of an entity type's keys; None if they may be any."""
        if entity_type not in self._spans:
            keys = self.of(entity_type)
            self._spans[entity_type] = None if keys is None else keys.spans
        return self._spans[entity_type]


def _keys(one: Criterion) -> Keys | None:
    if one.keys:
        return Keys(frozenset(key.encode("utf-8", "surrogateescape") for key in one.keys), frozenset())
    for heads in (
        [glob_head(glob)[0] for glob in one.key_globs],
        [Pattern.of(pattern).head for pattern in one.key_patterns],
    ):
        if heads and all(head.strip(b"\xff") for head in heads):
            return Keys(frozenset(), frozenset(heads))
    return None


def _behind(head: bytes) -> KeySpan:
    """All keys with a beginning: up to the first key behind them."""
    low = head.rstrip(b"\xff")
    return head, low[:-1] + bytes([low[-1] + 1])

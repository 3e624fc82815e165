"""Which keys the rows of a state may have that fulfil criteria: exactly given ones, and those with given beginnings."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from publishers.criteria.criteria import Criterion
from publishers.criteria.globs import glob_head
from publishers.criteria.patterns import Pattern

__all__ = ["KeyReach", "KeySpan", "Keys"]

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

"""Which changes fulfil which criteria, asked of a whole block at a time.

Matching ``Glob`` patterns takes time proportional to key times pattern at worst, and never more (the greedy algorithm
with one point of return; a later ``*`` makes the earlier ones irrelevant), so a hostile pattern costs little.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from publishers.block import Block
from publishers.change import Area, Operation
from publishers.criteria import Criteria, Criterion

__all__ = ["MatchingIndex", "Predicate", "glob_matcher"]

_KINDS: Final = tuple((area, operation, area * 16 + operation) for area in Area for operation in Operation)
_TRANSACTION: Final = Area.INFRASTRUCTURE * 16 + Operation.TRANSACTION

T = TypeVar("T")


def glob_matcher(pattern: str) -> Callable[[bytes], bool]:
    """Compiles a glob over the bytes of a key: ``*`` for any number of bytes, ``?`` for exactly one."""
    glob = pattern.encode("utf-8", "surrogateescape")
    stars = glob.count(b"*")
    if b"?" not in glob:
        if not stars:
            return glob.__eq__
        if stars == 1:
            head, tail = glob.split(b"*")
            if not head:
                return lambda key: key.endswith(tail)
            if not tail:
                return lambda key: key.startswith(head)
            least = len(head) + len(tail)
            return lambda key: len(key) >= least and key.startswith(head) and key.endswith(tail)
    return lambda key: _glob(glob, key)


def _glob(glob: bytes, key: bytes) -> bool:
    at = 0  # in the key
    place = 0  # in the pattern
    star = -1  # the last star, and where in the key it stops matching
    resume = 0
    while at < len(key):
        wanted = glob[place] if place < len(glob) else -1
        if wanted == 0x2A:
            star, resume = place, at
            place += 1
        elif wanted in (0x3F, key[at]):
            place += 1
            at += 1
        elif star >= 0:
            resume += 1
            place, at = star + 1, resume
        else:
            return False
    return glob[place:].count(b"*") == len(glob) - place


class _Wish:
    """One criterion, compiled."""

    __slots__ = ("globs", "keys", "kinds", "types")

    def __init__(self, criterion: Criterion) -> None:
        self.kinds = frozenset(
            kind
            for area, operation, kind in _KINDS
            if (not criterion.areas or area in criterion.areas)
            and (not criterion.operations or operation in criterion.operations)
        )
        self.types = criterion.entity_types
        self.keys = frozenset(key.encode("utf-8", "surrogateescape") for key in criterion.keys)
        self.globs = tuple(glob_matcher(glob) for glob in sorted(criterion.key_globs))

    @property
    def sited(self) -> bool:
        return bool(self.types or self.keys or self.globs)

    def leads(self, block: Block) -> bool:
        """Whether the TRANSACTION event of the block is wished for."""
        return block.leads and not self.sited and _TRANSACTION in self.kinds

    def rows(self, block: Block) -> Collection[int] | None:
        """The stored rows that are wished for; None for all of them."""
        columns = block.columns
        types = range(len(columns.entity_types))
        if self.types:
            types_wanted = frozenset(n for n in types if columns.entity_types[n] in self.types)
            if not types_wanted:
                return ()
        else:
            types_wanted = frozenset(types)
        rows: Collection[int] | None = None
        present = block.selection("kinds", lambda b: sorted(frozenset(b.columns.kinds)))
        if not self.kinds.issuperset(present):
            if self.kinds.isdisjoint(present):
                return ()
            kinds = columns.kinds
            rows = [row for row in range(block.count) if kinds[row] in self.kinds]
        if len(types_wanted) < len(types) and columns.type_ids is not None:
            ids = columns.type_ids
            rows = [row for row in (range(block.count) if rows is None else rows) if ids[row] in types_wanted]
        if self.keys or self.globs:
            rows = self._keyed(block, range(block.count) if rows is None else rows)
        return rows

    def _keyed(self, block: Block, rows: Collection[int]) -> list[int]:
        keys = block.columns.key
        if self.keys:
            wanted = self.keys
            rows = [row for row in rows if keys[row] in wanted]
        if len(self.globs) == 1:
            matches = self.globs[0]
            return [row for row in rows if matches(keys[row])]  # type: ignore[arg-type]  # keys are never null
        if self.globs:
            return [row for row in rows if any(glob(keys[row]) for glob in self.globs)]  # type: ignore[arg-type]  # as above
        return list(rows)


class Predicate:
    """Criteria, compiled: which changes of a block match."""

    __slots__ = ("_wishes", "criteria", "types")

    def __init__(self, criteria: Criteria) -> None:
        self.criteria = criteria
        self._wishes = tuple(_Wish(criterion) for criterion in criteria.criterions)
        # The entity types without which nothing can match, or None if there is no such bound.
        bounded = all(wish.types for wish in self._wishes)
        self.types = frozenset[str]().union(*(w.types for w in self._wishes)) if bounded else None

    @property
    def keys(self) -> frozenset[bytes] | None:
        """The keys without which nothing can match, or None if there is no such bound."""
        if all(wish.keys for wish in self._wishes):
            return frozenset[bytes]().union(*(wish.keys for wish in self._wishes))
        return None

    def select(self, block: Block) -> Sequence[int]:
        """The indices of the matching changes, ascending; found once per block."""
        return block.selection(self.criteria, self._select)

    def _select(self, block: Block) -> Sequence[int]:
        rows: Collection[int] | None = ()
        leads = False
        for wish in self._wishes:
            leads = leads or wish.leads(block)
            if rows is not None:
                found = wish.rows(block)
                rows = None if found is None else {*rows, *found} if rows else found
        first = block.first_index
        if rows is None:
            return block.indices if leads or not block.leads else range(first, first + block.count)
        found = sorted(rows) if isinstance(rows, set) else rows  # one wish alone finds them in order
        head = [0] if leads else []
        return head + [row + first for row in found]


class MatchingIndex(Generic[T]):
    """Finds those of many predicates that a block concerns, without asking the others.

    Predicates that can only match certain keys stand in a dictionary by key, those that can only match certain entity
    types in one by type; only the rest is asked of every block. Immutable once built.
    """

    __slots__ = ("_always", "_by_key", "_by_type", "evaluations")

    def __init__(self, entries: Iterable[tuple[Predicate, T]]) -> None:
        self._by_key: dict[bytes, list[tuple[Predicate, T]]] = {}
        self._by_type: dict[str, list[tuple[Predicate, T]]] = {}
        self._always: list[tuple[Predicate, T]] = []
        self.evaluations = 0
        for entry in entries:
            predicate = entry[0]
            if predicate.keys is not None:
                for key in predicate.keys:
                    self._by_key.setdefault(key, []).append(entry)
            elif predicate.types is not None:
                for name in predicate.types:
                    self._by_type.setdefault(name, []).append(entry)
            else:
                self._always.append(entry)

    def __bool__(self) -> bool:
        return bool(self._always or self._by_type or self._by_key)

    def match(self, block: Block) -> Iterator[tuple[T, Sequence[int]]]:
        """The entries that the block concerns, each once, with the matching indices."""
        for predicate, entry in self._concerned(block):
            self.evaluations += 1
            indices = predicate.select(block)
            if indices:
                yield entry, indices

    def _concerned(self, block: Block) -> Iterable[tuple[Predicate, T]]:
        if not self._by_key and not self._by_type:
            return self._always
        found: dict[int, tuple[Predicate, T]] = {}
        for name in block.columns.entity_types if self._by_type else ():
            for entry in self._by_type.get(name, ()):
                found[id(entry)] = entry
        if self._by_key:
            keys, by_key = block.columns.key, self._by_key
            for row in range(block.count):
                for entry in by_key.get(keys[row], ()):  # type: ignore[arg-type]  # keys are never null
                    found[id(entry)] = entry
        return [*self._always, *found.values()]

"""The tables of a matching index: criterions by the answers that lead to them, for one kind of changes and for all kinds."""

from collections.abc import Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Final

from publishers.blocks.block import Block
from publishers.criteria.conditions import Image
from publishers.criteria.index_keys import Place, Question
from publishers.criteria.predicate import TRANSACTION_KIND, Check, CompiledCriterion

__all__ = ["GONE", "Bucket", "Entry", "Placed", "Plan", "Site", "Table", "Tables", "sites_of"]

_MEMO: Final = 4096

GONE: Final = object()
"""The value of a removed entry some of whose places still exist."""


@dataclass(slots=True, eq=False)
class Entry:
    """A predicate in the index.

    Attributes:
        value: The value that the index returns for it.
        sites: Its criterions.
        simple: Whether changes lead to it in order and at most once.
    """

    value: Any
    sites: "list[Site]" = field(default_factory=list)
    simple: bool = True


@dataclass(slots=True, eq=False)
class Site:
    """One criterion of an entry, with the check that remains for changes that led to it, and its number of questions."""

    entry: Entry
    compiled: CompiledCriterion
    rest: Check | None
    questions: int


# Most buckets hold one site; a dictionary for each would dominate the memory of the index.
Bucket = Site | dict[Site, None]


Plan = tuple[tuple[Entry, bool, bool], ...]
"""Entries that match all changes of a block: for each, whether it matches the TRANSACTION event, and whether the others."""


def sites_of(bucket: Bucket) -> Iterable[Site]:
    """Returns the sites in a bucket."""
    return bucket if isinstance(bucket, dict) else (bucket,)


class Table:
    """The criterions for some kinds of changes of one entity type, or of any."""

    __slots__ = (
        "every",
        "grams",
        "heads",
        "keys",
        "kinds",
        "memo",
        "names",
        "questions",
        "size",
        "tails",
        "values",
    )

    def __init__(self, kinds: frozenset[int]) -> None:
        self.kinds: frozenset[int] = kinds
        self.size: int = 0
        self.every: dict[None, Bucket] = {}
        self.keys: dict[bytes, Bucket] = {}
        self.heads: dict[int, dict[bytes, Bucket]] = {}
        self.tails: dict[int, dict[bytes, Bucket]] = {}
        self.grams: dict[int, dict[bytes, Bucket]] = {}
        self.names: dict[str, Bucket] = {}
        self.values: dict[tuple[Image, tuple[str, ...]], dict[object, Bucket]] = {}
        # Questions to evaluate, about keys, transactions and changes, with the sites that depend on the answer.
        self.questions: dict[str, dict[Any, tuple[Any, dict[None, Bucket]]]] = {
            Question.SCANS: {},
            Question.GATES: {},
            Question.TESTS: {},
        }
        self.memo: dict[bytes, tuple[Bucket, ...]] = {}

    def put(self, place: Place, site: Site) -> None:
        """Adds a site to one place. After an interrupt the call may be repeated."""
        self.size += 1
        self.memo = {}
        buckets, key = self._buckets(place)
        held = buckets.get(key)
        if held is None or held is site:
            buckets[key] = site
        elif isinstance(held, dict):
            held[site] = None
        else:
            buckets[key] = {held: None, site: None}

    def drop(self, place: Place, site: Site) -> None:
        """Removes a site from one place, if it is there."""
        self.memo = {}
        buckets, key = self._buckets(place)
        held = buckets.get(key)
        if isinstance(held, dict) and site in held:
            del held[site]
            self.size -= 1
        elif held is site:
            del buckets[key]
            self.size -= 1
        if held == {}:
            del buckets[key]
        if not buckets:
            self._prune(place)

    def _buckets(self, place: Place) -> tuple[dict[Any, Bucket], Any]:
        question = place.question
        if question in self.questions:
            asked = self.questions[question]
            if place.key not in asked:
                asked[place.key] = (place.make() if place.make else None, {})
            return asked[place.key][1], None
        buckets = getattr(self, question)
        return (buckets if place.group is None else buckets.setdefault(place.group, {})), place.key

    def _prune(self, place: Place) -> None:
        if place.question in self.questions:
            del self.questions[place.question][place.key]
        elif place.group is not None:
            del getattr(self, place.question)[place.group]

    @property
    def by_pattern(self) -> bool:
        """Whether keys are matched by anything but equality."""
        return bool(self.heads or self.tails or self.grams or self.questions[Question.SCANS])

    def patterned(self, key: bytes) -> tuple[Bucket, ...]:
        """Returns the buckets of the patterns that a key may match."""
        found: dict[int, Bucket] = {}
        for size, heads in self.heads.items():
            if (bucket := heads.get(key[:size])) is not None:
                found[id(bucket)] = bucket
        for size, tails in self.tails.items():
            if (bucket := tails.get(key[-size:])) is not None:
                found[id(bucket)] = bucket
        for size, grams in self.grams.items():
            for at in range(len(key) - size + 1):
                if (bucket := grams.get(key[at : at + size])) is not None:
                    found[id(bucket)] = bucket
        for matches, waiting in self.questions[Question.SCANS].values():
            if matches(key):
                found[id(waiting[None])] = waiting[None]
        if len(self.memo) >= _MEMO:
            self.memo = {}
        buckets = self.memo[key] = tuple(found.values())
        return buckets


Placed = tuple[frozenset[int], Place, Site]
"""A place of a criterion, and the kinds of changes for which it is entered."""


class Tables:
    """Tables by entity type and kind.

    Attributes:
        by_type: The tables; None stands for any entity type.
        names: Keys of which a block must contain one in order to match; None if there is no such set.
    """

    __slots__ = ("_plans", "_routes", "by_type", "names")

    def __init__(self) -> None:
        self.by_type: dict[str | None, dict[frozenset[int], Table]] = {}
        self._routes: dict[tuple[int, str], tuple[Table, ...]] = {}
        self._plans: dict[tuple[int, str, bool], Plan | None] = {}
        self.names: KeysView[bytes] | frozenset[bytes] | None = None

    @classmethod
    def of(cls, placed: Iterable[Placed]) -> "Tables":
        """Builds the tables of one predicate; they are immutable from then on."""
        tables = cls()
        only_keys = True
        for one in placed:
            tables.put(*one)
            only_keys = only_keys and one[1].question == Question.KEYS
        lists = [table.keys for by_kinds in tables.by_type.values() for table in by_kinds.values()]
        if only_keys and lists:
            first = lists[0].keys()
            same = all(first == other.keys() for other in lists)
            tables.names = first if same else frozenset().union(*lists)
        return tables

    def put(self, kinds: frozenset[int], place: Place, site: Site) -> None:
        """Adds a site to one place."""
        self._plans = {}
        tables = self.by_type.setdefault(place.entity_type, {})
        table = tables.get(kinds)
        if table is None:
            table = tables[kinds] = Table(kinds)
            self._routes = {}
        table.put(place, site)

    def drop(self, kinds: frozenset[int], place: Place, site: Site) -> None:
        """Removes a site from one place, if it is there."""
        self._plans = {}
        tables = self.by_type.get(place.entity_type, {})
        table = tables.get(kinds)
        if table is None:
            return
        table.drop(place, site)
        if not table.size:
            del tables[kinds]
            self._routes = {}
            if not tables:
                del self.by_type[place.entity_type]

    def plan(self, block: Block) -> Plan | None:
        """Returns the matches of a block if they follow from its kind and entity type alone; else None."""
        columns = block.columns
        kinds, ids, count = columns.kinds.tobytes(), columns.type_ids, block.count
        if not count or kinds.count(kinds[0]) != count:
            return None
        if ids is None:
            name = columns.entity_types[0]
        else:
            numbers = ids.tolist()
            if numbers.count(numbers[0]) != count:
                return None
            name = columns.entity_types[numbers[0]]
        key = kinds[0], name, block.leads
        if key not in self._plans:
            if len(self._plans) >= _MEMO:
                self._plans = {}
            self._plans[key] = self._make_plan(*key)
        return self._plans[key]

    def _make_plan(self, kind: int, name: str, leads: bool) -> Plan | None:
        route, leading = self._route(kind, name), self._leading() if leads else []
        plan: list[tuple[Entry, bool, bool]] = []
        for table in (*route, *(table for table in leading if table not in route)):
            sites = tuple(chain.from_iterable(map(sites_of, table.every.values())))
            if table.size > len(sites) or not all(site.entry.simple for site in sites):
                return None
            plan += ((site.entry, table in leading, table in route) for site in sites)
        return tuple(plan)

    def _leading(self) -> list[Table]:
        """Returns the tables of criterions that may match TRANSACTION events."""
        return [table for kinds, table in self.by_type.get(None, {}).items() if TRANSACTION_KIND in kinds]

    def work(self, block: Block) -> Iterator[tuple[Table, Sequence[int], Sequence[bytes], bool]]:
        """Yields the tables that concern a block, with indices and keys of their changes."""
        leading = self._leading() if block.leads else []
        work = _spread(self._groups(block), block)
        every: list[bytes] | None = None
        first = block.first_index
        for table, indices in work.items():
            keys: Sequence[bytes] = ()
            if table.keys or table.by_pattern:
                if every is None:
                    every = list(block.columns.key)  # type: ignore[arg-type]  # keys are never null
                keys = every if len(indices) == len(every) else [every[index - first] for index in indices]
            yield table, indices, keys, table in leading
        for table in leading:
            if table not in work:
                yield table, (), (), True

    def _groups(self, block: Block) -> list[tuple[tuple[Table, ...], Sequence[int]]]:
        """Groups the changes of a block by kind and entity type, with the tables that concern each group."""
        columns, count, first = block.columns, block.count, block.first_index
        if not count:
            return []
        names = columns.entity_types
        kinds = columns.kinds.tobytes()
        ids = None if columns.type_ids is None else columns.type_ids.tolist()
        if kinds.count(kinds[0]) == count and (ids is None or ids.count(ids[0]) == count):
            tables = self._route(kinds[0], names[0 if ids is None else ids[0]])
            return [(tables, range(first, first + count))] if tables else []
        groups: dict[tuple[int, int], list[int]] = {}
        for index, pair in enumerate(zip(kinds, ids or repeat(0), strict=False), first):
            if pair in groups:
                groups[pair].append(index)
            else:
                groups[pair] = [index]
        routed = ((self._route(kind, names[number]), rows) for (kind, number), rows in groups.items())
        return [(tables, rows) for tables, rows in routed if tables]

    def _route(self, kind: int, name: str) -> tuple[Table, ...]:
        tables = self._routes.get((kind, name))
        if tables is None:
            if len(self._routes) >= _MEMO:
                self._routes = {}
            tables = self._routes[kind, name] = tuple(
                table
                for entity_type in (name, None)
                for kinds, table in self.by_type.get(entity_type, {}).items()
                if kind in kinds
            )
        return tables


def _spread(
    groups: list[tuple[tuple[Table, ...], Sequence[int]]], block: Block
) -> dict[Table, Sequence[int]]:
    """Returns the changes that concern each table, in order; equal selections are the same object."""
    if len(groups) == 1:
        tables, indices = groups[0]
        return dict.fromkeys(tables, indices)
    wanted: dict[Table, tuple[int, ...]] = {}
    for number, (tables, _) in enumerate(groups):
        for table in tables:
            wanted[table] = (*wanted.get(table, ()), number)
    merged: dict[tuple[int, ...], Sequence[int]] = {}
    for numbers in wanted.values():
        if numbers not in merged:
            rows = sorted(chain.from_iterable(groups[number][1] for number in numbers))
            whole = len(rows) == block.count
            merged[numbers] = range(block.first_index, block.first_index + block.count) if whole else rows
    return {table: merged[numbers] for table, numbers in wanted.items()}

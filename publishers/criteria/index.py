"""Finds those of many predicates that a block concerns, without asking the others.

A wish stands where the cheapest question about a change leads: by key, by the head of a pattern or a piece of it, by the name
of a changed field, by the value of a field that must be equal to something, or, if nothing tells it from others, among those
that every change of its kind and entity type concerns. What else it wants is asked only of changes that led to it. So the cost
of a change follows the wishes that it leads to, however many others there are, and a wish is put in and taken out in time of
its own size.

What cannot be looked up is asked once for all wishes that have it in common: patterns without any literal part (once per
distinct key, as far as the memo reaches), and conditions without an equality.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final, Generic, TypeVar

from publishers.blocks.block import Block
from publishers.criteria.conditions import Image, find, value_key
from publishers.criteria.criteria import Criteria
from publishers.criteria.facts import Facts, facts_of, forget_facts
from publishers.criteria.matching import TRANSACTION_KIND, Predicate
from publishers.criteria.sites import Slot, places_of, rest_of
from publishers.criteria.table import Bucket, Entry, Site, Table

__all__ = ["MatchingIndex"]

T = TypeVar("T")

_MEMO: Final = 4096


class _Run:
    """What is found in one block."""

    __slots__ = ("block", "facts", "found", "hits", "missed", "parts")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.facts: Facts = facts_of(block)
        self.found: list[tuple[Any, Sequence[int]]] = []
        self.parts: dict[Entry, list[Sequence[int]]] = {}
        self.hits: dict[Entry, list[int]] = {}
        self.missed: set[Entry] = set()

    def ask(self, table: Table, indices: Sequence[int], keys: Sequence[bytes], *, leads: bool) -> None:
        """Asks what a table asks of some changes."""
        if table.every:
            self._all(table.every[None], self._led(indices) if leads else indices)
        if not indices:
            return
        if table.keys:
            get = table.keys.get
            led = zip(indices, map(get, keys), strict=True)
            self._some((index, bucket) for index, bucket in led if bucket is not None)
        if table.by_pattern:
            self._some(_patterned(table, indices, keys))
        columns = self.block.columns
        if table.names and columns.changed is not None:
            self._some(_named(table.names, self.facts, indices, self.block.first_index))
        for (image, path), buckets in table.values.items():
            if (columns.body if image is Image.AFTER else columns.before) is not None:
                images = self.facts.after if image is Image.AFTER else self.facts.before
                self._some(
                    (index, bucket)
                    for index in indices
                    if (bucket := buckets.get(value_key(find(images(index), path)))) is not None
                )
        for holds, waiting in table.questions[Slot.TESTS].values():
            passed = [index for index in indices if holds(self.facts, index)]
            if passed:
                self._all(waiting[None], passed)
            else:
                self.missed.add(next(iter(_sites(waiting[None]))).entry)

    def result(self) -> list[tuple[Any, Sequence[int]]]:
        """Each entry that was found, with its indices in order."""
        found, parts = self.found, self.parts
        for entry, rows in self.hits.items():
            if entry.simple and entry not in parts:
                found.append((entry.value, rows))
            else:
                parts.setdefault(entry, []).append(sorted(set(rows)))
        merged: dict[tuple[int, ...], Sequence[int]] = {}
        for entry, pieces in parts.items():
            same = tuple(map(id, pieces))  # many entries have the same pieces, and share what they come to
            if same not in merged:
                merged[same] = self._merged(pieces)
            found.append((entry.value, merged[same]))
        return found

    def _led(self, indices: Sequence[int]) -> Sequence[int]:
        return self.block.indices if len(indices) == self.block.count else [0, *indices]

    def _all(self, bucket: Bucket, indices: Sequence[int]) -> None:
        """All of some changes concern all wishes of a bucket."""
        if not indices:
            return
        for site in _sites(bucket):
            entry = site.entry
            if entry.simple:
                self.found.append((entry.value, indices))
            else:
                self.parts.setdefault(entry, []).append(indices)

    def _some(self, led: Iterable[tuple[int, Bucket]]) -> None:
        """Changes that led to buckets, in order, and to each bucket at most once."""
        hits, facts = self.hits, self.facts
        crowds: dict[int, tuple[dict[Site, None], list[int]]] = {}
        for index, bucket in led:
            if isinstance(bucket, dict):
                crowd = crowds.get(id(bucket))
                if crowd is None:
                    crowds[id(bucket)] = (bucket, [index])
                else:
                    crowd[1].append(index)
                continue
            rest = bucket.rest
            if rest is not None and not rest(facts, index):
                self.missed.add(bucket.entry)
                continue
            rows = hits.get(bucket.entry)
            if rows is None:
                hits[bucket.entry] = [index]
            elif rows[-1] != index:
                rows.append(index)
        for sites, indices in crowds.values():
            for site in sites:
                self._one(site, indices)

    def _one(self, site: Site, indices: list[int]) -> None:
        rest = site.rest
        if rest is not None:
            facts = self.facts
            indices = [index for index in indices if rest(facts, index)]
        if indices:
            self.parts.setdefault(site.entry, []).append(indices)
        else:
            self.missed.add(site.entry)

    def _merged(self, pieces: list[Sequence[int]]) -> Sequence[int]:
        if len(pieces) == 1:
            return pieces[0]
        found = sorted(set(chain.from_iterable(pieces)))
        # A range is recognised as such by those who make changes or count bytes.
        whole = self.block.indices[-len(found) :]
        return whole if found[0] == whole[0] and found[-1] == whole[-1] else found


class MatchingIndex(Generic[T]):
    """Finds those of many predicates that a block concerns.

    One thread at a time may use it.

    Attributes:
        evaluations: How often a predicate matched a block, or was asked and did not; what several predicates ask in common
            counts once if it fails.
    """

    __slots__ = ("_entries", "_routes", "_tables", "evaluations")

    def __init__(self, entries: Iterable[tuple[Predicate, T]] = ()) -> None:
        self.evaluations = 0
        self._entries: dict[Criteria, Entry] = {}
        self._tables: dict[str | None, dict[frozenset[int], Table]] = {}
        self._routes: dict[tuple[int, str], tuple[Table, ...]] = {}
        for predicate, value in entries:
            self.add(predicate, value)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, predicate: Predicate, value: T) -> None:
        """Puts a predicate in, in place of one with the same criteria, in time of its own size."""
        self.remove(predicate.criteria)
        entry = self._entries[predicate.criteria] = Entry(value)
        loops: set[object] = set()
        count = 0
        for wish in predicate.wishes:
            places = list(places_of(wish))
            site = Site(entry, wish, rest_of(wish, places))
            entry.sites.append(site)
            for place in places:
                self._table(place.entity_type, wish.kinds).put(place, site)
                single = place.slot in (Slot.EVERY, Slot.TESTS)
                pattern = place.slot in (Slot.HEADS, Slot.GRAMS, Slot.SCANS)
                slot = "patterns" if pattern else place.slot
                group = None if pattern else place.group
                count += single
                loops.add((wish.kinds, place.entity_type, slot, group))
        entry.simple = len(loops) == 1 and count < 2

    def remove(self, criteria: Criteria) -> None:
        """Takes a predicate out, if it is there, in time of its own size."""
        entry = self._entries.get(criteria)
        for site in entry.sites if entry else ():
            for place in places_of(site.wish):
                tables = self._tables.get(place.entity_type, {})
                table = tables.get(site.wish.kinds)
                if table is None:
                    continue
                table.drop(place, site)
                if not table.size:
                    del tables[site.wish.kinds]
                    self._routes = {}
                    if not tables:
                        del self._tables[place.entity_type]
        # Last, so that whoever was interrupted above can do it again.
        self._entries.pop(criteria, None)

    def match(self, block: Block) -> list[tuple[T, Sequence[int]]]:
        """The entries that the block concerns, each once, with the matching indices."""
        run = _Run(block)
        try:
            for table, indices, keys, leads in self._work(block):
                run.ask(table, indices, keys, leads=leads)
            found = run.result()
        finally:
            forget_facts(block)
        self.evaluations += len(found) + len(run.missed - run.hits.keys() - run.parts.keys())
        return found

    def _table(self, entity_type: str | None, kinds: frozenset[int]) -> Table:
        tables = self._tables.setdefault(entity_type, {})
        table = tables.get(kinds)
        if table is None:
            table = tables[kinds] = Table(kinds)
            self._routes = {}
        return table

    def _work(self, block: Block) -> Iterator[tuple[Table, Sequence[int], Sequence[bytes], bool]]:
        """The tables that a block has to do with, with indices and keys of the changes that concern them."""
        leading = [
            table
            for kinds, table in (self._tables.get(None, {}).items() if block.leads else ())
            if TRANSACTION_KIND in kinds
        ]
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
        """The changes of a block by kind and entity type, with the tables that want to know of them."""
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
                for kinds, table in self._tables.get(entity_type, {}).items()
                if kind in kinds
            )
        return tables


def _spread(
    groups: list[tuple[tuple[Table, ...], Sequence[int]]], block: Block
) -> dict[Table, Sequence[int]]:
    """The changes that concern each table, in order; equal ones are the same object."""
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


def _sites(bucket: Bucket) -> Iterable[Site]:
    return bucket if isinstance(bucket, dict) else (bucket,)


def _patterned(table: Table, indices: Sequence[int], keys: Sequence[bytes]) -> Iterator[tuple[int, Bucket]]:
    # What is remembered in the meantime is seen, unless the memo has been emptied: then a key is looked up again.
    for index, key, known in zip(indices, keys, map(table.memo.get, keys), strict=True):
        buckets = table.patterned(key) if known is None else known
        if buckets:
            for bucket in buckets:
                yield index, bucket


def _named(
    table: dict[str, Bucket], facts: Facts, indices: Sequence[int], first: int
) -> Iterator[tuple[int, Bucket]]:
    lists = facts.lists
    known: dict[bytes | None, list[Bucket]] = {}
    for index in indices:
        stored = lists[index - first]
        buckets = known.get(stored)
        if buckets is None:
            names = dict.fromkeys(facts.names_of(stored))
            buckets = known[stored] = [table[name] for name in names if name in table]
        for bucket in buckets:
            yield index, bucket

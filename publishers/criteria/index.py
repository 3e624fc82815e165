"""Finds, among many predicates, those that match a block, without evaluating the rest.

A criterion is entered where the cheapest question about a change leads: by key, by the head of a pattern or a piece of it, by
the name of a changed field, or by the value that a field must equal. If none of these distinguishes it, it is entered among
those that every change of its kind and entity type concerns. Its other conditions are tested only on changes that led to it. So the
cost of a change depends on the criterions that it leads to, however many others there are, and entering or removing a criterion
takes time proportional to its own size.

A predicate of more than 256 places is entered by one reference: it has tables of its own, built before by the thread that
subscribes. Such tables are asked one after the other. If they consist of nothing but keys, one set operation shows whether a
block has any of them.

What cannot be looked up is asked once for all criterions that have it in common: patterns without any literal part (once per
distinct key, as far as the memo reaches), and conditions without an equality.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from publishers.blocks.block import Block
from publishers.criteria.conditions import Image, find, value_key
from publishers.criteria.criteria import Criteria
from publishers.criteria.facts import Facts, facts_of, forget_facts
from publishers.criteria.index_keys import Place, Question, asks_of, places_of, rest_of
from publishers.criteria.index_table import GONE, Bucket, Entry, Placed, Site, Table, Tables, sites_of
from publishers.criteria.predicate import Predicate

__all__ = ["DIRECT", "SWEPT", "MatchingIndex", "Prepared", "prepare"]

T = TypeVar("T")

DIRECT: Final = 256
"""Places of a predicate up to which it is entered place by place."""

SWEPT: Final = 4096
"""Most places to drop in one sweep; the last predicate of a sweep may exceed it, by at most ``DIRECT``."""


class Prepared:
    """A predicate in the form in which it is entered in an index. It is entered once.

    Attributes:
        criteria: The criteria of the predicate.
        predicate: The predicate.
        entry: Its entry in the index.
        size: The number of its places.
        asks: Questions that it asks of every change, because no look-up answers them.
        placed: Its places, if they are entered one by one.
        own: Tables of its own, if they are not.
    """

    __slots__ = ("asks", "criteria", "entry", "own", "placed", "predicate", "size")

    def __init__(
        self, predicate: Predicate, entry: Entry, placed: list[Placed], asks: int, direct: int
    ) -> None:
        self.criteria: Criteria = predicate.criteria
        self.predicate: Predicate = predicate
        self.entry: Entry = entry
        self.size: int = len(placed)
        self.asks: int = asks
        alone = self.size > direct
        self.own: Tables | None = Tables.of(placed) if alone else None
        self.placed: tuple[Placed, ...] = () if alone else tuple(placed)

    def entered(self) -> None:
        """Drops what only the entering needed. The tables stay, so that the thread that ends the last subscription frees them."""
        self.placed = ()


def prepare(predicate: Predicate, *, direct: int = DIRECT) -> Prepared:
    """Finds the places of a predicate, in time proportional to its size.

    Args:
        predicate: The predicate to enter.
        direct: Number of places above which it gets tables of its own.
    """
    entry = Entry(None)
    placed: list[Placed] = []
    loops: set[object] = set()
    count = asks = 0
    for compiled in predicate.compiled:
        places = list(places_of(compiled))
        site = Site(entry, compiled, *rest_of(compiled, places))
        asks += asks_of(compiled, places)
        entry.sites.append(site)
        for place in places:
            single = place.question in (Question.EVERY, Question.GATES, Question.TESTS)
            pattern = place.question in (Question.HEADS, Question.TAILS, Question.GRAMS, Question.SCANS)
            question = "patterns" if pattern else place.question
            group = None if pattern else place.group
            count += single
            loops.add((compiled.kinds, place.entity_type, question, group))
            placed.append((compiled.kinds, _asked(place), site))
    entry.simple = len(loops) == 1 and count < 2
    return Prepared(predicate, entry, placed, asks, direct)


def _asked(place: Place) -> Place:
    """Returns the place with its question compiled."""
    if place.make is None:
        return place
    question = place.make()
    return place._replace(make=lambda: question)


class _Run:
    """The matching of one block."""

    __slots__ = ("asked", "block", "facts", "found", "hits", "missed", "parts")

    def __init__(self, block: Block, asked: dict[Entry, int]) -> None:
        self.asked = asked
        self.block = block
        self.facts: Facts = facts_of(block)
        self.found: list[tuple[Any, Sequence[int]]] = []
        self.parts: dict[Entry, list[Sequence[int]]] = {}
        self.hits: dict[Entry, list[int]] = {}
        self.missed: set[Entry] = set()

    def ask_all(self, tables: Tables) -> None:
        """Asks all tables that concern the block."""
        for table, indices, keys, leads in tables.work(self.block):
            self.ask(table, indices, keys, leads=leads)

    def ask(self, table: Table, indices: Sequence[int], keys: Sequence[bytes], *, leads: bool) -> None:
        """Asks the questions of a table about its changes."""
        if table.every:
            self._all(table.every[None], self._led(indices) if leads else indices)
        for holds, waiting in table.questions[Question.GATES].values():
            if holds(self.facts, 0):
                self._all(waiting[None], self._led(indices) if leads else indices)
            else:
                self._missed(waiting[None])
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
        for holds, waiting in table.questions[Question.TESTS].values():
            passed = [index for index in indices if holds(self.facts, index)]
            if passed:
                self._all(waiting[None], passed)
            else:
                self._missed(waiting[None])

    def result(self) -> list[tuple[Any, Sequence[int]]]:
        """Returns each matching entry with its indices, ascending."""
        found, parts = self.found, self.parts
        for entry, rows in self.hits.items():
            if entry.simple and entry not in parts:
                found.append((entry.value, rows))
            else:
                parts.setdefault(entry, []).append(sorted(set(rows)))
        merged: dict[tuple[int, ...], Sequence[int]] = {}
        for entry, pieces in parts.items():
            same = tuple(map(id, pieces))  # many entries have the same pieces, and share the merged result
            if same not in merged:
                merged[same] = self._merged(pieces)
            found.append((entry.value, merged[same]))
        return found

    def _led(self, indices: Sequence[int]) -> Sequence[int]:
        return self.block.indices if len(indices) == self.block.count else [0, *indices]

    def _all(self, bucket: Bucket, indices: Sequence[int]) -> None:
        """Notes that all given changes match all criterions of a bucket."""
        if not indices:
            return
        for site in sites_of(bucket):
            entry = site.entry
            if entry.simple:
                self.found.append((entry.value, indices))
            else:
                self.parts.setdefault(entry, []).append(indices)

    def _missed(self, bucket: Bucket) -> None:
        """Notes that the common question of a bucket's criterions was answered with no."""
        self.missed.add(next(iter(sites_of(bucket))).entry)

    def _some(self, led: Iterable[tuple[int, Bucket]]) -> None:
        """Notes changes that led to buckets; they come in order, and at most once for each bucket."""
        hits, facts, asked = self.hits, self.facts, self.asked
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
            if rest is not None:
                entry = bucket.entry
                asked[entry] = asked.get(entry, 0) + bucket.questions
                if not rest(facts, index):
                    self.missed.add(entry)
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
            facts, asked, entry = self.facts, self.asked, site.entry
            asked[entry] = asked.get(entry, 0) + site.questions * len(indices)
            indices = [index for index in indices if rest(facts, index)]
        if indices:
            self.parts.setdefault(site.entry, []).append(indices)
        else:
            self.missed.add(site.entry)

    def _merged(self, pieces: list[Sequence[int]]) -> Sequence[int]:
        if len(pieces) == 1:
            return pieces[0]
        found = sorted(set(chain.from_iterable(pieces)))
        # Callers recognise a contiguous selection by its being a range.
        whole = self.block.indices[-len(found) :]
        return whole if found[0] == whole[0] and found[-1] == whole[-1] else found


class MatchingIndex(Generic[T]):
    """Finds, among many predicates, those that match a block.

    Only one thread at a time may use it. Any thread prepares a predicate without it. The predicate is then entered place by place
    if it has at most ``DIRECT`` of them, else as tables of its own by one reference. Removing a predicate takes effect at once.
    Its places are dropped in the same call, up to ``SWEPT`` of them; the rest are dropped by later calls.

    Attributes:
        evaluations: How often a predicate matched a block, or was evaluated on one without a match; a question that several
            predicates have in common counts once if the answer is no.
        leaving: Removed entries some of whose places still exist.
        matched: Changes that were matched since the last call of ``costly``.
    """

    __slots__ = ("_asked", "_parts", "_shared", "entries", "evaluations", "leaving", "matched")

    def __init__(self, entries: Iterable[tuple[Predicate, T]] = ()) -> None:
        self.evaluations: int = 0
        self.matched: int = 0
        # Questions about changes that led there, since the last call of costly.
        self._asked: dict[Entry, int] = {}
        self.entries: dict[Criteria, Entry] = {}
        self._shared = Tables()
        self._parts: dict[Entry, Tables] = {}
        self.leaving: dict[Entry, None] = {}
        for predicate, value in entries:
            self.add(predicate, value)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, predicate: Predicate, value: T) -> None:
        """Enters a predicate; replaces one with the same criteria."""
        self.enter(prepare(predicate), value)

    def enter(self, prepared: Prepared, value: T) -> None:
        """Enters a prepared predicate, replacing one with the same criteria, in at most ``DIRECT`` steps."""
        criteria, entry = prepared.criteria, prepared.entry
        if self.entries.get(criteria) is not entry:
            self.retire(criteria)
        else:  # an interrupt hit the lines below, and the call is repeated
            for placed in prepared.placed:
                self._shared.drop(*placed)
        entry.value = value
        self.entries[criteria] = entry
        if prepared.own is not None:
            self._parts[entry] = prepared.own
        for placed in prepared.placed:
            self._shared.put(*placed)

    def remove(self, criteria: Criteria) -> None:
        """Removes a predicate, if it exists, and sweeps."""
        self.retire(criteria)
        self.sweep()

    def retire(self, criteria: Criteria) -> None:
        """Removes a predicate, if it exists, in one step; its places wait for ``sweep``."""
        entry = self.entries.get(criteria)
        if entry is not None:
            if self._parts.pop(entry, None) is None:
                self.leaving[entry] = None
            entry.value = GONE
            self._asked.pop(entry, None)
            del self.entries[criteria]

    def sweep(self) -> None:
        """Drops places of removed predicates, one predicate after the other, about ``SWEPT`` places a call."""
        steps = 0
        while self.leaving and steps < SWEPT:
            entry = next(iter(self.leaving))
            for site in entry.sites:
                for place in places_of(site.compiled):
                    self._shared.drop(site.compiled.kinds, place, site)
                    steps += 1
            del self.leaving[entry]

    def match(self, block: Block) -> list[tuple[T, Sequence[int]]]:
        """Returns the entries that match the block, each once, with the matching indices."""
        self.matched += block.count
        found: list[tuple[T, Sequence[int]]] = []
        plan = None if self._parts else self._shared.plan(block)
        if plan is not None:
            stored = range(block.first_index, block.first_index + block.count)
            every = range(stored.stop)  # with a TRANSACTION event the stored changes begin at 1
            for entry, leads, data in plan:
                if entry.value is not GONE:
                    found.append((entry.value, (every if data else (0,)) if leads else stored))
            self.evaluations += len(found)
            return found
        run = _Run(block, self._asked)
        try:
            run.ask_all(self._shared)
            if self._parts:
                keys = frozenset(key for key in block.columns.key if key is not None)
                # One set operation for each part that consists of keys only; there may be thousands.
                for part in [
                    part
                    for part in self._parts.values()
                    if part.names is None or not part.names.isdisjoint(keys)
                ]:
                    run.ask_all(part)
            found = run.result()
        finally:
            forget_facts(block)
        if self.leaving:
            found = [(value, indices) for value, indices in found if value is not GONE]
        self.evaluations += len(found) + len(run.missed - run.hits.keys() - run.parts.keys())
        return found

    def costly(self, most: int) -> list[T]:
        """Returns the predicates that asked more than ``most`` questions on average of each change matched since the last call.

        Only questions about changes that led to a criterion count; ``Prepared.asks`` has the others.
        """
        bound = most * max(self.matched, 1)
        found = [
            entry.value for entry, asked in self._asked.items() if asked > bound and entry.value is not GONE
        ]
        self.matched = 0
        self._asked.clear()
        return found


def _patterned(table: Table, indices: Sequence[int], keys: Sequence[bytes]) -> Iterator[tuple[int, Bucket]]:
    # An answer memoized meanwhile is seen, unless the memo has been emptied: then the key is looked up again.
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

"""Finds those of many predicates that a block concerns, without asking the others.

A wish stands where the cheapest question about a change leads: by key, by the head of a pattern or a piece of it, by the name
of a changed field, by the value of a field that must be equal to something, or, if nothing tells it from others, among those
that every change of its kind and entity type concerns. What else it wants is asked only of changes that led to it. So the cost
of a change follows the wishes that it leads to, however many others there are, and a wish is put in and taken out in time of
its own size. One of more than 256 places is put in by one reference: as tables of its own, made before by whoever brings it, which
are asked one after the other. Where it names nothing but keys, that is one look whether a block has any of them.

What cannot be looked up is asked once for all wishes that have it in common: patterns without any literal part (once per
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
"""Places that are dropped in one step at most, but for the last predicate's, which has up to ``DIRECT``."""


class Prepared:
    """What a predicate comes to in an index; for one entering.

    Attributes:
        criteria: Of the predicate.
        predicate: The predicate.
        entry: What stands for it in the index.
        size: Its places.
        asks: How many questions it has for every change, as no look-up answers them.
        placed: The places, if they are to be entered one by one.
        own: Tables of its own, if they are not.
    """

    __slots__ = ("asks", "criteria", "entry", "own", "placed", "predicate", "size")

    def __init__(
        self, predicate: Predicate, entry: Entry, placed: list[Placed], asks: int, direct: int
    ) -> None:
        self.criteria: Criteria = predicate.criteria
        self.predicate = predicate
        self.entry = entry
        self.size = len(placed)
        self.asks = asks
        alone = self.size > direct
        self.own: Tables | None = Tables.of(placed) if alone else None
        self.placed: tuple[Placed, ...] = () if alone else tuple(placed)

    def entered(self) -> None:
        """Lets go of what only the entering needed. The tables stay, so that they are freed where the last subscription ends."""
        self.placed = ()


def prepare(predicate: Predicate, *, direct: int = DIRECT) -> Prepared:
    """Finds the places of a predicate, in time of its own size.

    Args:
        predicate: What is to be entered.
        direct: Places above which it gets tables of its own.
    """
    entry = Entry(None)
    placed: list[Placed] = []
    loops: set[object] = set()
    count = asks = 0
    for wish in predicate.wishes:
        places = list(places_of(wish))
        site = Site(entry, wish, *rest_of(wish, places))
        asks += asks_of(wish, places)
        entry.sites.append(site)
        for place in places:
            single = place.question in (Question.EVERY, Question.GATES, Question.TESTS)
            pattern = place.question in (Question.HEADS, Question.GRAMS, Question.SCANS)
            question = "patterns" if pattern else place.question
            group = None if pattern else place.group
            count += single
            loops.add((wish.kinds, place.entity_type, question, group))
            placed.append((wish.kinds, _asked(place), site))
    entry.simple = len(loops) == 1 and count < 2
    return Prepared(predicate, entry, placed, asks, direct)


def _asked(place: Place) -> Place:
    """The same place, with its question made."""
    if place.make is None:
        return place
    question = place.make()
    return place._replace(make=lambda: question)


class _Run:
    """What is found in one block."""

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
        """Asks all tables that the block has to do with."""
        for table, indices, keys, leads in tables.work(self.block):
            self.ask(table, indices, keys, leads=leads)

    def ask(self, table: Table, indices: Sequence[int], keys: Sequence[bytes], *, leads: bool) -> None:
        """Asks what a table asks of some changes."""
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
        for site in sites_of(bucket):
            entry = site.entry
            if entry.simple:
                self.found.append((entry.value, indices))
            else:
                self.parts.setdefault(entry, []).append(indices)

    def _missed(self, bucket: Bucket) -> None:
        """What was asked in common for the wishes of a bucket does not hold."""
        self.missed.add(next(iter(sites_of(bucket))).entry)

    def _some(self, led: Iterable[tuple[int, Bucket]]) -> None:
        """Changes that led to buckets, in order, and to each bucket at most once."""
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
        # A range is recognised as such by those who make changes or count bytes.
        whole = self.block.indices[-len(found) :]
        return whole if found[0] == whole[0] and found[-1] == whole[-1] else found


class MatchingIndex(Generic[T]):
    """Finds those of many predicates that a block concerns.

    One thread at a time may use it. A predicate is prepared without it, by any thread; then it is entered, place by place
    if it has at most ``DIRECT`` of them, else as tables of its own by one reference. A predicate is out of it at once, and
    its places are dropped then and there, as far as ``SWEPT`` reaches; what is left goes with later calls.

    Attributes:
        evaluations: How often a predicate matched a block, or was asked and did not; what several predicates ask in common
            counts once if it fails.
        leaving: What was taken out, while some of its places are still there.
        matched: Changes that were matched since ``costly`` was asked last.
    """

    __slots__ = ("_asked", "_parts", "_shared", "entries", "evaluations", "leaving", "matched")

    def __init__(self, entries: Iterable[tuple[Predicate, T]] = ()) -> None:
        self.evaluations = 0
        self.matched = 0
        self._asked: dict[Entry, int] = {}  # questions to the changes that led there, since then
        self.entries: dict[Criteria, Entry] = {}
        self._shared = Tables()
        self._parts: dict[Entry, Tables] = {}
        self.leaving: dict[Entry, None] = {}
        for predicate, value in entries:
            self.add(predicate, value)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, predicate: Predicate, value: T) -> None:
        """Puts a predicate in, in place of one with the same criteria."""
        self.enter(prepare(predicate), value)

    def enter(self, prepared: Prepared, value: T) -> None:
        """Puts in what was prepared, in place of what has the same criteria, in at most ``DIRECT`` steps."""
        criteria, entry = prepared.criteria, prepared.entry
        if self.entries.get(criteria) is not entry:
            self.retire(criteria)
        else:  # an interrupt came below, and it is done again
            for placed in prepared.placed:
                self._shared.drop(*placed)
        entry.value = value
        self.entries[criteria] = entry
        if prepared.own is not None:
            self._parts[entry] = prepared.own
        for placed in prepared.placed:
            self._shared.put(*placed)

    def remove(self, criteria: Criteria) -> None:
        """Takes a predicate out, if it is there, and sweeps."""
        self.retire(criteria)
        self.sweep()

    def retire(self, criteria: Criteria) -> None:
        """Takes a predicate out, if it is there, in one step; its places wait for ``sweep``."""
        entry = self.entries.get(criteria)
        if entry is not None:
            if self._parts.pop(entry, None) is None:
                self.leaving[entry] = None
            entry.value = GONE
            self._asked.pop(entry, None)
            del self.entries[criteria]

    def sweep(self) -> None:
        """Drops places of predicates that were taken out, one predicate after the other, about ``SWEPT`` at a time."""
        steps = 0
        while self.leaving and steps < SWEPT:
            entry = next(iter(self.leaving))
            for site in entry.sites:
                for place in places_of(site.wish):
                    self._shared.drop(site.wish.kinds, place, site)
                    steps += 1
            del self.leaving[entry]

    def match(self, block: Block) -> list[tuple[T, Sequence[int]]]:
        """The entries that the block concerns, each once, with the matching indices."""
        self.matched += block.count
        found: list[tuple[T, Sequence[int]]] = []
        plan = None if self._parts else self._shared.plan(block)
        if plan is not None:
            stored = range(block.first_index, block.first_index + block.count)
            every = range(stored.stop)  # where it leads, the stored ones begin at 1
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
                # One look for each that names nothing but keys; there may be thousands.
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
        """Those with more than so many questions, on the average, for each change that was matched since the last call.

        Only what changes are asked that led to a wish is counted; ``Prepared.asks`` tells of the other questions.
        """
        bound = most * max(self.matched, 1)
        found = [
            entry.value for entry, asked in self._asked.items() if asked > bound and entry.value is not GONE
        ]
        self.matched = 0
        self._asked.clear()
        return found


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

"""Finding the predicates that match a block, against a no-op call for each change and against evaluating each predicate."""

from itertools import count
from pathlib import Path
from time import process_time

from benchmarks.harness import Table, Variant, compare
from benchmarks.harness import cpu as timed
from publishers import Criteria, Criterion, Where
from publishers.blocks.block import Block
from publishers.criteria.index import MatchingIndex
from publishers.criteria.predicate import Predicate
from publishers.mutations.mutation import columns_of, upsert

CHANGES = 1000
SIZES = {1: 0, 100: 0, 1_000: 100, 10_000: 1_000, 100_000: 1_000}
"""The number of predicates, and the goal for the index as a multiple of the speed of a filter for each predicate."""
CONDITIONS = 1_000
GROWN = 100_000
_INDEX = "the matching index"
_FILTERS = "a filter for each predicate"
_versions = count(1)


def block() -> Block:
    """A thousand orders with distinct keys; a new block each time, since a block caches its matches."""
    rows = [
        upsert(
            "order",
            f"eu/{n % 50}/{n}",
            b'{"customer":%d,"status":"OPEN","note":"%s"}' % (n, b"x" * 120),
            changed=["status"],
        )
        for n in range(CHANGES)
    ]
    columns = columns_of(rows)
    return Block(
        columns,
        version=next(_versions),
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=CHANGES + 1,
        transaction_bytes=columns.nbytes,
        committed_at=0,
    )


def wish(number: int) -> Criterion:
    """A criterion by key, type, glob, pattern or changed field in turn; some of the first three hundred match."""
    near = f"eu/{number % 50}" if number % 50 < 10 and number < 300 else f"us/{number}"
    kinds = (
        Criterion(entity_types={"order"}, keys={f"{near}/{number}"}),
        Criterion(entity_types={f"type{number}"}),
        Criterion(key_globs={f"{near}/*"}),
        Criterion(entity_types={"order"}, key_patterns={f"{near}/[0-9]+"}),
        Criterion(entity_types={"order"}, changed={f"field{number}"}),
    )
    return kinds[number % len(kinds)]


def valued(number: int) -> Criterion:
    """A criterion for one customer; a tenth of the customers have an order in the block."""
    return Criterion(entity_types={"order"}, where=Where("customer", "==", number * 10))


def run(_directory: Path) -> dict[str, Table]:
    """1 to 100,000 predicates, a thousand changes in a block."""
    tables = {f"matching {size}": table(size) for size in SIZES}
    tables["matching conditions"] = conditions(CONDITIONS)
    tables["subscribing"] = growing()
    return tables


def table(size: int) -> Table:
    predicates = [Predicate(criteria) for criteria in {Criteria.of(wish(number)) for number in range(size)}]
    index = MatchingIndex((predicate, predicate) for predicate in predicates)
    one = block()
    expected = sum(len(indices) for _, indices in index.match(one))
    few = block()

    def nothing(_change: object) -> None:
        return

    def loop() -> int:
        for _ in range(10):
            for change in range(CHANGES):
                nothing(change)
        return 10 * CHANGES

    def indexed() -> int:
        found = 0
        for _ in range(3):
            found += sum(len(indices) for _, indices in index.match(one))
        assert found == 3 * expected
        return 3 * CHANGES

    def filtered() -> int:
        asked = predicates[:: max(1, size // 2_000)]  # the rest would cost the same
        for predicate in asked:
            predicate._select(few)
        return max(1, CHANGES * len(asked) // size)

    found = compare(
        f"matching, {size} predicates, {CHANGES} changes a block, {expected} matches",
        "changes/CPU-s",
        [
            Variant("a no-op call for each change", lambda: timed(loop)),
            Variant(_INDEX, lambda: timed(indexed)),
            Variant(_FILTERS, lambda: timed(filtered)),
        ],
        sizes=f"B={CHANGES}, P={size}",
    )
    micro = 1e6 / found[1].rate
    found.note(f"{micro:.2f} us a change, {expected / CHANGES:.2f} matches a change")
    found.reach(_INDEX, ">=", 1e6 / (0.6 + 0.07 * expected / CHANGES))
    if SIZES[size]:
        found.reach(_INDEX, ">=", SIZES[size], _FILTERS)
    print()
    return found


def conditions(size: int) -> Table:
    """Equality conditions on a field of the body: a lookup after one parse, against each predicate alone."""
    predicates = [Predicate(Criteria.of(valued(number))) for number in range(size)]
    index = MatchingIndex((predicate, predicate) for predicate in predicates)
    one = block()

    def indexed() -> int:
        found = index.match(one)
        assert len(found) == min(size, CHANGES // 10)
        return CHANGES

    def filtered() -> int:
        few = block()
        for predicate in predicates[::20]:  # the rest would cost the same
            predicate._select(few)
        return CHANGES // 20

    return compare(
        f"conditions, {size} equalities, {CHANGES} changes a block",
        "changes/s",
        [
            Variant("a filter for each predicate, parsing shared", lambda: timed(filtered)),
            Variant("the matching index", lambda: timed(indexed)),
        ],
    )


def growing() -> Table:
    """Adding predicates: the first and the last tenth are compared, since the cost of one must not grow."""
    index: MatchingIndex[int] = MatchingIndex()
    predicates = [Predicate(Criteria.of(wish(number))) for number in range(GROWN)]
    spans = []
    tenth = GROWN // 10
    for start in range(0, GROWN, tenth):
        began = process_time()
        for number in range(start, start + tenth):
            index.add(predicates[number], number)
        spans.append(tenth / max(process_time() - began, 1e-9))
    first, last = f"the first {tenth:,}", f"the last {tenth:,}"
    found = Table(
        "subscribing, predicates put into an index",
        "predicates/CPU-s",
        {first: [spans[0]], last: [spans[-1]]},
        sizes=f"P={GROWN}",
    ).show()
    found.reach(last, ">=", 0.8, first)
    print()
    return found

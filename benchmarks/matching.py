"""Finding which of many predicates a block concerns, against a no-op call a change and against asking each predicate."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import process_time

from benchmarks.harness import Figure, Variant, compare
from publishers import Criteria, Criterion, Where
from publishers.block import Block
from publishers.criteria.index import MatchingIndex
from publishers.criteria.matching import Predicate
from publishers.mutations.mutation import columns_of, upsert

CHANGES = 1000
TARGET = "to reach: at most 0.6 us a change and 0.07 us a match; {} a filter per predicate"
SIZES = {100: "any", 1_000: "100x", 10_000: "1,000x", 100_000: "1,000x"}
_versions = count(1)


def timed(work: Callable[[], int]) -> tuple[int, float]:
    """Units done by ``work``, and the seconds of this process that it took: nothing here waits for anything."""
    began = process_time()
    done = work()
    return done, process_time() - began


def block() -> Block:
    """A thousand orders with keys of their own; made anew, since what was found in a block is kept with it."""
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
    """Keys, types, globs, patterns and changed fields in turn; of the first three hundred some match."""
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
    """A customer each, a tenth of whom have an order in the block."""
    return Criterion(entity_types={"order"}, where=Where("customer", "==", number * 10))


def run(_directory: Path) -> dict[str, list[Figure]]:
    """1 to 100,000 predicates, a thousand changes in a block."""
    tables = {f"matching {size}": table(size) for size in SIZES}
    tables["matching conditions"] = conditions(1_000)
    tables["subscribing"] = growing()
    return tables


def table(size: int) -> list[Figure]:
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
        for _ in range(3):
            found = sum(len(indices) for _, indices in index.match(one))
        assert found == expected
        return 3 * CHANGES

    def filtered() -> int:
        asked = predicates[:: max(1, size // 2_000)]  # the rest would cost the same
        for predicate in asked:
            predicate._select(few)
        return max(1, CHANGES * len(asked) // size)

    figures = compare(
        f"matching, {size} predicates, {CHANGES} changes a block, {expected} matches",
        "changes/s",
        [
            Variant("a no-op call for each change", lambda: timed(loop)),
            Variant("the matching index", lambda: timed(indexed)),
            Variant("a filter for each predicate", lambda: timed(filtered)),
        ],
        rounds=5,
    )
    micro = 1e6 / figures[1].rate
    print(f"  {micro:.2f} us a change, {expected / CHANGES:.2f} matches a change,", end=" ")
    print(f"{figures[1].rate / figures[2].rate:,.0f}x a filter per predicate")
    print(" ", TARGET.format(SIZES[size]), end="\n\n")
    return figures


def conditions(size: int) -> list[Figure]:
    """Equalities on a field of the body: parsed once, looked up, against each predicate alone."""
    predicates = [Predicate(Criteria.of(valued(number))) for number in range(size)]
    index = MatchingIndex((predicate, predicate) for predicate in predicates)
    one = block()

    def indexed() -> int:
        found = index.match(one)
        assert len(found) == CHANGES // 10
        return CHANGES

    def filtered() -> int:
        few = block()
        for predicate in predicates[::20]:
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


def growing() -> list[Figure]:
    """Putting 100,000 predicates in, the first and the last tenth compared: the cost of one must not grow."""
    index: MatchingIndex[int] = MatchingIndex()
    predicates = [Predicate(Criteria.of(wish(number))) for number in range(100_000)]
    spans = []
    for start in range(0, 100_000, 10_000):
        began = process_time()
        for number in range(start, start + 10_000):
            index.add(predicates[number], number)
        spans.append(10_000 / (process_time() - began))
    print("subscribing, predicates put into an index (predicates/s)")
    figures = [
        Figure("the first 10,000", spans[0], 1.0),
        Figure("the last 10,000", spans[-1], spans[-1] / spans[0]),
    ]
    for figure in figures:
        print(f"  {figure.variant:<44} {figure.rate:>14,.0f} {figure.ratio:>8.2f}x")
    print("  to reach: the last ones cost what the first ones cost", end="\n\n")
    return figures

"""Every order of the steps of a small log keeps the invariants, and no mistake in the table of states goes unnoticed.

The invariants are those of `tests.model.world` and `tests.model.invariants`: nothing lost, repeated or out of order, nothing above
the watermark or the demand; a LIVE cursor is in the ring, which covers its place; a cursor belongs to the drain or to the replayer;
whoever has demand for what is visible is woken; ENDED is final, and pins nothing.
"""

from collections.abc import Callable, Iterable

import pytest

from publishers.fanout import ring
from publishers.fanout.bench import Bench
from publishers.fanout.ring import Ring
from publishers.fanout.state import SUBSCRIPTIONS, Occurrence, Phase, PhaseAction, PhaseRow
from publishers.model.transitions import TransitionRow, TransitionTable
from tests.harness.constants import set_constant
from tests.harness.scale import SCALE
from tests.model.cursors import Owner
from tests.model.explorer import Fault, explore
from tests.model.world import Plan

MOST = 100_000 if SCALE > 1 else 2_000
"""States of one plan that are looked at, the nearest first; the plans that are called small have fewer."""

SMALL = [
    Plan(1, 0, "mm", (1,), ("1",)),
    Plan(1, 0, "mm", (1,), ("9p",), grouped=True),
    Plan(2, 0, "mmm", (1,), ("11c",), grouped=True),
    Plan(1, 1, "l", (2,), ("9c",)),
    Plan(1, 1, "fl", (1,), ("9",)),
    Plan(1, 2, "ml", (1,), ("9",), kept=True),
    Plan(2, 2, "mm", (1,), ("1s",)),
    Plan(1, 1, "mf", (1,), ("9p",)),
    Plan(1, 1, "lf", (1,), ("9",), kept=True),
    Plan(2, 1, "m", (2,), ("9sc",)),
    Plan(1, 1, "lm", (1,), ("9",)),
    Plan(2, 1, "m", (1,), ("9pec",)),
    Plan(2, 1, "mm", (2, 2), ("9", "9"), grouped=True),
    Plan(1, 0, "mm", (1, 1), ("9k", "9k"), looped=True),
    Plan(2, 2, "df", (3,), ("9",)),
    Plan(1, 1, "mf", (1, 2), ("9", "1")),
    Plan(1, 1, "mm", (1,), ("9",), prunes=2, jumps=True),
    Plan(1, 1, "l", (1,), ("9s",)),
    Plan(2, 2, "lf", (3,), ("9pr",)),
    Plan(3, 1, "mmm", (1, 2), ("9", "1")),
    Plan(1, 2, "mm", (1,), ("19",), prunes=2),
    Plan(2, 2, "ml", (1,), ("9pr",)),
]
LARGE = [
    Plan(1, 1, "lf", (1, 2), ("9", "1s")),
    Plan(1, 1, "mlm", (1, 2), ("9", "9")),
    Plan(1, 2, "mm", (1,), ("19",), prunes=2, jumps=True),
    Plan(1, 1, "llf", (1,), ("9pc",)),
    Plan(1, 1, "mm", (1, 1), ("9pr", "9")),
    Plan(2, 1, "mm", (1, 2), ("9", "1ps")),
    Plan(2, 2, "mm", (1, 3), ("9c", "1")),
    Plan(1, 1, "mm", (1, 2), ("9", "9pr"), grouped=True),
    Plan(2, 0, "mmm", (1, 1), ("9c", "1s"), grouped=True),
    Plan(2, 0, "mmm", (1, 1), ("9k", "9c"), looped=True),
    Plan(2, 2, "dma", (1,), ("9p",)),
    Plan(2, 1, "dfa", (1, 2), ("9", "9")),
    Plan(3, 2, "mfm", (1, 2), ("1s", "9e")),
    Plan(3, 1, "mmlm", (1, 2), ("9", "1"), prunes=1, jumps=True),
]


@pytest.mark.parametrize("plan", SMALL, ids=str)
def test_every_order_of_a_few_steps_keeps_the_invariants(plan):
    """Invariants 2, 3, 6, 7, 8 and 9."""
    states = explore(plan)
    assert 50 < states < 5_000


@pytest.mark.parametrize("plan", LARGE, ids=str)
def test_orders_of_many_steps_keep_the_invariants(plan):
    """The same; a commit tries the nearest states, ``make prove`` far more."""
    assert explore(plan, MOST) >= 2_000


def test_every_row_of_the_table_is_taken(monkeypatch):
    """A row that no order reaches would not be proved by any of them."""
    taken = set()

    class Noting(TransitionTable):
        def row(self, *given):
            row = super().row(*given)
            taken.add(row)
            return row

    set_constant(monkeypatch, ring, "SUBSCRIPTIONS", Noting(SUBSCRIPTIONS.rows))
    explore_all()
    assert set(SUBSCRIPTIONS.rows) - taken == set()


# Mutants of the table.

Change = Callable[[PhaseRow], PhaseRow | None]


def row(
    phase: Phase, event: Occurrence, change: Change, *, first: bool = True
) -> Callable[[], list[PhaseRow]]:
    """The table with one row changed, or left out: the first or the last one of this event."""

    def mutated() -> list[PhaseRow]:
        found = SUBSCRIPTIONS.of(phase, event)[0 if first else -1]
        return [
            one
            for one in (change(one) if one is found else one for one in SUBSCRIPTIONS.rows)
            if one is not None
        ]

    return mutated


def to(phase: Phase) -> Change:
    return lambda one: one._replace(to=phase)


def without(action: PhaseAction) -> Change:
    return lambda one: one._replace(then=tuple(other for other in one.then if other is not action))


def unguarded(one: PhaseRow) -> PhaseRow:
    return one._replace(when=())


def left_out(_: PhaseRow) -> None:
    return None


P, E, A = Phase, Occurrence, PhaseAction
MUTANTS = {
    "LIVE in a ring that does not cover it": row(P.RESYNC, E.ENTER, unguarded),
    "LIVE behind a void join": row(P.JOINING, E.ENTER, unguarded, first=False),
    "a join where the ring covers nothing": row(P.JOINING, E.JOIN, unguarded),
    "a pause forgotten at the end of a slice": row(P.JOINING, E.REST, left_out),
    "a pause forgotten on becoming LIVE": row(P.JOINING, E.ENTER, left_out),
    "resumed as LIVE in a ring that has moved on": row(P.PAUSED, E.RESUME, unguarded),
    "an eviction that leaves it LIVE": row(P.LIVE, E.EVICT, to(P.LIVE)),
    "a slice that ends in WAITING": row(P.JOINING, E.REST, to(P.WAITING), first=False),
    "parked as LIVE": row(P.JOINING, E.PARK, to(P.LIVE), first=False),
    "read while WAITING": row(P.WAITING, E.ADVANCE, to(P.WAITING)),
    "the cursor handed over before the slice ends": row(P.JOINING, E.YIELD, to(P.RESYNC)),
    "a seek that leaves the pause": row(P.PAUSED, E.SEEK, to(P.RESYNC)),
    "no turn at the replayer": row(P.RESYNC, E.READ, without(A.ENLIST)),
    "not listed for the next advance": row(P.JOINING, E.PARK, without(A.LIST), first=False),
    "no signal after it was listed": row(P.JOINING, E.PARK, without(A.SIGNAL), first=False),
    "no signal at the end of a slice": row(P.JOINING, E.REST, without(A.SIGNAL), first=False),
    "no signal on becoming LIVE": row(P.JOINING, E.ENTER, without(A.SIGNAL), first=False),
    "no signal on resuming": row(P.PAUSED, E.RESUME, without(A.SIGNAL), first=False),
    "a void join that keeps its place": row(P.JOINING, E.EVICT, without(A.LIFT)),
    "a place in the ring between two slices": row(P.JOINING, E.YIELD, without(A.LIFT)),
    "a seek that stays where it was": row(P.LIVE, E.SEEK, without(A.GO)),
    "a seek that keeps its place in the ring": row(P.LIVE, E.SEEK, without(A.LIFT)),
    "ended in the ring": row(P.LIVE, E.END, without(A.LIFT)),
    "ended while it waits, and not told": row(P.WAITING, E.END, left_out),
    "read on after the end": lambda: [
        *SUBSCRIPTIONS.rows,
        TransitionRow(P.ENDED, E.ENTER, (), P.LIVE, (A.STAND,)),
    ],
}


def explore_all() -> None:
    for plan in SMALL:
        explore(plan)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_in_the_table_is_noticed(name, monkeypatch):
    mutant: Iterable[PhaseRow] = MUTANTS[name]()
    assert tuple(mutant) != SUBSCRIPTIONS.rows
    set_constant(monkeypatch, ring, "SUBSCRIPTIONS", TransitionTable(mutant))
    with pytest.raises(Fault):
        explore_all()


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        (Bench, "leave", lambda *_: False),
        (Ring, "_unseat", lambda *_: None),
        (Ring, "_unfit", lambda *_: []),
        (Ring, "recall", lambda *_: False),
        (Owner, "_run", lambda *_: None),
    ],
    ids=[
        "given back in a round",
        "moved with those it has left",
        "served without demand",
        "never given back",
        "not woken behind a checkpoint between two turns of a round",
    ],
)
def test_a_mistake_about_the_flags_that_a_group_keeps_is_noticed(kind, name, wrong, monkeypatch):
    monkeypatch.setattr(kind, name, wrong)
    with pytest.raises(Fault):
        explore_all()

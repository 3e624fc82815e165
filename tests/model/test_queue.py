"""Commits of every kind that meet in one queue keep its promises, whatever the order of their steps.

The promises are those of `tests.model.queue_world`: one leader at a time; each entry in one group, and answered once, with its own
version; no successor of a refused entry is written; nothing withheld is published; no thread waits for ever; after the close all
is answered.
"""

from collections.abc import Callable, Iterable

import pytest

from publishers.commits import queue
from publishers.commits.leadership import ROWS, TABLE, LeadershipEvent, LeadershipRow, indexed
from publishers.commits.leadership import Leadership as S
from publishers.commits.queue import CommitQueue
from tests.harness.scale import LONG
from tests.model.explorer import Fault
from tests.model.queue_plans import LARGE, plans, try_all
from tests.model.schedules import search, wander
from tests.mutants.patching import Mutant

E = LeadershipEvent

MOST = 100_000 if LONG else 60
"""States of one plan that are looked at."""
SEEDS = 250_000 if LONG else 400
"""Random schedules of a large plan."""


@pytest.mark.parametrize("first", range(0, len(plans()), 30))
def test_every_order_of_each_three_keeps_the_promises(first):
    """F191; a commit looks at the states that come first, ``make prove`` at all."""
    for plan in plans()[first : first + 30]:
        search(plan, MOST)


@pytest.mark.parametrize("plan", LARGE, ids=str)
def test_random_orders_of_all_at_once_keep_the_promises(plan):
    """F191; ``make prove`` tries a million."""
    for seed in range(SEEDS):
        wander(plan, seed)


def test_every_row_of_the_table_is_taken(monkeypatch):
    taken = set()
    move = CommitQueue._move

    def noted(one, event):
        rows = ROWS.get((one.state, event), ())
        taken.update([row for row in rows if all(map(one._holds, row.when))][:1])
        return move(one, event)

    monkeypatch.setattr(CommitQueue, "_move", noted)
    inlined = {*ROWS[S.FREE, E.SKIP], ROWS[S.LEADING, E.YIELD][-1]}
    tries = try_all()
    while set(TABLE) - inlined - taken:
        assert next(tries, "all were tried") is None


# Mutants.

Rows = Iterable[LeadershipRow]


def row(
    state: S, event: E, change: Callable[[LeadershipRow], LeadershipRow | None], at: int = 0
) -> Callable[[], Rows]:
    """The table with one row changed, or left out: the one of this event at an index."""

    def mutated() -> Rows:
        found = indexed(TABLE)[state, event][at]
        return [one for one in (change(one) if one is found else one for one in TABLE) if one is not None]

    return mutated


def to(state: S) -> Callable[[LeadershipRow], LeadershipRow]:
    return lambda one: one._replace(to=state)


def unguarded(one: LeadershipRow) -> LeadershipRow:
    return one._replace(when=())


def left_out(_: LeadershipRow) -> None:
    return None


def added(state: S, event: E, to: S) -> Callable[[], Rows]:
    return lambda: [LeadershipRow(state, event, (), to), *TABLE]


TABLES = {
    "free while commits wait, as the group was written": row(S.LEADING, E.YIELD, left_out),
    "free while commits wait, as the group was published": row(S.LEADING, E.END, left_out, 1),
    "free while commits wait, as the leader left": row(S.APPOINTED, E.QUIT, left_out),
    "free while commits wait, as the threads are back": row(S.RETURNING, E.BACK, left_out),
    "a leader that left, and still leads": row(S.APPOINTED, E.QUIT, to(S.APPOINTED), 1),
    "a leadership that never ends": row(S.LEADING, E.END, left_out, 2),
    "threads are waited for that are not away": row(S.LEADING, E.END, unguarded),
    "nobody is appointed behind threads that came back": row(S.RETURNING, E.BACK, to(S.RETURNING)),
    "appointed while another one writes": added(S.LEADING, E.ENTER, S.APPOINTED),
    "appointed twice": added(S.APPOINTED, E.ENTER, S.APPOINTED),
}

QUEUE = "publishers.commits.queue:CommitQueue."
CODE = [
    Mutant(
        "a leader is started twice",
        QUEUE + "_move",
        "first.appoint()",
        "first.appoint(); first.appoint()",
        (),
    ),
    Mutant(
        "one that was not appointed begins",
        QUEUE + "begin",
        "if self.leader is not leader or not self._move(LeadershipEvent.BEGIN):",
        "self._move(LeadershipEvent.BEGIN)\n        if False:",
        (),
        besides=(
            Mutant(
                "a leader is started twice",
                QUEUE + "_move",
                "first.appoint()",
                "first.appoint(); first.appoint()",
                (),
            ),
        ),
    ),
    Mutant(
        "two skip the queue at once",
        QUEUE + "skip",
        "self.state is not _FREE",
        "self.leader is self",
        (),
    ),
    Mutant("one skips the queue, and nobody knows", QUEUE + "skip", "self.leader = transaction", "pass", ()),
    Mutant("leadership passed on twice", QUEUE + "pass_on", "self.leader is leader and ", "", ()),
    Mutant("another one's leadership ended", QUEUE + "end", "if self.leader is leader:", "if True:", ()),
    Mutant("no look outside as a group begins", QUEUE + "begin", "self._call_in()", "pass", ()),
    Mutant("the bytes of one that left", QUEUE + "leave", "self._bytes -= pending.size", "pass", ()),
    Mutant("a thread that left is waited for", QUEUE + "leave", "self._returned(pending)", "pass", ()),
    Mutant("withheld, and not deferring", QUEUE + "enter", "self.deferring = True", "pass", ()),
    Mutant("admitted after the close", QUEUE + "enter", "raise LogClosed", "pass", ()),
]


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_in_the_table_of_leadership_is_noticed(name, monkeypatch):
    """F191."""
    mutant = list(TABLES[name]())
    assert mutant != list(TABLE)
    monkeypatch.setattr(queue, "ROWS", indexed(mutant))
    # The table alone decides here: `enter` saves the look-up where there is no row.
    looked_up = Mutant("", QUEUE + "enter", "if self.state is _FREE:", "if self.state is not _RETURNING:", ())
    with looked_up.living(), pytest.raises(Fault):
        list(try_all())


@pytest.mark.parametrize("mutant", CODE, ids=lambda one: one.name)
def test_a_mistake_in_the_queue_is_noticed(mutant):
    """F191; the first of them is how two commits came to lead at once."""
    with mutant.living(), pytest.raises(Fault):
        list(try_all())

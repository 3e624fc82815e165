"""Commits of every kind that meet in one queue keep its promises, whatever the order of their steps.

The promises are those of `tests.model.queue_invariants`: one leader at a time; each entry in one group, and answered once, with its own
version; no successor of a refused entry is written; nothing withheld is published; no thread waits for ever; after the close all
is answered.
"""

import pytest

from publishers.commits import queue
from publishers.commits.leadership import LEADERSHIP, Leadership, LeadershipEvent
from publishers.model.transitions import TransitionTable
from tests.harness.constants import set_constant
from tests.harness.scale import LONG
from tests.model.queue_plans import LARGE, plans, try_all
from tests.model.schedules import search, wander

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

    class Noting(TransitionTable):
        def row(self, *given):
            row = super().row(*given)
            taken.add(row)
            return row

    set_constant(monkeypatch, queue, "LEADERSHIP", Noting(LEADERSHIP.rows))
    inlined = {
        *LEADERSHIP.of(Leadership.FREE, LeadershipEvent.SKIP),
        LEADERSHIP.of(Leadership.LEADING, LeadershipEvent.YIELD)[-1],
    }
    tries = try_all()
    while set(LEADERSHIP.rows) - inlined - taken:
        assert next(tries, "all were tried") is None

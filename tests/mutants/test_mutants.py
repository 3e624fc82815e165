"""T6: is the harness sharp? Every mistake that was planted in our own code is noticed, and by whom and how soon is told.

Per commit it is every second of a selection; with ``PENSTOCK_TEST_SCALE`` above 1 it is all of them.
"""

import logging
import sys

import pytest

from tests.harness.scale import LONG, scaled
from tests.mutants.bounding import BOUNDS
from tests.mutants.grouping import GROUP_MACHINES
from tests.mutants.hunting import KILLERS, hunt, rate
from tests.mutants.listing import MUTANTS, SELECTION
from tests.mutants.patching import Mutant, Stale

NAMES = list(MUTANTS) if LONG else SELECTION[::2]
ITSELF = {"machine", *GROUP_MACHINES}
"""State machines that are tests themselves, and run there without a mutant in each commit's run."""


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_does_not_survive(name, capsys):
    """T6."""
    killer, survived = hunt(MUTANTS[name])
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: noticed by {killer} after {survived} seeds\n")


@pytest.mark.parametrize(("name", "least"), [("no sync", 0.6), ("no directory sync", 0.6)])
def test_the_gravest_mutants_are_noticed_by_most_lives(name, least):
    """T6, F44: 94 and 77 percent are what the plan expects of lives that all end in a power cut; some of ours do not."""
    assert rate(MUTANTS[name], "T1", 60) >= least


@pytest.mark.parametrize("killer", [one for one in KILLERS if LONG or one not in ITSELF])
def test_who_is_no_mutant_survives(killer):
    """T6: else everything would be noticed."""
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(
            {
                **dict.fromkeys(ITSELF, 1),
                "world": scaled(12),
                "detaching": scaled(4),
                **dict.fromkeys(BOUNDS, 2),
            }.get(killer, scaled(40))
        ):
            KILLERS[killer](seed)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_gone_after_its_life(mutant):
    before = mutant._function().__code__
    with mutant.living():
        assert mutant._function().__code__ is not before
    assert mutant._function().__code__ is before


def test_a_mutant_of_code_that_has_moved_on_is_told():
    mutant = Mutant("none", "publishers.wal.recover.truncate:truncate", "no such text", "", ("T1",))
    with pytest.raises(Stale, match="0 times"), mutant.living():
        pass


def test_the_plan_is_kept():
    """T6: thirty mutants at least, fifteen of them per commit."""
    assert len(MUTANTS) >= 30
    assert len(SELECTION) == len(set(SELECTION)) >= 2 * 15
    assert set(SELECTION) <= set(MUTANTS)

"""The list of what is withheld, beside a plain model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.commits.withheld import Withheld
from publishers.fanout.publish_gate import Published


def published(version, *, spooled=False):
    return Published(version, 2, None if spooled else list)


def filled(hidden, newest, *, max_bytes=10**6):
    """Versions from the first hidden one up to ``newest`` are withheld."""
    withheld = Withheld(max_bytes, min(hidden) - 1, min(hidden) - 1)
    for version in range(min(hidden), newest + 1):
        if version in hidden:
            withheld.hide(version)
        withheld.keep(published(version), 100)
    return withheld


def test_nothing_is_withheld_at_first():
    withheld = Withheld(1000, 7, 7)
    assert withheld.first is None
    assert withheld.nbytes == 0


def test_after_an_opening_every_version_waits_for_its_own_turn():
    """F28, invariant 2: the log does not store who was committed with ``visible=False``."""
    withheld = Withheld(1000, 4, 9)
    assert withheld.first == 5
    assert withheld.reach(6, 9) == 6
    assert withheld.take(6) == [Published(6, 0, None)]
    assert withheld.first == 7
    assert withheld.take(9) == [Published(9, 0, None)]
    assert withheld.first is None


def test_what_goes_beyond_the_bound_is_remembered_as_a_version():
    """Invariants 2 and 12: rings restart behind it."""
    withheld = filled({3}, 12, max_bytes=1500)
    assert withheld.nbytes <= 1500
    shown = withheld.take(12)
    assert shown[0].blocks is None
    assert [one.version for one in shown[1:]] == list(range(shown[0].version + 1, 13))
    assert sum(one.size for one in shown) == 20
    assert withheld.nbytes == 0


def test_a_spooled_transaction_makes_those_before_it_useless():
    withheld = filled({1}, 2)
    withheld.keep(published(3, spooled=True), 0)
    withheld.keep(published(4), 100)
    assert [(one.version, one.size, one.blocks is None) for one in withheld.take(4)] == [
        (3, 6, True),
        (4, 2, False),
    ]


def test_runs_of_hidden_versions_are_bounded_as_well():
    """Invariant 12: beyond the bound, ordinary versions between two hidden ones count as hidden."""
    withheld = filled(set(range(1, 1000, 2)), 1000, max_bytes=2000)
    assert len(withheld._hidden) == 64
    assert withheld.reach(999, 1000) == 1000
    assert withheld.reach(1, 1000) == 2
    assert withheld.reach(600, 1000) == 600


@pytest.mark.parametrize("max_bytes", [0, 300, 5000])
def test_ordinary_versions_between_hidden_ones_are_shown_however_little_is_kept(max_bytes):
    """F28: with what was committed before them, up to the next hidden one."""
    withheld = filled({1, 2, 3, 5, 7, 8}, 8, max_bytes=max_bytes)
    assert [withheld.reach(version, 8) for version in (3, 5, 7, 8)] == [4, 6, 7, 8]


@given(
    st.sets(st.integers(1, 30), min_size=1),
    st.lists(st.tuples(st.booleans(), st.integers(0, 32))),
    st.integers(0, 9000),
)
def test_it_agrees_with_a_list(hidden, actions, max_bytes):
    """F28, E20, invariant 2."""
    first, newest = min(hidden), 30
    withheld = filled(hidden, newest, max_bytes=10**6)
    withheld._max_bytes = max_bytes
    hidden = sorted(hidden)
    for shows, wanted in actions:
        if withheld.first is None:
            break
        version = min(max(wanted, first - 1), newest)
        if shows:
            reach = withheld.reach(version, newest)
            assert reach == min([one - 1 for one in hidden if one > version], default=newest)
            shown = [one.version for one in withheld.take(reach)]
            assert shown == list(range(first, reach + 1))
            first = max(first, reach + 1)
            hidden = [one for one in hidden if one > reach]
        else:
            withheld.forget_after(version)
            newest = version
            hidden = [one for one in hidden if one <= version]
        assert withheld.first == (hidden[0] if hidden else None)
        assert [one.version for one, _ in withheld._kept] == (
            list(range(first, newest + 1)) if hidden else []
        )
        assert withheld.nbytes == sum(weight for _, weight in withheld._kept)


def test_changes_of_which_some_were_not_counted_are_not_counted():
    """E64: those before the opening, and those of which a part was shown already, have no number."""
    reopened = Withheld(0, 2, 5)
    reopened.hide(6)
    reopened.keep(Published(6, 3, None), 100)
    assert reopened.take(6) == [Published(6, 0, None)]
    apart = Withheld(0, 2, 2)
    for version in (3, 4):
        apart.hide(version)
        apart.keep(Published(version, 3, None), 100)
    assert apart.take(3) == [Published(3, 0, None)]
    assert apart.take(4) == [Published(4, 0, None)]

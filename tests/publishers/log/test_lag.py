"""How far all subscriptions are behind together, and how soon retention passes the slowest."""

from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from flow.clock import SYSTEM_CLOCK
from publishers import ChangeLog, Criterion, Position
from publishers.fanout.bench import RingCursor
from publishers.fanout.gating import Gating
from publishers.fanout.state import SubscriptionLag
from publishers.log.lag import QUANTILES, Expiry
from tests.harness.scale import scaled
from tests.publishers.support import Probe, fill, opened


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.us = 1_000_000_000_000_000

    def monotonic(self) -> float:
        return self.us / 1e6

    def now_us(self) -> int:
        return self.us


def lag_of(log):
    return log.statistics(lag=True).lag


def test_a_log_without_subscriptions_lags_nowhere(log):
    fill(log, 2)
    assert log.statistics().lag is None
    told = lag_of(log)
    assert set(told.quantiles) == set(QUANTILES)
    assert set(told.quantiles.values()) == {SubscriptionLag(0, 0, 0, 0.0)}


def test_the_slowest_of_many_is_told_and_the_median_is_not_disturbed_by_it():
    """E64, F135: stalled ones beside others that have everything."""
    with opened() as log:
        for _ in range(9):
            log.changes().subscribe(Probe(first=1_000_000), executor=flow.INLINE)
        stalled = Probe()
        log.changes().subscribe(stalled, executor=flow.INLINE)
        fill(log, 5, 3)
        told = lag_of(log).quantiles
        assert told[0.5] == SubscriptionLag(0, 0, 0, 0.0)
        assert (told[1.0].versions, told[1.0].changes) == (5, 20)
        assert told[1.0].nbytes > 0
        assert told[1.0].seconds >= 0.0
        assert told[1.0].changes == stalled.subscription.lag


def test_one_that_wants_nothing_of_what_was_committed_does_not_lag():
    """F70: its place is moved over versions in which nothing matches, whether others of its publisher are behind or not."""
    with opened() as log:
        for first in (0, 1):
            log.changes(Criterion(keys={"1"})).subscribe(Probe(first=first), executor=flow.INLINE)
        fill(log, 1, 2)
        fill(log, 7, 1)
        told = lag_of(log).quantiles
        assert (told[0.5].versions, told[1.0].versions) == (0, 8)


@settings(max_examples=scaled(30), deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(1, 12))
def test_quantiles_equal_a_model(taken, versions):
    """F135: such a share of the subscriptions is at most so far behind."""
    with opened() as log:
        for number in taken:
            log.changes().subscribe(Probe(first=2 * number), executor=flow.INLINE)
        fill(log, versions)
        behind = sorted(max(0, versions - number) for number in taken)
        told = lag_of(log).quantiles
        for share in QUANTILES:
            found = told[share].versions
            assert sum(one <= found for one in behind) >= share * len(behind) - 1e-9
            assert found in behind
        assert told[1.0].versions == behind[-1]


def test_what_is_not_remembered_is_told_as_what_is_sure(tmp_path):
    """F135: a subscription that reads what was written before the log was opened is not told as one without a lag."""
    with ChangeLog.open(tmp_path / "shop") as log:
        fill(log, 3)
    with ChangeLog.open(tmp_path / "shop") as log:
        probe = Probe()
        log.changes(since="earliest").subscribe(probe, executor=flow.INLINE)
        assert probe.subscription.behind.changes is None
        slowest = lag_of(log).quantiles[1.0]
        assert (slowest.versions, slowest.changes, slowest.nbytes) == (3, 3, 0)
        fill(log, 2, 4)
        slowest = lag_of(log).quantiles[1.0]
        assert (slowest.versions, slowest.changes) == (5, 10)
        assert slowest.nbytes > 0
        assert slowest.seconds >= 0.0


def test_what_is_known_is_told_as_it_is():
    known = SubscriptionLag(1, 2, 3, 4.0)
    assert Gating(0, SYSTEM_CLOCK, list).at_least(known) is known


def test_the_rate_is_that_of_the_last_minute():
    hands = Hands()
    gating = Gating(5, hands, list)
    assert gating.rate() is None
    gating.published(6, 1, 600, hands.us)
    assert gating.rate() == 600.0  # of a second at least
    hands.us += 10_000_000
    assert gating.rate() == 60.0
    hands.us += 50_000_001
    assert gating.rate() == 0.0
    gating.published(7, 1, 120, hands.us)
    assert gating.rate() == 2.0
    assert gating.published_in_all == (2, 720)
    gating.published(9, 0)
    assert gating.rate() is None


def test_time_and_bytes_are_told_until_retention_passes_the_slowest():
    """F135: by whichever bound comes first."""
    with opened(retain_bytes=1_000_000, retain_age=3_600.0) as log:
        assert lag_of(log).expiry.seconds <= 3_600.0
        log.changes().subscribe(Probe(), executor=flow.INLINE)
        fill(log, 3)
        told = lag_of(log).expiry
        assert told.nbytes == 1_000_000 - log.statistics().nbytes
        assert 100.0 < told.seconds < 3_600.0, "some hundred bytes a second are written"
    with opened(retain_bytes=None, retain_age=None) as log:
        fill(log, 1)
        assert lag_of(log).expiry == Expiry(None, None)


def test_the_first_hold_that_is_lost_is_told():
    """F47, F135."""
    with opened() as log:
        fill(log, 2)
        assert lag_of(log).hold_expiry == Expiry(None, None)
        for name, most in (("a", 10_000_000), ("b", 5_000_000)):
            log.hold(name, Position(1), keep_bytes=most)
        assert lag_of(log).hold_expiry == Expiry(5_000_000 - log.statistics().nbytes, None)


def test_who_follows_knows_of_no_bounds(log):
    with ChangeLog.open(log.path, read_only=True) as follower:
        fill(log, 1)
        told = lag_of(follower)
        assert (told.expiry, told.hold_expiry) == (Expiry(), Expiry())
        assert follower.statistics().nbytes is None
        assert follower.statistics().segments == 1


def test_commits_groups_and_syncs_are_counted(tmp_path):
    """F135: so that a group's size and a sync's time can be told."""
    with ChangeLog.open(tmp_path / "shop", sync="always") as log:
        before = log.statistics()
        fill(log, 4, 2)
        told = log.statistics()
        assert told.groups - before.groups == 4
        assert told.syncs - before.syncs == 4
        assert told.sync_seconds > before.sync_seconds
        assert told.published_changes == 12
        assert 0 < told.published_bytes <= told.nbytes
        assert told.segments == 1


def test_rings_are_told_together():
    """E63, F135: how full the fullest is, by whichever bound is nearer."""
    with opened(ring_events=8) as log:
        log.changes().subscribe(Probe(), executor=flow.INLINE)
        assert log.statistics().ring_fill == 0.0
        fill(log, 2)
        told = log.statistics()
        assert (told.ring_events, told.ring_fill) == (4, 0.5)
        assert told.ring_bytes > 0


def test_a_cursor_in_no_ring_is_not_idle():
    assert not RingCursor(Position(1)).idle

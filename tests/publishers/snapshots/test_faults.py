"""Snapshots whose end is cut off: what is held is let go."""

import pytest

from publishers import Content, Criterion
from publishers.snapshots import SnapshotEnd
from tests.publishers.snapshots.test_feed import STATED, Snapshotted, subscribed
from tests.publishers.support import fill, opened, wait_until


@pytest.fixture
def log():
    with opened(**STATED) as one:
        yield one


def holds(log):
    return [one.name for one in log.statistics().holds if one.name.startswith("snapshot")]


def test_a_feed_that_is_closed_behind_the_last_row_holds_nothing(log):
    fill(log, 1, 3)
    feed = log.changes(since="state", content=Content.BODY)

    class Closing(Snapshotted):
        def on_next(self, change, /):
            super().on_next(change)
            if len(self.changes) == 3:
                feed.close()

    probe = Closing(10**6)
    feed.subscribe(probe)
    wait_until(lambda: probe.error or probe.completed, lambda: probe.heard)
    wait_until(lambda: not holds(log), lambda: holds(log))


def test_a_subscriber_that_fails_at_the_end_of_the_rows_holds_nothing(log):
    fill(log, 1, 3)

    class Failing(Snapshotted):
        def on_snapshot(self, signal):
            super().on_snapshot(signal)
            if isinstance(signal, SnapshotEnd):
                raise ValueError("told")

    probe = Failing(10**6)
    log.changes(since="state", content=Content.BODY).subscribe(probe)
    wait_until(lambda: len(probe.signals) == 3)
    wait_until(lambda: not holds(log), lambda: holds(log))


def test_again_of_types_that_are_not_wanted_gives_no_rows(log):
    fill(log, 1, 3)
    probe = subscribed(log, Criterion(entity_types={"order"}))
    wait_until(lambda: len(probe.signals) == 3)
    probe.subscription.refresh(Criterion(entity_types={"other"}), after="1")
    wait_until(lambda: len(probe.signals) == 6 or probe.error, lambda: (probe.heard, probe.error))
    assert not probe.error

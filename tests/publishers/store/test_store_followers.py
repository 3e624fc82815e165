"""Stores that follow their owner."""

import pytest

from publishers.errors import (
    LogDropped,
    NoSuchLog,
)
from tests.harness.inside import catalog_of, files_of, service_of
from tests.publishers.store.test_store import follow, following, told
from tests.publishers.support import Probe, fill, wait_until


def test_a_follower_sees_logs_appear_change_their_names_and_disappear(store, place):
    """F50, E45: its subscribers go on under the new name, and end when the log is dropped."""
    log = store.create("orders")
    fill(log, 1)
    with following(place) as other:
        system = follow(other.system, since=other.system.oldest)
        probe = follow(other["orders"])
        fill(log, 1)
        probe.wait_for(2)
        store.create("users")
        wait_until(lambda: other.names() == ["orders", "users"])
        store.rename("orders", "sales")
        wait_until(lambda: other.names() == ["sales", "users"])
        fill(log, 1)
        probe.wait_for(4)
        assert other["sales"].name == "sales"
        store.drop("sales")
        probe.wait_for_end()
        assert isinstance(probe.error, LogDropped)
        assert probe.clean
        with pytest.raises(NoSuchLog):
            other.log("sales")
        system.wait_for(8)
        assert told(system)[1::2] == ["CREATED", "CREATED", "RENAMED", "DROPPED"]


def test_a_log_that_was_made_anew_under_an_old_name_is_another_one(store, place):
    """E13, E45: also for a follower that hears of both at once, and where the directory is the same."""
    fill(store.create("orders"), 3)
    with following(place) as other:
        old = other["orders"]
        probe = follow(old)
        with other._logs.lock:  # so that it takes the two together
            store.drop("orders")
            fill(store.create("orders"), 1)
            wait_until(lambda: other.system.head == store.system.head)
        wait_until(lambda: other["orders"] is not old)
        assert other["orders"].head.version == 2
        assert other["orders"].path == old.path
        probe.wait_for_end()
        assert isinstance(probe.error, LogDropped)
        assert not probe.changes


def test_a_follower_opens_what_appears_if_it_was_asked_to(store, place):
    store.create("orders")
    with following(place) as other:
        other.open_all()
        assert list(other.opened()) == ["orders"]
        with other._logs.lock:  # so that it hears of both at once
            store.create("user")
            store.rename("user", "users")
            wait_until(lambda: other.system.head == store.system.head)
        wait_until(lambda: list(other.opened()) == ["orders", "users"])
        store.drop("orders")
        wait_until(lambda: list(other.opened()) == ["users"])


def test_whoever_reads_a_log_while_its_files_go_hears_that_it_was_dropped(store, place):
    """E45: also if the reading fails before the news has come."""
    log = store.create("orders", ring_events=1)
    fill(log, 50)
    with following(place) as other:
        mine = other["orders"]
        other._logs.closed = True  # it is told of nothing any more
        probe = Probe()
        mine.changes(since=mine.oldest).subscribe(probe)
        store.drop("orders")
        service_of(mine).frames.clear()
        catalog_of(files_of(mine)).close()
        wait_until(lambda: probe.subscription is not None)
        probe.request(1)
        probe.wait_for_end()
        assert isinstance(probe.error, LogDropped)
        other._logs.closed = False

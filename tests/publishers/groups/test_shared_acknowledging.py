"""Acknowledging for whichever consumer has it, and being told instead of waiting: for clients that are not in the process."""

import threading

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, upsert


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        yield log


def commit(log, *keys):
    log.commit([upsert("order", key, {}) for key in keys])


def test_what_any_consumer_has_is_acknowledged_once(log):
    """F75: also what has no consumer any more; what was not delivered is passed over."""
    group = log.groups.create("g", since="earliest")
    commit(log, "a", "b", "c", "d")
    one, two = group.join("one"), group.join("two")
    first, second, third = one.read(1, wait=0)[0], two.read(1, wait=0)[0], two.read(1, wait=0)[0]
    two.leave()
    after = third.change.after
    assert group.ack(first.position, second.position, third.position, after) == 3
    assert group.ack(first.position, durable=True) == 0
    assert [one.change.key for one in group.join("three").read(wait=0)] == ["d"]


def test_a_delivery_of_before_a_restart_can_be_acknowledged_behind_it(tmp_path):
    """F75."""
    with ChangeLog.open(tmp_path / "kept") as log:
        group = log.groups.create("g", since="earliest")
        commit(log, "a", "b")
        first, second = (one.position for one in group.join("one").read(wait=0))
        group.book.flush()
    with ChangeLog.open(tmp_path / "kept") as log:
        group = log.groups.open("g")
        assert [one.position for one in group.join("one").read(1, wait=0)] == [first]
        assert group.ack(first, second) == 2
        assert group.join("one").read(wait=0) == []


def test_an_acknowledgement_of_all_needs_its_consumer(log):
    """F75."""
    group = log.groups.create("g", since="earliest", ack="all")
    commit(log, "a")
    (delivery,) = group.join("one").read(wait=0)
    with pytest.raises(InvalidOption, match="consumer"):
        group.ack(delivery.position)


def test_a_consumer_that_waits_on_no_thread_is_told(log):
    """F75: of a change, of what another gives back, and by when something is due; not when it has ended that."""
    group = log.groups.create("g", since="latest", ack_wait=1000.0)
    told = threading.Event()
    one, two = group.join("one"), group.join("two")
    due, end = one.watch(told.set)
    told.clear()
    commit(log, "a")
    assert told.wait(60)
    end()
    (delivery,) = two.read(wait=0)
    due, end = one.watch(told.set)
    assert due is not None
    assert 0 < due <= 1000
    told.clear()
    two.nack(delivery, 0.0)
    assert told.wait(60)
    end()
    told.clear()
    two.leave()
    assert not told.is_set()

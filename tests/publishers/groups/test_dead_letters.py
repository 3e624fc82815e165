"""Dead letters where something comes between, and groups that stop since too much fails."""

import json
import threading

import pytest

from publishers import ChangeLog, Criterion, upsert
from publishers.errors import LogClosed, LogFull, TransactionTooLarge
from publishers.groups.errors import GroupPaused
from publishers.groups.state import GroupState
from tests.publishers.support import QUICK, opened, order, scratch, wait_until
from tests.simulation.workload import Clock


@pytest.fixture
def log():
    with opened() as log:
        yield log


def keys(deliveries):
    return [int(one.change.key) for one in deliveries]


def test_deliveries_are_given_although_a_dead_letter_cannot_be_written(log, monkeypatch):
    group = log.groups.create("stock", since="earliest", max_deliver=1, breaker=False)
    log.commit([order(0)])
    member = group.join("one")
    assert keys(member.read(wait=0)) == [0]
    with group.book.lock:
        unit = next(iter(group.book.machine.units.values()))
        group.book.machine.nack(group.book.machine.consumers.listed()[0], unit.position, 0.0, count=False)
        unit.count = 1
    log.commit([order(1)])
    put = group.dead.put

    def full(*_):
        raise LogFull(None, 1)

    monkeypatch.setattr(group.dead, "put", full)
    assert keys(member.read(wait=0)) == [1]
    with pytest.raises(LogFull):
        member.read(wait=0)
    monkeypatch.setattr(group.dead, "put", put)
    assert member.read(wait=0) == []
    assert len(group.dead.inspect()) == 1


def test_a_tripped_group_is_tripped_after_a_restart():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest", max_deliver=1)
        log.commit([order(n) for n in range(101)])
        member = group.join("one")
        for one in member.read(101, wait=0):
            member.nack(one, 0.0)
        with pytest.raises(GroupPaused, match="half"):
            member.read(wait=0)
    with ChangeLog.open(path, **QUICK) as log:
        assert log.groups.info("stock").state.name == "TRIPPED"


class Small:
    """A log of dead letters with room for letters of some length."""

    def __init__(self, log, room):
        self._log = log
        self._room = room
        self.letters, self.close = log.letters, log.close

    def put(self, key, letter):
        size = len(json.dumps(letter["changes"]))
        if size > self._room:
            raise TransactionTooLarge("max_change_bytes", size, self._room)
        self._log.put(key, letter)


@pytest.mark.parametrize(
    ("room", "told"), [(1_000, ("1", True)), (300, ("1", False)), (100, None)], ids=["all", "bare", "none"]
)
def test_a_letter_that_is_too_large_leaves_out_what_the_log_has(log, room, told):
    group = log.groups.create("stock", Criterion(entity_types={"order"}), since="earliest", ack="transaction")
    open_log = group.dead._open
    group.dead._open = lambda: Small(open_log(), room)
    log.commit([upsert("order", "1", {"text": "x" * 400})])
    member = group.join("one")
    (one,) = member.read(wait=0)
    assert member.term(one.position, "bad")
    (letter,) = group.dead.inspect()
    found = [(each["key"], each["body"] is not None) for each in letter.changes]
    assert (letter.position, letter.last_error, found) == (one.position, "bad", [told] if told else [])
    assert group.info().floor == log.head


def test_dead_letters_are_opened_once(log):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0)])
    member = group.join("one")
    (one,) = member.read(wait=0)
    opens, open_log = [], group.dead._open
    other = threading.Thread(target=group.dead.inspect)

    def open_beside_another():
        opens.append(1)
        if len(opens) == 1:
            other.start()
        return open_log()

    group.dead._open = open_beside_another
    assert member.term(one, "bad")
    other.join()
    assert len(opens) == 1


def test_what_is_due_happens_although_no_consumer_reads():
    """F78, F81: time-outs, consumers that are gone, and dead letters, by the housekeeping alone."""
    clock = Clock()
    with opened(clock=clock) as log:
        group = log.groups.create("stock", since="earliest", consumer_ttl=60.0, ack_wait=30.0, max_deliver=2)
        log.commit([order(0)])
        member = group.join("one")
        (one,) = member.read(wait=0)
        clock.now += 31_000_000
        wait_until(lambda: group.info().due == 1, group.info)
        assert keys(member.read(wait=0)) == [0]
        clock.now += 31_000_000
        wait_until(lambda: group.info().dead == 1, group.info)
        (letter,) = group.dead.inspect()
        assert (letter.position, letter.last_error) == (one.position, "not acknowledged in time")
        assert group.info().floor == log.head
        clock.now += 61_000_000
        wait_until(lambda: group.info().consumers == (), group.info)


def test_a_dead_letter_that_the_housekeeping_cannot_write_is_tried_again(log, monkeypatch):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0)])
    member = group.join("one")
    (one,) = member.read(wait=0)
    put, refused = group.dead.put, []

    def full(*_):
        refused.append(1)
        raise LogFull(None, 1)

    monkeypatch.setattr(group.dead, "put", full)
    with pytest.raises(LogFull):
        member.term(one, "bad")
    wait_until(lambda: len(refused) > 1)
    monkeypatch.setattr(group.dead, "put", put)
    wait_until(lambda: group.info().dead == 1, group.info)


def test_a_group_that_is_tripped_by_timeouts_says_so_although_no_consumer_reads(caplog):
    """F81."""
    clock = Clock()
    with opened(clock=clock) as log:
        group = log.groups.create("stock", since="earliest", max_deliver=1, max_consumer_pending=1000)
        log.commit([order(n) for n in range(101)])
        group.join("one").read(101, wait=0)
        clock.now += 31_000_000
        wait_until(lambda: "more than half" in caplog.text)
        assert group.info().state is GroupState.TRIPPED


@pytest.mark.parametrize("ends", ["close", "drop"])
def test_dead_letters_are_not_opened_again_behind_the_end(ends):
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest")
        log.commit([order(0)])
        member = group.join("one")
        assert member.term(member.read(wait=0)[0], "bad")
        if ends == "drop":
            log.groups.drop("stock")
    with pytest.raises(LogClosed):
        group.dead.inspect()
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock") if ends == "drop" else log.groups.open("stock")
        assert len(group.dead.inspect()) == 1

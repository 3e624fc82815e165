"""Groups on a log: who gets what, what a restart finds, and what becomes of what nobody can handle."""

import threading
from collections import Counter

import pytest

from penstock_cdc.errors import InvalidOption, LogReadOnly
from publishers import ChangeLog, Criterion, Position, upsert
from publishers.groups import GroupTotals
from publishers.groups.errors import (
    ConsumerFenced,
    GroupCorrupted,
    GroupExists,
    GroupLost,
    GroupPaused,
    NoSuchGroup,
)
from publishers.groups.state import GroupState
from tests.harness.inside import house_step_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, opened, order, scratch, wait_until


@pytest.fixture
def log():
    with opened() as log:
        yield log


def keys(deliveries):
    return [int(one.change.key) for one in deliveries]


def test_each_change_goes_to_one_consumer_and_all_are_given(log):
    """F75, F76, F86."""
    group = log.groups.create("stock", Criterion(entity_types={"order"}), since="earliest")
    log.commit([order(n) for n in range(50)])
    one, two = group.join("one"), group.join("two")
    got = Counter()
    while found := one.read(3, wait=0) + two.read(4, wait=0):
        got.update(keys(found))
        assert all(one.change.body for one in found)
        mine = [each for each in found if each.generation == one.generation]
        assert one.ack(*mine) == len(mine)
        assert two.ack(*[each for each in found if each not in mine], durable=True) == len(found) - len(mine)
        assert one.ack(*mine) == 0
    assert got == Counter(range(50))
    told = log.groups.info("stock")
    assert (told.floor, told.acked, told.pending, told.consumers) == (log.head, 50, 0, ("one", "two"))
    assert told.lag.versions == 0
    assert list(log.groups) == ["stock"]
    assert "stock" in log.groups
    assert len(log.groups) == 1
    assert log.groups.statistics().listed == log.statistics().consumer_groups.listed == (told,)
    assert log.statistics(listed=0).consumer_groups == GroupTotals(1, 0, ())
    assert "stock" in repr(group)
    assert "one" in repr(one)


def test_mistakes_are_named(log):
    """F75: duplicate creation, unknown groups."""
    group = log.groups.create("stock")
    with pytest.raises(GroupExists, match="stock"):
        log.groups.create("stock")
    with pytest.raises(NoSuchGroup, match="it has stock"):
        log.groups.join("stick", "one")
    with pytest.raises(InvalidOption, match="name"):
        log.groups.create("Stock!")
    for name in ("", "two\nlines", "\x1b[2J", "\u202eb", "\ud800", "x" * 257):
        with pytest.raises(InvalidOption, match="consumer"):
            group.join(name)
    member = group.join("one")
    with pytest.raises(InvalidOption, match="place"):
        member.ack("3:1")
    with pytest.raises(InvalidOption, match="most"):
        member.read(0)
    log.groups.drop("stock")
    with pytest.raises(NoSuchGroup):
        member.read(wait=0)
    assert list(log.groups) == []
    assert log.groups.create("stock").info().generation == 0
    with ChangeLog.open(log.path, read_only=True) as follower, pytest.raises(LogReadOnly, match="groups"):
        _ = follower.groups


def test_what_was_acknowledged_durably_never_comes_again_and_everything_else_does():
    """F85, F84, F78: over a restart; the floor holds the history, and nothing beyond."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest", max_deliver=3)
        log.commit([order(n) for n in range(6)])
        member = group.join("one")
        found = member.read(4, wait=0)
        assert member.ack(found[0], found[2], durable=True) == 2
        assert [one.position for one in log.statistics().holds] == [found[1].position]
        assert group.pending().total == 2
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.open("stock")
        assert group.info().generation == 1
        member = group.join("one")
        again = member.read(wait=0)
        assert keys(again) == [1, 3, 4, 5]
        assert [one.count for one in again] == [2, 2, 1, 1]
        assert member.generation == 2
        member.ack(*again)
    with ChangeLog.open(path, **QUICK) as log:
        assert log.groups.info("stock").floor == log.head
        log.groups.seek("stock", "earliest")
        assert keys(log.groups.join("stock", "one").read(wait=0)) == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_handled_becomes_a_dead_letter(log):
    """F81, F163: inspect, replay, discard; over a restart too."""
    group = log.groups.create("stock", since="earliest", max_deliver=2, backoff=(0.0,))
    log.commit([order(n) for n in range(3)])
    member = group.join("one")
    while found := member.read(wait=0):
        for one in found:
            if one.change.key == "1":
                member.nack(one, error=f"attempt {one.count}")
            elif one.change.key == "2":
                assert member.term(one, "no such article")
            else:
                member.ack(one)
    letters = group.dead.inspect()
    assert [one.changes[0]["key"] for one in letters] == ["1", "2"]
    assert (letters[0].first_error, letters[0].last_error, letters[0].count) == ("attempt 1", "attempt 2", 2)
    assert letters[1].consumer == "one"
    assert log.position_of(letters[0].cursor) == letters[0].position
    assert group.info().dead == 2
    assert group.info().floor == log.head
    handled = []

    def handle(letter):
        if letter.last_error == "no such article":
            raise LookupError
        handled.append(letter.position)

    with pytest.raises(LookupError):
        group.dead.replay(handle)
    assert handled == [letters[0].position]
    log.close()
    with ChangeLog.open(log.path, **QUICK) as again:
        dead = again.groups.open("stock").dead
        assert dead.inspect() == [letters[1]]
        assert dead.discard([letters[1].position]) == 1
        assert dead.discard() == 0


def test_a_group_whose_deliveries_mostly_fail_stops_and_says_so(log, caplog):
    """F81: the breaker, over a restart."""
    group = log.groups.create("stock", since="earliest", max_deliver=1)
    log.commit([order(n) for n in range(120)])
    member = group.join("one")
    for one in member.read(wait=0):
        member.nack(one)
    with pytest.raises(GroupPaused, match="resume"):
        member.read(wait=0)
    assert group.info().state is GroupState.TRIPPED
    assert "more than half" in caplog.text
    assert group.resume()
    assert len(member.read(wait=0)) == 20
    assert group.pause()
    assert member.read(wait=0) == []
    assert group.info().state is GroupState.PAUSED


def test_a_reader_waits_for_a_commit_for_an_acknowledgement_and_for_its_time(log):
    """F78, F82, F83: and is not held up by the clock."""
    group = log.groups.create("stock", since="earliest", ordering="global", ack_wait=0.05)
    one, two = group.join("one"), group.join("two")
    found = []

    def wait():
        found.append(two.read(wait=30.0))

    for act in (lambda: log.commit([order(1), order(2)]), lambda: None):
        thread = threading.Thread(target=wait)
        thread.start()
        act()
        thread.join(60)
        assert not thread.is_alive()
    assert keys(found[0]) == keys(found[1]) == [1]
    assert found[1][0].count == 2
    thread = threading.Thread(target=wait)
    thread.start()

    def acknowledged():
        try:
            return one.ack(*one.read(wait=0))
        except ConsumerFenced:  # it has timed out, and the other one has it
            return False

    wait_until(lambda: acknowledged() or not thread.is_alive())
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("ack", ["transaction", "all", "none"])
def test_what_an_acknowledgement_is_of(log, ack):
    """F76."""
    group = log.groups.create("stock", since="earliest", ack=ack)
    for n in range(3):
        log.commit([order(2 * n), order(2 * n + 1)])
    member = group.join("one")
    found = member.read(wait=0)
    if ack == "transaction":
        assert [[change.key for change in one.changes] for one in found] == [
            ["0", "1"],
            ["2", "3"],
            ["4", "5"],
        ]
        assert member.ack(found[1].changes[1].position) == 1
        assert group.info().floor == Position(1)
        assert member.ack(*found) == 2
    elif ack == "all":
        assert member.ack(found[3]) == 4
        assert group.info().floor == found[4].position
    else:
        assert group.pending().total == 0
        assert member.ack(*found) == 0
    assert all(one.change.operation.name == "UPSERT" for one in found)


@pytest.mark.parametrize("policy", ["error", "earliest", "latest"])
def test_where_retention_took_what_was_not_done_the_group_stops_or_goes_on_loudly(policy, caplog):
    path = scratch() / "log"
    with ChangeLog.open(path, **{**RETAIN, **QUICK}) as log:
        group = log.groups.create("slow", since="earliest", keep_bytes=0, on_gap=policy)
        log.commit([order(0)])
        member = group.join("one")
        (first,) = member.read(1, wait=0)
        for n in range(1, 40):
            log.commit([upsert("order", str(n), {"n": "x" * 30_000})])
            house_step_of(log)()
        if policy == "error":
            with pytest.raises(GroupLost, match="slow"):
                member.read(wait=0)
            assert group.info().state is GroupState.LOST
            log.groups.seek("slow")
            assert group.info().state is GroupState.SERVING
            return
        found = member.read(1, wait=0)
        assert group.info().lost >= 1
        assert "is lost" in caplog.text
        assert all(one.change.version > first.change.version for one in found)
        assert member.ack(first) == 0
        assert member.claim(0.0, [first.position]).lost == (first.position,)


def test_a_damaged_journal_refuses_its_group_only(caplog):
    """F85, F126: and nothing is deleted from the log."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.groups.create("good")
        log.groups.create("bad")
    for name in ("JOURNAL", "JOURNAL.copy"):
        (path / "groups" / "bad" / name).write_bytes(b"x" * 200)
    with ChangeLog.open(path, **QUICK) as log:
        for call in (lambda: log.groups.open("bad"), lambda: log.groups.create("bad")):
            with pytest.raises(GroupCorrupted, match="bad"):
                call()
        assert log.groups.open("good").info().state is GroupState.SERVING
        assert not log._groups.settle()
    assert "bad" in caplog.text

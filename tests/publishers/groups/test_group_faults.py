"""Groups where something comes between: a failing read, a reset, a drop, another consumer, a child process."""

import os
import threading

import pytest

from publishers import ChangeLog, Position, upsert
from publishers.errors import LogClosed, TooCostly
from publishers.groups.errors import ConsumerFenced, GroupUnwritten, NoSuchGroup
from publishers.groups.state import GroupState
from tests.harness.inside import house_step_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, opened, order, scratch, wait_until
from tests.simulation.workload import Clock


@pytest.fixture
def log():
    with opened() as log:
        yield log


def keys(deliveries):
    return [int(one.change.key) for one in deliveries]


def journal_of(group):
    """The journal of a group, which is held or fails while a consumer says something."""
    return group.book._journal


def written(group):
    return journal_of(group).path.read_bytes()


def once(monkeypatch, owner, name, act):
    """Runs something before a method, the first time that it is called."""
    method, calls = getattr(owner, name), []

    def called(*arguments, **named):
        calls.append(name)
        if len(calls) == 1:
            act()
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, called)


def test_what_was_taken_before_a_read_fails_counts_as_not_delivered(log, monkeypatch):
    group = log.groups.create("stock", since="earliest", max_deliver=1)
    log.commit([order(n) for n in range(2)])
    member = group.join("one")
    assert keys(member.read(1, wait=0)) == [0]
    log.commit([order(2)])

    def fail():
        raise OSError(5, "Input/output error")

    once(monkeypatch, group.book._log, "page", fail)
    with pytest.raises(OSError, match="Input"):
        member.read(5, wait=0)
    assert keys(member.read(5, wait=0)) == [1, 2]


def test_history_that_does_not_fit_keeps_its_count(log):
    group = log.groups.create("stock", since="earliest", max_deliver=2, max_bytes=1024)
    log.commit([upsert("order", str(n), {"text": "x" * 600}) for n in range(3)])
    member = group.join("one")
    for n in range(3):
        assert keys(member.read(1, wait=0)) == [n]
    member = group.join("one")
    assert keys(member.read(wait=0, history=True)) == [0]
    with group.book.lock:
        assert [unit.count for unit in group.book.machine.units.values()] == [1, 1, 1]


def test_a_durable_acknowledgement_is_durable_although_another_consumer_reads_on(log, monkeypatch):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0)])
    one, two = group.join("one"), group.join("two")
    found = one.read(wait=0)

    def read_on():
        log.commit([order(1)])
        assert keys(two.read(wait=0)) == [1]

    vouch = group.book._vouch
    calls = []

    def vouched():
        vouch()
        calls.append(1)
        if len(calls) == 1:
            read_on()

    monkeypatch.setattr(group.book, "_vouch", vouched)
    assert one.ack(*found, durable=True) == 1
    with group.book.lock:
        assert not group.book.machine._changes._gone
        assert not group.book._acks


def test_an_acknowledgement_that_its_consumer_writes_is_written_once(monkeypatch):
    """However many there are, the housekeeping is not woken for them, and leaves them to the thread that writes."""
    with opened(ack_every=2) as log:
        log.commit([order(n) for n in range(3)])
        group = log.groups.create("stock", since="earliest")
        worker, writes = group.join("one"), []
        found = worker.read(wait=0)
        append = journal_of(group).append

        def appended(*arguments):
            writes.append(len(arguments[0]))
            group.book.settle()
            append(*arguments)

        monkeypatch.setattr(journal_of(group), "append", appended)
        monkeypatch.setattr(log.groups._log, "poke", lambda: pytest.fail("woken"))
        assert worker.ack(*found, durable=True) == 3
        assert len(writes) == 1
        assert writes[0] < 200


def test_a_reset_while_acknowledgements_are_written_holds_its_history(log, monkeypatch):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0)])
    log.commit([order(1)])
    member = group.join("one")
    member.ack(*member.read(wait=0))
    resets = threading.Thread(target=lambda: log.groups.seek("stock", "earliest"))

    def reset():
        machine = group.book.machine
        resets.start()
        wait_until(lambda: group.book.machine is not machine and group.book._hold is not None)

    once(monkeypatch, journal_of(group), "append", reset)
    group.book.flush()
    resets.join()
    assert [one.position for one in log.statistics().holds] == [Position(1)]
    assert keys(group.join("one").read(wait=0)) == [0, 1]


@pytest.mark.parametrize("writes", ["join", "flush"])
def test_a_group_that_was_dropped_meanwhile_stays_dropped(monkeypatch, writes):
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest")
        log.commit([order(0)])
        member = group.join("one")
        member.ack(*member.read(wait=0))
        drop, book = log.groups.drop, group.book
        vouch, calls = book._vouch, []

        def vouched():
            vouch()
            calls.append(1)
            if len(calls) == 1:
                drop("stock")

        monkeypatch.setattr(book, "_vouch", vouched)
        if writes == "join":
            with pytest.raises(NoSuchGroup):
                group.join("one")
        else:
            book.flush()
    with ChangeLog.open(path, **QUICK) as log:
        assert list(log.groups) == []


def test_a_reset_while_a_read_fails_counts_nothing_twice(log, monkeypatch):
    group = log.groups.create("stock", since="earliest", ack="none")
    log.commit([order(0)])
    member = group.join("one")
    once(monkeypatch, group._supply, "fetch", lambda: log.groups.seek("stock", "earliest"))
    with pytest.raises(ConsumerFenced):
        member.read(wait=0)
    assert group.info().pending == 0
    assert keys(group.join("one").read(wait=0)) == [0]
    group.book.flush()
    assert not group.info().unsynced


def test_a_child_of_fork_writes_nothing():
    with opened(ack_sync=60.0) as log:  # so that the parent writes nothing meanwhile
        fork_and_leave(log)


def fork_and_leave(log):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0), order(1)])
    member = group.join("one")
    found = member.read(wait=0)
    member.ack(found[0], durable=True)
    member.ack(found[1])
    before = written(group)
    child = os.fork()
    if child == 0:
        try:
            member.leave()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert written(group) == before


def test_nothing_is_written_behind_the_end_of_the_log():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest")
        log.commit([order(0)])
        member = group.join("one")
        found = member.read(wait=0)
        group.book.flush()
    before = written(group)
    with group.book.lock:  # as a thread that was about to write when the log was closed
        group.book.machine.ack(member._consumer, [one.position for one in found])
    with pytest.raises(LogClosed):
        group.book.flush()
    member.leave()
    assert written(group) == before


@pytest.mark.parametrize("only_ids", [False, True])
def test_what_was_claimed_and_not_given_counts_as_not_delivered(log, monkeypatch, only_ids):
    group = log.groups.create("stock", since="earliest", max_deliver=3)
    log.commit([order(0)])
    group.join("one").read(wait=0)
    member = group.join("two")

    def full():
        raise GroupUnwritten("stock", "no space")

    once(monkeypatch, group.book, "flush", full)
    with pytest.raises(GroupUnwritten):
        member.claim(0.0, only_ids=only_ids)
    (again,) = member.read(wait=0)
    assert again.count == 2


@pytest.mark.parametrize("policy", ["error", "earliest", "latest"])
def test_history_that_was_gone_before_a_restart_is_a_gap_like_any_other(policy, caplog):
    path = scratch() / "log"
    with ChangeLog.open(path, **{**RETAIN, **QUICK}) as log:
        log.groups.create("slow", since="earliest", keep_bytes=0, on_gap=policy)
        journals = {one: one.read_bytes() for one in (path / "groups" / "slow").iterdir()}
        for n in range(40):
            log.commit([upsert("order", str(n), {"n": "x" * 30_000})])
            house_step_of(log)()
    for one, data in journals.items():  # as if the process had died before the gap was written
        one.write_bytes(data)
    with ChangeLog.open(path, **{**RETAIN, **QUICK}) as log:
        group = log.groups.open("slow")
        if policy == "error":
            assert group.info().state is GroupState.LOST
            return
        assert "is lost" in caplog.text
        assert group.info().floor == (log.oldest if policy == "earliest" else log.head)
        log.commit([order(99)])
        assert group.join("one").read(wait=0)


def test_a_group_reads_on_behind_a_restart_although_what_it_has_done_is_deleted_meanwhile():
    """F78: it reads again from the first change that was not done, and goes on at the next one."""
    path = scratch() / "log"
    with ChangeLog.open(path, **{**RETAIN, **QUICK}) as log:
        log.groups.create("slow", since="earliest", max_bytes=100_000)
        one = log.groups.open("slow").join("one")
        for n in range(40):
            log.commit([upsert("order", str(n), {"n": "x" * 30_000})])
        read = [each for _ in range(20) for each in one.read(wait=0)]
        assert one.ack(*read[1:31], durable=True) == 30
    with ChangeLog.open(path, **{**RETAIN, **QUICK}) as log:
        one = log.groups.open("slow").join("one")
        (first,) = one.read(1, wait=0)
        assert keys([first]) == [0]
        assert one.ack(first, durable=True) == 1
        house_step_of(log)()
        assert log.oldest.version > 10
        assert keys(one.read(2, wait=0)) == [31, 32]


def test_a_consumer_that_waits_is_not_absent_however_long_it_waits():
    """F78."""
    clock = Clock()
    with opened(clock=clock) as log:
        group = log.groups.create("stock", since="earliest", consumer_ttl=60.0)
        waiting, _other = group.join("one"), group.join("two")
        found = []
        reader = threading.Thread(target=lambda: found.extend(waiting.read(wait=1e6)))
        reader.start()
        wait_until(lambda: waiting._consumer.waiting)
        clock.now += 61_000_000
        wait_until(lambda: group.info().consumers == ("one",), group.info)
        log.commit([order(0)])
        reader.join()
        assert keys(found) == [0]
        clock.now += 59_000_000
        group.tick()
        assert group.info().consumers == ("one",)
        clock.now += 1_000_000
        wait_until(lambda: group.info().consumers == (), group.info)


def test_a_group_whose_place_is_of_another_history_does_nothing(log):
    group = log.groups.create("stock", since="earliest", ack_wait=0.001)
    log.commit([order(0)])
    group.join("one").read(wait=0)
    with group.book.lock:
        group.book.state = GroupState.FORKED
    house_step_of(log)()
    assert group.info().pending == 1


def test_consumers_that_join_at_once_are_not_more_than_there_may_be(log, monkeypatch):
    group = log.groups.create("stock", since="earliest", max_consumers=1)
    raise_generation, joined = group.book.raise_generation, []

    def raised():
        generation = raise_generation()
        if not joined:
            joined.append(None)
            joined[0] = group.join("two")
        return generation

    monkeypatch.setattr(group.book, "raise_generation", raised)
    with pytest.raises(TooCostly, match="max_consumers"):
        group.join("one")
    assert group.info().consumers == ("two",)
    assert joined[0].read(wait=0) == []


def test_of_two_that_join_at_once_the_newer_generation_counts(log, monkeypatch):
    group = log.groups.create("stock", since="earliest")
    log.commit([order(0)])
    newer, raise_generation = [], group.book.raise_generation

    def raised():
        generation = raise_generation()
        if not newer:
            newer.append(None)
            newer[0] = group.join("one")
        return generation

    monkeypatch.setattr(group.book, "raise_generation", raised)
    older = group.join("one")
    with pytest.raises(ConsumerFenced):
        older.read(wait=0)
    assert keys(newer[0].read(wait=0)) == [0]

"""Groups where something comes between: a failing read, a reset, a drop, another consumer, a child process."""

import json
import os
import threading

import pytest

from publishers import ChangeLog, Criterion, Position, upsert
from publishers.errors import LogClosed, LogFull, TooCostly, TransactionTooLarge
from publishers.groups.errors import ConsumerFenced, GroupPaused, GroupUnwritten, NoSuchGroup
from publishers.groups.state import GroupState
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, opened, order, scratch, wait_until
from tests.simulation.workload import Clock


@pytest.fixture
def log():
    with opened() as log:
        yield log


def keys(deliveries):
    return [int(one.change.key) for one in deliveries]


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
        append = group.book._journal.append

        def appended(*arguments):
            writes.append(len(arguments[0]))
            group.book.settle()
            append(*arguments)

        monkeypatch.setattr(group.book._journal, "append", appended)
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

    once(monkeypatch, group.book._journal, "append", reset)
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
    before = group.book._journal.path.read_bytes()
    child = os.fork()
    if child == 0:
        try:
            member.leave()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert group.book._journal.path.read_bytes() == before


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


def test_nothing_is_written_behind_the_end_of_the_log():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest")
        log.commit([order(0)])
        member = group.join("one")
        found = member.read(wait=0)
        group.book.flush()
    before = group.book._journal.path.read_bytes()
    with group.book.lock:  # as a thread that was about to write when the log was closed
        group.book.machine.ack(member._consumer, [one.position for one in found])
    with pytest.raises(LogClosed):
        group.book.flush()
    member.leave()
    assert group.book._journal.path.read_bytes() == before


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
            log._keep_house()
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
        log._keep_house()
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


def test_a_group_whose_place_is_of_another_history_does_nothing(log):
    group = log.groups.create("stock", since="earliest", ack_wait=0.001)
    log.commit([order(0)])
    group.join("one").read(wait=0)
    with group.book.lock:
        group.book.state = GroupState.FORKED
    log._keep_house()
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

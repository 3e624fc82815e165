"""A worker runs a function for each delivery: in the order of keys, with retries, and without losing a count when it stops."""

import threading

import pytest

from penstock_cdc.errors import InvalidOption
from publishers.errors import LogClosed
from publishers.groups.errors import ConsumerFenced
from tests.publishers.support import opened, order, wait_until
from tests.simulation.workload import Clock


@pytest.fixture
def log():
    with opened() as log:
        yield log


class Desk:
    """A function that notes what it is given, and does with some keys what a test says."""

    def __init__(self):
        self.lock = threading.Lock()
        self.began = []
        self.ended = []
        self.fail = {}  # by key, how often
        self.hold = {}  # by key, until when

    def __call__(self, delivery):
        key = delivery.change.key
        with self.lock:
            self.began.append((key, delivery.change.version))
            left = self.fail.get(key, 0)
            self.fail[key] = left - 1
        if key in self.hold:
            assert self.hold[key].wait(60)
        if left > 0:
            raise LookupError(key)
        with self.lock:
            self.ended.append((key, delivery.change.version))


def test_changes_of_one_key_are_handled_one_after_the_other_and_others_side_by_side(log):
    """F83, F75."""
    group = log.groups.create("stock", since="earliest")
    desk = Desk()
    desk.hold = {"1": threading.Event(), "2": threading.Event()}
    for _ in range(3):
        log.commit([order(1), order(2)])
    with group.work("one", desk, concurrency=2) as worker:
        wait_until(lambda: len(desk.began) == 2)
        assert {key for key, _ in desk.began} == {"1", "2"}
        for one in desk.hold.values():
            one.set()
        wait_until(lambda: group.info().floor == log.head, group.info)
        assert not worker.wait(0)
    for key in "12":
        assert [version for name, version in desk.ended if name == key] == [1, 2, 3]
    assert worker.wait(0)
    assert group.info().consumers == ()


@pytest.mark.parametrize("ack", ["explicit", "transaction"])
def test_what_a_function_raises_for_comes_again_before_the_later_ones_of_its_key(log, ack):
    """F80, F83."""
    group = log.groups.create("stock", since="earliest", backoff=(0.0,), ack=ack)
    desk = Desk()
    desk.fail = {"1": 2}
    for _ in range(4):
        log.commit([order(1), order(2)])
    with group.work("one", desk, concurrency=3, prefetch=3):
        wait_until(lambda: group.info().floor == log.head, group.info)
    assert [version for key, version in desk.ended if key == "1"] == [1, 2, 3, 4]
    assert desk.began.count(("1", 1)) == 3
    assert group.info().redelivered >= 2


def test_what_always_fails_becomes_a_dead_letter_that_tells_why(log):
    """F81: a function that wants to end the process, too."""
    group = log.groups.create("stock", since="earliest", backoff=(0.0,), max_deliver=2)
    log.commit([order(1)])

    def end(_):
        raise SystemExit("no more")

    with group.work("one", end):
        wait_until(lambda: group.info().dead == 1, group.info)
    (letter,) = group.dead.inspect()
    assert (letter.count, letter.last_error) == (2, "SystemExit: no more")


def test_a_function_that_takes_long_keeps_its_delivery_and_one_that_is_stuck_does_not():
    """F80, F78."""
    clock = Clock()
    with opened(clock=clock) as log:
        group = log.groups.create("stock", since="earliest", ack_wait=0.3, consumer_ttl=1e6)
        desk = Desk()
        desk.hold = {"1": threading.Event()}
        log.commit([order(1)])
        worker = group.work("one", desk, concurrency=1, prefetch=1, longest=2.0)
        wait_until(lambda: desk.began)
        unit = next(iter(group.book.machine.units.values()))
        for _ in range(9):
            clock.now += 200_000
            wait_until(lambda: unit.until >= clock.monotonic() + 0.29, unit.until)
        assert group.info().pending == 1
        clock.now += 3_000_000
        wait_until(lambda: group.info().due == 1, group.info)
        other = group.join("two")
        clock.now += 1_000_000
        (again,) = other.read(wait=0)
        assert again.count == 2
        desk.hold["1"].set()
        wait_until(lambda: desk.ended)
        assert worker.stop()
        assert other.ack(again) == 1


def test_a_worker_that_stops_gives_back_what_it_has_not_handled_uncounted(log):
    """F163: at the last attempt, too; what runs is waited for, and given back if it takes too long."""
    group = log.groups.create("stock", since="earliest", max_deliver=1)
    desk = Desk()
    desk.hold = {"1": threading.Event()}
    log.commit([order(1)])
    log.commit([order(1), order(2)])
    worker = group.work("one", desk, concurrency=1)
    wait_until(lambda: desk.began and len(worker._jobs) == 3)
    assert not worker.stop(0.0)
    told = group.join("two").read(wait=0)
    assert [(one.change.key, one.count) for one in told] == [("1", 1), ("1", 1), ("2", 1)]
    desk.hold["1"].set()
    assert worker.stop()
    assert group.info().pending == 3
    assert desk.began == [("1", 1)]


def test_a_worker_ends_with_what_ended_its_consumer():
    """F84."""
    with opened() as log:
        group = log.groups.create("stock", since="earliest")
        worker = group.work("one", print)
        group.join("one")
        with pytest.raises(ConsumerFenced):
            worker.wait(60)
        worker.stop()
        closing = group.work("one", print)
    with pytest.raises(LogClosed):
        closing.wait(60)
    closing.stop()


def test_what_is_another_consumers_by_now_is_left_to_that(log, caplog):
    group = log.groups.create("stock", since="earliest", ordering="none")
    desk = Desk()
    desk.hold = {"1": threading.Event()}
    log.commit([order(1)])
    with group.work("one", desk) as worker:
        wait_until(lambda: desk.began)
        taken = group.join("two")
        assert len(taken.claim(0.0).deliveries) == 1
        desk.hold["1"].set()
        wait_until(lambda: not worker._jobs)
        assert group.info().pending == 1
        log.commit([order(2)])
        wait_until(lambda: ("2", 2) in desk.ended)


@pytest.mark.parametrize(
    ("name", "options"),
    [("apply", {"apply": 7}), ("concurrency", {"concurrency": 0}), ("prefetch", {"prefetch": True}),
     ("longest", {"longest": 0})],
)  # fmt: skip
def test_an_argument_that_is_wrong_is_named(log, name, options):
    group = log.groups.create("stock")
    with pytest.raises(InvalidOption, match=name):
        group.work("one", **{"apply": print, **options})
    assert group.info().consumers == ()

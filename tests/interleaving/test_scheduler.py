"""The scheduler finds what it is made for, repeats what it has found, and lets time pass only where all wait."""

import threading

import pytest

from tests.interleaving import primitives
from tests.interleaving.exploring import Replay, explore, once, read, written
from tests.interleaving.scheduler import Deadlock, Endless

HERE = ("interleaving/test_scheduler.py",)


def lost_update(run):
    """Two threads add one each, without a lock."""
    total = [0]

    def add():
        before = total[0]
        total[0] = before + 1

    run.together(add, add)
    assert total == [2]


def opposite_order(run):
    """Two threads acquire two locks, each in its own order."""
    one, other = primitives.Lock(), primitives.Lock()

    def forward():
        with one, other:
            pass

    def backward():
        with other, one:
            pass

    run.together(forward, backward)


def lost_wake_up(run):
    """A thread looks, and then waits; another one notifies in between."""
    condition, ready = primitives.Condition(primitives.Lock()), []

    def waits():
        if not ready:
            with condition:
                condition.wait()

    def notifies():
        ready.append(1)
        with condition:
            condition.notify()

    run.together(waits, notifies)


def endless(run):
    event = primitives.Event()

    def looks():
        while not event.is_set():
            event.clear()

    run.together(looks)


FAULTS = {
    lost_update: (AssertionError, r"\[1\] == \[2\]", HERE),
    opposite_order: (Deadlock, "all threads wait", ()),
    lost_wake_up: (Deadlock, "wait for a condition", ()),
    endless: (Endless, "does not end", ()),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("how", [{"preemptions": 1}, {"most": 0, "walks": 40}], ids=["all", "walks"])
def test_a_fault_is_found_and_its_schedule_finds_it_again(fault, how):
    error, words, files = FAULTS[fault]
    with pytest.raises(error, match=words) as caught:
        explore(fault, files=files, **how)
    schedule = caught.value.__notes__[0].split("'")[1].partition(": ")[2]
    with pytest.raises(error, match=words):
        once(fault, Replay(read(schedule)), files)
    assert written(read(schedule)) == schedule


def test_files_that_have_moved_are_told_as_no_line_of_them_would_be_a_step():
    with pytest.raises(AssertionError, match=r"nowhere.py.*: no such files"):
        explore(lost_update, files=("fanout/ring.py", "fanout/nowhere.py"))


def test_without_a_fault_all_orders_of_two_steps_each_are_six():
    orders = set()

    def scenario(run):
        found = []

        def steps(name):
            def body():
                for _ in range(2):
                    primitives.step("a step")
                    found.append(name)

            return body

        run.together(steps("a"), steps("b"))
        orders.add("".join(found))

    explore(scenario, preemptions=9, most=1000)
    assert orders == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}


def test_time_goes_to_the_first_deadline_if_all_wait():
    def scenario(run):
        event, lock, begun = primitives.Event(), primitives.Lock(), run.now
        lock.acquire()
        assert not event.wait(5.0)
        assert not lock.acquire(timeout=2.0)
        assert 7.0 <= run.now - begun < 7.1
        thread = threading.Thread(target=event.wait)
        thread.start()
        thread.join(1.0)
        assert run.now - begun < 8.1
        event.set()
        thread.join()

    with_real_time = threading.Thread.start
    once(scenario, Replay([]))
    assert threading.Thread.start is with_real_time


def test_an_error_of_a_thread_ends_the_others():
    def scenario(run):
        threading.Thread(target=primitives.Event().wait, daemon=True).start()

        def fails():
            raise KeyError("mine")

        run.together(fails)

    with pytest.raises(KeyError, match="mine"):
        once(scenario, Replay([]))

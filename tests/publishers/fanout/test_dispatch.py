"""The pool for those who named no executor: few threads for the quick, more for those that block."""

import logging
import threading

import pytest

from publishers import Criterion
from publishers.fanout import dispatch
from publishers.fanout.dispatch import DispatchPool
from tests.harness.constants import set_constant
from tests.publishers.support import Probe, fill, opened, wait_until


@pytest.fixture
def pools():
    made = []

    def pool(threads, most):
        made.append(DispatchPool(threads, most, "test"))
        return made[-1]

    yield pool
    for one in made:
        one.shutdown()


def test_blocking_subscribers_without_an_executor_starve_nobody():
    """F66, F147: four threads, six subscribers that never come back, and one that gets every change meanwhile."""
    with opened(dispatch_threads=4) as log:
        stuck, go_on = threading.Semaphore(0), threading.Event()

        class Blocking(Probe):
            def take(self, change):
                stuck.release()
                assert go_on.wait(60)

        for number in range(6):
            log.changes(Criterion(keys={"0", f"other {number}"})).subscribe(Blocking(first=9))
        fill(log, 1)
        for _ in range(6):
            assert stuck.acquire(timeout=60)
        healthy = Probe(first=99)
        log.changes().subscribe(healthy)
        fill(log, 3)
        healthy.wait_for(6)
        assert log.statistics().dispatch_threads > 6
        go_on.set()


def test_quick_tasks_make_no_threads_however_many_wait(pools, monkeypatch):
    """F147: what is counted is whether anything was taken, not how much waits."""
    set_constant(monkeypatch, dispatch, "_PATIENCE", 60)  # however slow the machine is
    pool, done, inside, most = pools(2, 64), threading.Semaphore(0), [], []

    def quick():
        inside.append(None)
        most.append(len(inside))
        inside.pop()
        done.release()

    for _ in range(5_000):
        pool.submit(quick)
    for _ in range(5_000):
        assert done.acquire(timeout=60)
    assert pool.threads == 2
    assert max(most) <= 2


def test_it_grows_to_its_bound_and_says_so_once(pools, caplog):
    """F147: what is beyond the bound waits, and is done when a thread is free."""
    pool, go_on, begun = pools(1, 5), threading.Event(), []
    with caplog.at_level(logging.WARNING, "penstock.publishers"):
        for number in range(9):
            pool.submit(lambda number=number: begun.append(number) or go_on.wait(60))
        wait_until(lambda: len(begun) == 5)
        assert pool.threads == 5
        go_on.set()
        wait_until(lambda: len(begun) == 9)
        for _ in range(20):
            pool.submit(lambda: None)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "subscribers that block have made the pool grow to its 5 threads"
    ]
    assert sorted(begun) == list(range(9))


def test_what_was_taken_is_done_after_a_shutdown_and_nothing_else_is_taken():
    """E42."""
    pool, go_on, done = DispatchPool(1, 2, "test"), threading.Event(), []
    pool.submit(lambda: go_on.wait(60))
    for number in range(5):
        pool.submit(lambda number=number: done.append(number))
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(lambda: done.append("late"))
    go_on.set()
    wait_until(lambda: len(done) == 5)
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_task_that_raises_costs_no_thread(pools, caplog):
    """Invariant 10: also what is no Exception."""
    pool, done = pools(1, 1), threading.Event()

    def leave():
        raise SystemExit

    pool.submit(leave)
    pool.submit(done.set)
    assert done.wait(60)
    assert "dropped" in caplog.text

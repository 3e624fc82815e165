"""The threads of the pools: few are started, and none is left."""

import threading
from concurrent.futures import wait

import pytest

from tests.harness.constants import set_constant
from tests.publishers.support import wait_until
from transports.quotas import pool as pools
from transports.quotas.pool import Pool
from transports.tcp.shares import SHARES


def test_a_thread_does_work_after_work_and_ends_when_there_is_none(monkeypatch):
    """F147: starting one holds an event loop up, so that work that comes one by one starts one for all."""
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), start(self))[1])
    pool = Pool("test", 4, 2, 100, 0.1)
    for number in range(100):
        assert pool.submit("ann", lambda _, number=number: number).result.result(60) == number
        wait_until(lambda: pool._idle == 1)
    assert len(started) == 1
    both = threading.Barrier(3)
    turns = [pool.submit(client, lambda _: both.wait(60)) for client in ("ann", "ann", "eve")]
    wait([turn.result for turn in turns], 60)
    assert len(started) == 3
    set_constant(monkeypatch, pools, "_LINGER", 0.01)
    assert pool.submit("ann", lambda _: 1).result.result(60) == 1
    pool.close()
    wait_until(lambda: not any(thread.is_alive() for thread in started))


def test_idle_threads_end_by_themselves(monkeypatch):
    set_constant(monkeypatch, pools, "_LINGER", 0.01)
    pool = Pool("test", 4, 2, 100, 0.1)
    for _ in range(3):
        turns = [pool.submit(client, lambda _: 1) for client in "abcdefgh"]
        wait([turn.result for turn in turns], 60)
        wait_until(lambda: not pool._alive)
        assert (pool._idle, pool._calls, pool.running) == (0, 0, 0)


@pytest.fixture
def heavy(monkeypatch):
    """Payers that are beyond their share."""
    names = {"eve", "mallory"}
    monkeypatch.setattr(SHARES, "beyond", lambda payer, share: payer in names and share == 0.1, raising=False)
    return names


def test_the_time_of_work_is_charged_to_whoever_pays(monkeypatch):
    """F147: on threads as on the loop; what nobody asked for, such as figures for all, is charged to nobody."""
    charged = []
    monkeypatch.setattr(
        SHARES, "spend", lambda payer, seconds: charged.append((payer, seconds >= 0)), raising=False
    )
    pool = Pool("test", 4, 2, 100, 0.1)
    assert pool.submit("1.2.3.4", lambda _: 1, payer="eve").result.result(60) == 1
    assert pool.submit("1.2.3.4", lambda _: 2).result.result(60) == 2
    with pytest.raises(ZeroDivisionError):
        pool.submit("1.2.3.4", lambda _: 1 // 0, payer=("1.2.3.4",)).result.result(60)
    assert charged == [("eve", True), (("1.2.3.4",), True)]
    pool.close()


def test_of_payers_beyond_their_share_one_at_a_time_has_a_thread(heavy):
    """F147: each busy thread makes the event loop wait; everybody else finds a thread meanwhile."""
    pool, gate, order = Pool("test", 4, 2, 100, 0.1), threading.Event(), []

    def work(name, *, waits=False):
        def run(_):
            order.append(name)
            assert not waits or gate.wait(60)

        return run

    first = pool.submit("a", work("eve", waits=True), payer="eve")
    wait_until(lambda: order == ["eve"])
    rest = [
        pool.submit("a", work("eve"), payer="eve"),
        pool.submit("b", work("mallory"), payer="mallory"),
    ]
    for number in range(5):
        pool.submit("c", work(number), payer="ann").result.result(60)
    assert order == ["eve", *range(5)]
    assert (pool.waiting, pool.running) == (2, 1)
    gate.set()
    wait([first.result, *(turn.result for turn in rest)], 60)
    assert sorted(order[6:]) == ["eve", "mallory"]
    pool.close()


def test_one_that_waited_behind_another_goes_on_when_that_is_done_whoever_is_beyond_then(heavy):
    pool, gate = Pool("test", 4, 2, 100, 0.1), threading.Event()
    first = pool.submit("a", lambda _: gate.wait(60), payer="eve")
    wait_until(lambda: pool.running == 1)
    second = pool.submit("b", lambda _: 2, payer="mallory")
    heavy.clear()
    gate.set()
    assert first.result.result(60)
    assert second.result.result(60) == 2
    wait_until(lambda: not pool.running)
    assert pool._heavy == 0
    pool.close()

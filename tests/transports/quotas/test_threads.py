"""The threads of the pools: few are started, and none is left."""

import threading
from concurrent.futures import wait

from tests.harness.constants import set_constant
from tests.publishers.support import wait_until
from transports.quotas import pool as pools
from transports.quotas.pool import Pool


def test_a_thread_does_work_after_work_and_ends_when_there_is_none(monkeypatch):
    """F147: starting one holds an event loop up, so that work that comes one by one starts one for all."""
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), start(self))[1])
    pool = Pool("test", 4, 2, 100)
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
    pool = Pool("test", 4, 2, 100)
    for _ in range(3):
        turns = [pool.submit(client, lambda _: 1) for client in "abcdefgh"]
        wait([turn.result for turn in turns], 60)
        wait_until(lambda: not pool._alive)
        assert (pool._idle, pool._calls, pool.running) == (0, 0, 0)

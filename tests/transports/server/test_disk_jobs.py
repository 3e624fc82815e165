"""Work off the loop that nobody waits for any more is not done."""

import asyncio
import json
import threading
from uuid import uuid4

import pytest

from publishers.errors import TooCostly
from publishers.log.start import Places
from tests.harness.constants import without_bounds
from tests.harness.failing import failing
from tests.transports.server.test_change_driver import FakeLink, connect, kinds, say, subscribe
from transports.graphql.execution import Engine
from transports.limits import Limits
from transports.protocol.connection import WireEntry
from transports.quotas.pool import Pool
from transports.server.disk_jobs import DiskJobs
from transports.server.graphql_driver import GraphQLDriver

FROM = "subscription ($start: Start) { onChange(start: $start) { version } }"


@pytest.fixture
def searches(monkeypatch):
    """What is searched for, and an event that lets the searches go on."""
    found, go_on, find = [], threading.Event(), Places.transaction

    def slowly(self, name, *given):
        found.append(name)
        assert go_on.wait(60)
        return find(self, name, *given)

    monkeypatch.setattr(Places, "transaction", slowly)
    yield found, go_on
    go_on.set()


def started(link, name, transaction):
    if isinstance(link.receiver, GraphQLDriver):
        variables = {"start": {"transaction": str(transaction)}}
        say(link, type="subscribe", id=name, payload={"query": FROM, "variables": variables})
    else:
        subscribe(link, name, start={"transaction": str(transaction)})


def ours(log, **limits):
    return connect(log, **limits)


def graphql(log, **limits):
    link, bounds = FakeLink(), Limits(**without_bounds(limits))
    link.receiver = GraphQLDriver(
        Engine({"shop": log}, bounds), link, limits=bounds, loop=asyncio.get_running_loop()
    )
    say(link, type="connection_init")
    return link


@pytest.mark.parametrize("dialled", [ours, graphql])
async def test_who_subscribes_and_completes_again_and_again_lets_no_searches_gather(
    log, fill, until, searches, dialled
):
    """F61, T11: the bound of subscriptions is one of searches too, and those that ended are not searched for."""
    fill(1)
    found, go_on = searches
    link = dialled(log, subscriptions=3)
    for number in range(200):
        started(link, str(number), uuid4())
        say(link, type="complete", id=str(number))
        assert len(link.receiver._jobs._waiting) <= 3
    wanted = [uuid4(), uuid4(), uuid4()]
    for number, transaction in enumerate(wanted):
        started(link, f"w{number}", transaction)
    started(link, "too many", uuid4())
    await until(lambda: kinds(link).count("error") == 1)
    assert "TOO_MANY_SUBSCRIPTIONS" in json.dumps(link.messages[-1])
    go_on.set()
    await until(lambda: kinds(link).count("error") == 4)
    assert [message["id"] for message in link.messages if message["type"] == "error"][1:] == [
        "w0",
        "w1",
        "w2",
    ]
    assert found[-3:] == wanted
    assert len(found) <= 4  # one had begun
    link.receiver.lost()


async def test_a_forgotten_job_that_has_begun_keeps_the_thread_and_tells_nothing(until):
    """F61: also the one that waits for a thread of the pool is not done once it is forgotten."""
    jobs, go_on, told = DiskJobs(asyncio.get_running_loop(), 1, lambda: None), threading.Event(), []
    pool = Pool("test", 2, 2, 10)
    first, second, third = (WireEntry(name, b"") for name in "abc")
    began = threading.Event()

    def work():
        began.set()
        assert go_on.wait(60)
        raise ValueError("nobody is told")

    jobs.send(pool, first, work, lambda result: told.append(result()))
    await until(began.is_set)
    jobs.send(pool, second, lambda: told.append("done for nobody"), lambda result: told.append(result()))
    jobs.send(pool, third, lambda: 7, lambda result: told.append(result()))
    jobs.forget(first)
    jobs.forget(second)
    assert told == []
    go_on.set()
    await until(lambda: told)
    assert told == [7]
    jobs.close()
    jobs.send(pool, first, lambda: told.append("late"), lambda result: told.append(result()))
    assert told == [7]


async def test_what_still_waits_for_a_thread_when_its_connection_closes_is_not_done(until):
    """F61: a pool whose thread is busy."""
    loop, go_on, done = asyncio.get_running_loop(), threading.Event(), []
    pool = Pool("test", 1, 1, 10)
    busy = asyncio.wrap_future(pool.submit("another", lambda _: go_on.wait(60)).result, loop=loop)
    jobs = DiskJobs(loop, 1, lambda: None)
    jobs.send(pool, WireEntry("a", b""), lambda: done.append("for nobody"), lambda *_: done.append("told"))
    jobs.close()
    go_on.set()
    await busy
    await until(lambda: jobs._running is None)
    assert done == []


async def test_a_job_for_which_the_system_has_no_thread_fails_by_name_and_the_next_one_is_done(
    until, monkeypatch
):
    """F61: the connection goes on, and the pool keeps nothing of what it refused."""
    jobs, told, pool = DiskJobs(asyncio.get_running_loop(), 1, lambda: None), [], Pool("test", 1, 1, 10)

    def note(result):
        try:
            told.append(result())
        except TooCostly as error:
            told.append((str(error), error.retryable))

    with monkeypatch.context() as patched:
        failing(patched, threading.Thread, "start", RuntimeError("can't start new thread"))
        jobs.send(pool, WireEntry("a", b""), lambda: "done", note)
        await until(lambda: told)
    assert "threads: 1, but threads of the system is 0" in told[0][0]
    assert told[0][1]
    assert pool.waiting == 0
    jobs.send(pool, WireEntry("b", b""), lambda: "done", note)
    await until(lambda: len(told) == 2)
    assert told[1] == "done"

import asyncio
import json

import pytest

from penstock_flights.plan import SLOW, WEBSOCKET
from penstock_flights.reception import Reception, ReceptionPlace
from penstock_flights.watcher import Watcher, main
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.harness.failing import failing
from transports.client.remote_log import connect
from transports.server.uvicorn import serve

DEADLINE = 120.0


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "flights") as opened:
        yield opened


@pytest.fixture
def server(log):
    with serve(log) as running:
        yield running


def commit(log, count):
    log.commit([upsert("flight", f"AA/{n}/2013-01-01/JFK", {"n": n}) for n in range(count)])


async def until(condition):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "place.json"


async def test_one_who_dawdles_gets_no_more_than_it_requested(log, server, path):
    commit(log, 50)
    watcher = Watcher(SLOW, Reception(path), step=7)
    async with connect(server.url) as remote:
        watcher.subscribe(remote)
        await until(lambda: watcher._subscription is not None)
        assert watcher.reception.place.count == 0
        watcher.tick()
        await until(lambda: watcher.reception.place.count == 7)
        watcher.tick()  # too early for another request
        assert watcher._demand == 0
        watcher.obey("hurry")
        await until(lambda: watcher.reception.place.count == 50)
        assert watcher._demand > 0
    assert watcher.reception.place.misplaced == 0


async def test_one_who_dawdles_goes_by_the_versions_of_a_log_that_grows_slowly(log, server, path):
    commit(log, 5)
    watcher = Watcher(SLOW, Reception(path), step=5)
    async with connect(server.url) as remote:
        watcher.subscribe(remote)
        await until(lambda: watcher._subscription is not None)
        watcher.tick()
        await until(lambda: watcher.reception.place.count == 5)
        for version in (1, 2):
            await until(lambda: watcher._subscription.live == version)  # noqa: B023 - used at once
            for _ in range(20):  # however much time goes by
                watcher.tick()
            assert (watcher._demand, watcher.reception.place.count) == (0, 5)
            commit(log, 5)
        await until(lambda: watcher._subscription.live == 3)
        for _ in range(20):
            watcher.tick()
        await until(lambda: watcher.reception.place.count == 10)


async def test_a_report_is_a_line_that_reads_as_a_place(log, server, path):
    commit(log, 20)
    watcher = Watcher(WEBSOCKET, Reception(path), step=1)
    async with connect(server.url) as remote:
        watcher.subscribe(remote)
        await until(lambda: watcher.reception.place.count == 20)
        watcher.tick()
        told = json.loads(watcher.report(finished=True))
    assert told.pop("finished") is True
    assert told.pop("demand") > 0
    told.pop("state")
    assert ReceptionPlace.from_json(told) == watcher.reception.place
    assert log.position_of(told["cursor"]) == log.head


async def test_the_end_of_the_connection_ends_it_with_the_reason(log, server, path):
    watcher = Watcher(WEBSOCKET, Reception(path), step=1)
    async with connect(server.url) as remote:
        watcher.subscribe(remote)
        await until(lambda: watcher._subscription is not None)
    await until(watcher.finished.is_set)
    assert watcher.error is not None


async def test_a_place_that_cannot_be_written_ends_it_with_the_reason(log, server, path, monkeypatch):

    watcher = Watcher(WEBSOCKET, Reception(path), step=1)
    failing(monkeypatch, watcher.reception, "take", OSError(28, "No space left on device"))
    async with connect(server.url) as remote:
        watcher.subscribe(remote)
        commit(log, 3)
        await until(watcher.finished.is_set)
    assert "No space left" in str(watcher.error)


def test_finish_is_the_only_other_word(path):
    watcher = Watcher(WEBSOCKET, Reception(path), step=1)
    watcher.obey("what")
    watcher.tick()
    assert not watcher.finished.is_set()
    watcher.obey("finish")
    assert watcher.finished.is_set()


def test_an_address_where_nobody_listens_is_told_as_json(path, capsys, monkeypatch):
    monkeypatch.setattr("penstock_flights.watcher.signal.signal", lambda *_: None)
    monkeypatch.setattr("penstock_flights.watcher._listen", lambda _: asyncio.Event().wait())
    assert main(["ws://127.0.0.1:9/ws", WEBSOCKET.name, str(path), "1"]) == 1
    assert "ws://127.0.0.1:9/ws" in json.loads(capsys.readouterr().out)["error"]

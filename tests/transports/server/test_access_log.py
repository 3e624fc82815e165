"""The access log."""

import asyncio
import logging
import urllib.error
import urllib.request

import pytest
import websockets

from publishers.log.changelog import ChangeLog
from tests.transports.principals import knowing
from transports import serve


@pytest.fixture
def entries(caplog):
    caplog.set_level(logging.INFO, "penstock.access")
    return lambda: [(one.getMessage(), one.data) for one in caplog.records if one.name == "penstock.access"]


async def ask(server, path, token=None):
    def work():
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(server.home_url.rstrip("/") + path, headers=headers)
        try:
            with opener.open(request, timeout=60) as answer:
                return len(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return len(error.read())

    return await asyncio.to_thread(work)


async def test_each_request_gets_a_line_without_what_may_be_secret(tmp_path, entries, until):
    with ChangeLog.open(tmp_path / "shop") as log, serve(log, authenticate=knowing("s3cret")) as server:
        nbytes = await ask(server, "/statistics?token=s3cret", "s3cret")
        await ask(server, "/statistics?x=s3cret", "wr0ng")
        await ask(server, "/no%0Athing")
        await until(lambda: len(entries()) == 3)
    (_, right), (_, wrong), (_, nothing) = entries()
    assert right.pop("seconds") < 30
    assert right == {
        "method": "GET",
        "path": "/statistics",
        "status": 200,
        "client": "127.0.0.1",
        "bytes": nbytes,
        "principal": "s3cret",  # the authenticator of this test names clients after their tokens
    }
    assert (wrong["status"], "principal" in wrong) == (401, False)
    assert (nothing["status"], nothing["path"]) == (404, "/no\nthing")
    assert not any("wr0ng" in str(told) or "token" in str(told) for told in entries())


async def test_each_websocket_gets_a_line_when_it_has_ended(serving, dial, entries, until):
    server = serving(messages_per_second=5)
    async with dial(server.url) as wire:
        await wire.init()
        assert entries() == []
    await until(lambda: len(entries()) == 1)
    async with dial(server.url) as wire:
        await wire.init()
        for _ in range(50):
            await wire.send(type="ping")
        await wire.closed()
    await until(lambda: len(entries()) == 2)
    with pytest.raises(websockets.InvalidStatus):
        await websockets.connect(server.url.replace("/ws", "/other"), proxy=None)
    await until(lambda: len(entries()) == 3)
    told = [data for _, data in entries()]
    assert [one["status"] for one in told] == ["CLOSED", "FLOOD", 404]
    assert {one["method"] for one in told} == {"WEBSOCKET"}
    assert [one.get("principal") is not None for one in told] == [True, True, False]
    assert not any("bytes" in one for one in told)


async def test_without_it_nothing_is_noted(serving, caplog):
    await ask(serving(), "/health")
    assert not [one for one in caplog.records if one.name == "penstock.access"]

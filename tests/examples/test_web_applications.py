"""The web applications run under the real ``uvicorn`` command, and serve what changes below a prefix."""

import asyncio
import importlib.util
import json
import os
import re
import signal
import sys
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flow
from publishers import ChangeLog, Content
from tests.harness.missing import skip_without
from transports import CloseCode, ConnectionLost, RemoteError, connect

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 120.0


class Running:
    """The command: where it serves, and what it has logged."""

    def __init__(self, process):
        self.process, self.logged, self.port = process, "", 0

    async def reads(self, pattern):
        """Waits until it logs something."""
        async with asyncio.timeout(DEADLINE):
            while not (found := re.search(pattern, self.logged)):
                line = await self.process.stderr.readline()
                assert line, self.logged
                self.logged += line.decode()
        return found

    async def listens(self):
        """Waits until it listens."""
        self.port = int((await self.reads(r"running on http://127.0.0.1:(\d+)"))[1])

    async def stops(self):
        """Interrupts it, and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            self.logged += (await self.process.stderr.read()).decode()
            return await self.process.wait()


@asynccontextmanager
async def uvicorn(example, place, *options, ready=True):
    package = example.removeprefix("in_")
    if importlib.util.find_spec(package) is None:
        skip_without(package)
    command = [Path(sys.executable).with_name("uvicorn"), "--app-dir", ROOT / "examples", f"{example}:app"]
    process = await asyncio.create_subprocess_exec(
        *command, "--port", "0", *options,
        cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Running(process)
    try:
        if ready:
            await running.listens()
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        process._transport.close()


async def put(port, key, order):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/orders/{key}",
        json.dumps(order).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def work():
        with opener.open(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("example", "ours"),
    [
        pytest.param("in_fastapi", True, id="fastapi"),
        pytest.param("in_litestar", True, id="litestar"),
        pytest.param("in_starlette", True, id="starlette"),
        pytest.param("in_starlette", False, id="uvicorn's own protocol class"),
    ],
)
async def test_orders_that_are_put_are_followed_until_the_server_stops(example, ours, tmp_path):
    options = ["--ws", "penstock_cdc:LinkProtocol"] if ours else []
    async with uvicorn(example, tmp_path, *options) as running:
        async with connect(f"ws://127.0.0.1:{running.port}/live/ws", reconnect=False) as remote:
            feed = remote.changes(since="earliest", content=Content.BODY)
            async with flow.aiter(feed, prefetch=8) as changes:
                assert await put(running.port, "42", {"total": "10.00"}) == {"version": 1}
                told = [await anext(changes) for _ in range(2)]
                assert (told[1].key, told[1].body) == ("42", {"total": "10.00"})
                stopping = asyncio.create_task(running.stops())
                with pytest.raises((RemoteError, ConnectionLost)) as ended:
                    await anext(changes)
                if ours:
                    assert ended.value.code == "GOING_AWAY"
                else:
                    assert ended.value.close_code == CloseCode.RESTART
                assert ended.value.retryable
        assert await stopping in (0, -signal.SIGTERM)
        assert "Application shutdown complete" in running.logged
        assert ("running without the protocol class" in running.logged) is not ours
        assert "Traceback" not in running.logged
    with ChangeLog.open(tmp_path / "var" / "orders") as log:
        assert log.head.version == 2


async def test_a_worker_waits_for_the_one_that_it_replaces(tmp_path):
    """As under gunicorn: the next worker begins before the one before it has ended, and no order is lost."""
    async with uvicorn("in_starlette", tmp_path) as running:
        assert await put(running.port, "0", {"total": "10.00"}) == {"version": 1}
        async with uvicorn("in_starlette", tmp_path, ready=False) as after:
            await after.reads("Waiting for application startup")
            for number in range(1, 100):
                assert await put(running.port, str(number), {"total": "10.00"}) == {"version": number + 1}
            assert await running.stops() in (0, -signal.SIGTERM)
            await after.listens()
            assert await put(after.port, "100", {"total": "10.00"}) == {"version": 101}
            assert "Traceback" not in after.logged


@pytest.fixture(params=["in_fastapi", "in_starlette"])
def example(request, tmp_path, monkeypatch):
    """The module of a web application, whose log is in a directory of the test. Litestar begins a thread that it never ends."""
    if importlib.util.find_spec(request.param.removeprefix("in_")) is None:
        skip_without(request.param.removeprefix("in_"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setenv("HOSTS", "shop.example.org")
    monkeypatch.setenv("ORIGINS", "https://shop.example.org")
    monkeypatch.delitem(sys.modules, request.param, raising=False)
    yield importlib.import_module(request.param)
    monkeypatch.delitem(sys.modules, request.param)


@pytest.mark.filterwarnings("ignore:Using `httpx`")
def test_each_lifespan_serves_a_log_of_its_own_to_the_hosts_and_pages_of_the_environment(example):
    from starlette.testclient import TestClient

    page = {"Origin": "https://shop.example.org"}
    subscribe = {
        "criteria": [{"entity_types": ["order"]}],
        "start": "earliest",
        "content": "BODY",
        "credits": 9,
    }
    for number in range(3):
        with TestClient(example.app, base_url="https://shop.example.org") as client:
            put = client.put(f"/orders/{number}", json={"total": "10.00"})
            assert put.json() == {"version": number + 1}
            with client.websocket_connect("wss://shop.example.org/live/ws", headers=page) as wire:
                wire.send_json({"type": "connection_init", "payload": {}})
                wire.send_json({"type": "subscribe", "id": "a", "payload": subscribe})
                keys = []
                while len(keys) <= number:
                    message = wire.receive_json()
                    assert message["type"] != "error", message
                    keys += [event["key"] for event in message.get("events", ())]
                assert keys == list(map(str, range(number + 1)))
            assert example.app.state.log.statistics().subscription_count == 0
            assert client.get("/live/health", headers={"Host": "evil.example"}).status_code == 421

"""The ASGI application under our server: what is refused before the upgrade, and /health."""

import asyncio
import json
import logging
import os
import re
import urllib.error
import urllib.request

import pytest
import websockets

from publishers import ChangeLog, upsert
from transports import serve
from transports.limits import Limits
from transports.server.asgi import Application
from transports.server.version import version


@pytest.mark.parametrize(
    ("origin", "welcome"),
    [
        (None, True),
        ("http://localhost:5173", True),
        ("http://127.0.0.1", True),
        ("http://[::1]:80", True),
        ("https://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("null", False),
        ("http://[", False),
        ("https://shop.example", True),
    ],
)
async def test_pages_of_other_sites_may_not_connect(serving, dial, origin, welcome):
    server = serving(origins=("https://shop.example/",))
    headers = {} if origin is None else {"Origin": origin}
    if welcome:
        async with dial(server.url, additional_headers=headers) as wire:
            await wire.init()
    else:
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with dial(server.url, additional_headers=headers):
                pass
        assert caught.value.response.status_code == 403
        assert b"not allowed" in caught.value.response.body


async def test_any_origin_may_connect_if_that_is_said(serving, dial):
    async with dial(
        serving(origins=("*",)).url, additional_headers={"Origin": "https://evil.example"}
    ) as wire:
        await wire.init()


async def test_another_path_is_refused_with_404(serving, dial):
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with dial(serving().url.replace("/ws", "/elsewhere")):
            pass
    assert caught.value.response.status_code == 404


async def fetch(url, method="GET"):
    def work():
        request = urllib.request.Request(url, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers

    return await asyncio.to_thread(work)


async def test_health_says_how_the_logs_are(serving, dial, fill, log):
    fill(3)
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        status, body, headers = await fetch(server.health_url)
    assert status == 200
    assert headers["content-type"] == "application/json"
    told = json.loads(body)
    age = told["logs"]["shop"]["commitAge"]
    assert told == {
        "status": "ok",
        "server": f"penstock/{version()}",
        "connections": 1,
        "logs": {
            "shop": {
                "status": "ok",
                "epoch": log.epoch,
                "oldest": str(log.token(log.oldest)),
                "head": str(log.token(log.head)),
                "commitAge": age,
                "writer": {"alive": True, "pid": os.getpid()},
            }
        },
    }
    assert 0 <= age < 60


async def test_other_paths_and_methods_get_their_http_errors(serving):
    server = serving()
    assert (await fetch(server.health_url, "POST"))[0] == 405
    status, body, _ = await fetch(server.health_url.replace("health", "nothing"))
    assert status == 404
    assert b"/health" in body
    status, body, _ = await fetch(server.health_url, "HEAD")
    assert (status, body) == (200, b"")


async def test_several_logs_must_be_named(tmp_path, dial):
    from publishers.log.changelog import ChangeLog
    from publishers.mutations.mutation import upsert
    from transports import serve

    with (
        ChangeLog.open(tmp_path / "a") as a,
        ChangeLog.open(tmp_path / "b") as b,
        serve({"a": a, "b": b}) as server,
    ):
        async with dial(server.url) as wire:
            await wire.init()
            problem = await wire.fail("x")
            assert problem["code"] == "LOG_NOT_FOUND"
            assert "a, b" in problem["message"]
            told = await wire.subscribe("y", log="b", credits=5)
            assert told["log"] == "b"
            a.commit([upsert("order", "in a", {})])
            b.commit([upsert("order", "in b", {})])
            events = await wire.events(2, "y")
            assert events[1]["key"] == "in b"


async def test_lifespan_is_answered_and_unknown_scopes_are_refused(log):
    application = Application(log, limits=Limits())
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return incoming.pop(0)

    async def send(message):
        sent.append(message["type"])

    await application({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(ValueError, match="gopher"):
        await application({"type": "gopher"}, receive, send)


async def test_logs_of_the_same_name_give_cursors_of_their_own(tmp_path, dial):
    with ChangeLog.open(tmp_path / "x" / "orders") as x, ChangeLog.open(tmp_path / "y" / "orders") as y:
        for each in (x, y):
            each.commit([upsert("order", "1", {})])
        with serve({"x": x, "y": y}) as server:
            async with dial(server.url) as wire:
                await wire.init()
                for name, each in (("x", x), ("y", y)):
                    told = await wire.subscribe(name, log=name, credits=9, start="earliest")
                    assert (told["log"], told["head"]) == (name, str(each.token(each.head)))
                    assert (await wire.events(2, name))[-1]["cursor"] == str(each.token(each.head))


async def test_health_is_told_while_another_log_appears(tmp_path, log):
    class Growing(dict):
        """A program that adds a log while the answer is being made."""

        def items(self):
            for name in list(self):
                yield name, self[name]

    logs = {"shop": log}
    application = Application(logs)
    other = ChangeLog.open(tmp_path / "other")
    token = log.token

    def adding(position):
        logs["other"] = other
        return token(position)

    answered = []

    async def send(message):
        answered.append(message)

    with other, pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(log), "token", lambda _, position: adding(position))
        await application({"type": "http", "path": "/health", "method": "GET", "headers": []}, None, send)
    assert answered[0]["status"] == 200


@pytest.mark.parametrize("face", ["a WebSocket", "a POST"])
@pytest.mark.parametrize(
    ("header", "value", "told"),
    [
        ("Origin", "https://shop{}.example", r"^origin 'https://shop\d*.example' is not allowed; name it in origins to"),
        ("Host", "shop{}.example", r"^host 'shop\d*.example' is not one that this server answers to; name it in hosts to"),
    ],
)  # fmt: skip
async def test_a_refusal_that_only_the_operator_can_change_is_one_line_for_each_name_and_not_without_end(
    log, caplog, face, header, value, told
):
    application, sent = Application(log, hosts=[]), []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    def asked(name):
        headers = [(header.lower().encode(), value.format(name).encode())]
        kind = {"type": "websocket"} if face == "a WebSocket" else {"type": "http", "method": "POST"}
        scope = {**kind, "path": "/ws", "headers": headers, "query_string": b"", "subprotocols": []}
        return application(scope, receive, send)

    with caplog.at_level(logging.WARNING, "penstock.transports"):
        for name in ("", "", *range(500)):
            await asked(name)
    lines = [record.getMessage() for record in caplog.records if "LinkProtocol" not in record.getMessage()]
    assert len(sent) >= 502
    assert re.search(told, lines[0])
    assert len(lines) == len(set(lines))
    assert 50 < len(lines) <= 100


async def test_an_application_that_has_stopped_refuses_a_second_lifespan_and_says_what_is_right(log):
    application, sent = Application(log), []

    async def receive():
        return {"type": coming.pop(0)}

    async def send(message):
        sent.append(message)

    coming = ["lifespan.startup", "lifespan.shutdown", "lifespan.startup"]
    for _ in range(2):
        await application({"type": "lifespan"}, receive, send)
    assert [message["type"].removeprefix("lifespan.") for message in sent] == [
        "startup.complete", "shutdown.complete", "startup.failed",
    ]  # fmt: skip
    assert "make another one" in sent[-1]["message"]

"""The application inside web applications of others, below a prefix."""

import asyncio
import http.client
import importlib.util
import json
import re
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import pytest

from publishers.mutations.mutation import schema
from tests.harness.missing import skip_without
from tests.transports.conftest import uvicorn_runs
from transports import LinkProtocol
from transports.cli import main
from transports.server.asgi import Application


def imported(module):
    """A module of an optional package."""
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        skip_without(package)
    return importlib.import_module(module)


def starlette(application, prefix):
    mount = imported("starlette.routing").Mount(prefix, application)
    return imported("starlette.applications").Starlette(routes=[mount])


def fastapi(application, prefix):
    host = imported("fastapi").FastAPI()
    host.mount(prefix, application)
    return host


def litestar(application, prefix):
    host, types = imported("litestar"), imported("litestar.types")

    @host.asgi(prefix, is_mount=True, copy_scope=True)
    async def changes(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        await application(scope, receive, send)

    return host.Litestar([changes], logging_config=None)


def stripping(application, prefix):
    """As Starlette did before 0.33: the prefix is taken off the path."""

    async def host(scope, receive, send):
        if scope["type"] != "lifespan":
            below = scope["path"].removeprefix(prefix)
            scope = {**scope, "path": below, "root_path": scope["root_path"] + prefix}
        await application(scope, receive, send)

    return host


HOSTS = [starlette, fastapi, litestar, stripping]
PREFIXES = ["/live", "/a/b", "/ws", "/graphql"]
BELOW = [(host, PREFIXES[(at + more) % 4]) for at, host in enumerate(HOSTS) for more in (0, 1)]
"""Each host and each prefix twice."""


@contextmanager
def mounted(log, host, prefix, pages=None, **options):
    with uvicorn_runs(host(Application(log, pages=pages), prefix), **options) as (_, port):
        yield f"http://127.0.0.1:{port}{prefix}"


async def ask(url, method="GET", body=None, **headers):
    """One request, by the path as it is, and without going where it is sent."""

    def work():
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, parts.path + "?" * bool(parts.query) + parts.query, body, named)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize(("host", "prefix"), BELOW)
@pytest.mark.parametrize("ws", [LinkProtocol, "websockets-sansio"])
async def test_both_protocols_are_served_below_a_prefix(log, dial, fill, host, prefix, ws):
    with mounted(log, host, prefix, ws=ws) as url:
        under = url.replace("http:", "ws:")
        async with (
            dial(f"{under}/ws", ["penstock.v1+json"]) as ours,
            dial(f"{under}/graphql", ["graphql-transport-ws"]) as graphql,
        ):
            await ours.init()
            await ours.subscribe(credits=2)
            await graphql.init()
            query = {"query": "subscription { onChange(start: {place: EARLIEST}) { key } }"}
            await graphql.send(type="subscribe", id="a", payload=query)
            fill(1)
            assert [event.get("key") for event in await ours.events(2)] == [None, "0-0"]
            told = [await graphql.expect("next") for _ in range(2)]
            assert [one["payload"]["data"]["onChange"]["key"] for one in told] == [None, "0-0"]


@pytest.mark.parametrize(("host", "prefix"), BELOW)
async def test_what_is_asked_by_http_is_answered_below_a_prefix(log, fill, host, prefix):
    fill(1)
    with mounted(log, host, prefix) as url:
        for path in ("/health", "/statistics", "/schemas?log=shop"):
            status, _, body = await ask(url + path)
            assert status == 200
            assert "shop" in str(json.loads(body))
        query = json.dumps({"query": "{ logs { name } }"})
        status, _, body = await ask(f"{url}/graphql", "POST", query, content_type="application/json")
        assert (status, json.loads(body)) == (200, {"data": {"logs": [{"name": "shop"}]}})
        status, _, body = await ask(f"{url}/elsewhere")
        assert status == 404
        assert json.loads(body)["error"].startswith("/elsewhere is not served")
        assert (await ask(f"{url}/health/x"))[0] == 404


@pytest.mark.parametrize(("host", "prefix"), BELOW)
async def test_pages_find_their_files_below_a_prefix(log, host, prefix):
    with mounted(log, host, prefix) as url:
        for page, count in ((f"{url}/", 9), (f"{url}/graphql", 2)):
            status, headers, body = await ask(page, accept="text/html")
            assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
            named = re.findall(r'(?:href|src)="([^"#:]+)"', body.decode())
            assert len(named) == count
            for each in named:
                assert (await ask(urljoin(page, each), accept="text/html", accept_encoding="gzip"))[
                    0
                ] == 200, each
        assert (await ask(f"{url}/board/penstock.js"))[0] == 200


@pytest.mark.parametrize(("host", "prefix"), BELOW)
async def test_a_browser_is_sent_to_where_the_addresses_of_a_page_are_right(log, host, prefix):
    with mounted(log, host, prefix) as url:
        for asked, right in ((url, f"{url}/"), (f"{url}?mode=live", f"{url}/?mode=live")):
            status, headers, _ = await ask(asked, accept="text/html")
            assert (status, urljoin(asked, headers["location"])) == (307, right)
        status, headers, _ = await ask(f"{url}/graphql/", accept="text/html")
        assert (status, urljoin(f"{url}/graphql/", headers["location"])) == (307, f"{url}/graphql")


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_commands_ask_below_the_prefix_of_the_web_socket(log, prefix, capsys):
    log.commit([schema("order", {"fields": ["total"]})])
    with mounted(log, stripping, prefix) as url:
        under = f"{url}/ws".replace("http:", "ws:")
        for command, said in (
            (["stats", under, "--json"], '"shop"'),
            (["stats", f"{url}/"], "shop"),
            (["schema", under], "order"),
            (["schema", f"{url}/", "order"], '"total"'),
            (["tail", under, "--since", "earliest", "--limit", "1"], '"TRANSACTION"'),
            (["tail", f"{url}/", "--since", "earliest", "--limit", "1"], '"TRANSACTION"'),
        ):
            assert await asyncio.to_thread(main, command) == 0, capsys.readouterr().err
            assert said in capsys.readouterr().out


@pytest.mark.parametrize("host", HOSTS)
async def test_a_prefix_of_the_server_is_no_obstacle(log, dial, host):
    """A proxy takes ``/shop`` off, and uvicorn is told of it with --root-path."""
    with mounted(log, host, "/live", root_path="/shop", ws=LinkProtocol) as url:
        assert (await ask(f"{url}/health"))[0] == 200
        async with dial(f"{url}/ws".replace("http:", "ws:")) as wire:
            await wire.init()


@pytest.mark.parametrize("origins", [["https://shop.example"], []])
async def test_a_web_application_that_shares_with_origins_itself_and_ours_do_not_answer_twice(log, origins):
    host = starlette(Application(log, origins=origins), "/live")
    middleware = imported("starlette.middleware.cors").CORSMiddleware
    host.add_middleware(middleware, allow_origins=["https://shop.example"], allow_credentials=True)
    with uvicorn_runs(host) as (_, port):
        for method, asked in (("GET", {}), ("OPTIONS", {"access_control_request_method": "GET"})):
            url = f"http://127.0.0.1:{port}/live/health"
            status, headers, _ = await ask(url, method, origin="https://shop.example", **asked)
            assert status == 200
            assert headers.get_all("access-control-allow-origin") == ["https://shop.example"]

"""Which web pages may read what is answered over HTTP (Fetch standard, 3.2)."""

import asyncio
import http.client
import json

import pytest

from tests.transports.principals import knowing
from transports import serve

SHOP = "https://shop.example"
WELCOME = [SHOP, "http://localhost:5173", "http://127.0.0.1", "http://[::1]:80"]
STRANGERS = [
    "https://evil.example",
    "http://shop.example",
    "https://shop.example.evil.example",
    "null",
    "http://[",
]
ALLOWED = "access-control-allow-origin"
QUERY = json.dumps({"query": "{ logs { name } }"})


async def ask(server, path, method="GET", body=None, **headers):
    def work():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(work)


def varies(headers):
    return {name.strip().lower() for line in headers.get_all("vary", []) for name in line.split(",")}


PATHS = [
    ("/", {}),
    ("/board/penstock.js", {}),
    ("/health", {}),
    ("/statistics", {}),
    ("/schemas", {}),
    ("/graphql?query=%7Blogs%7Bname%7D%7D", {}),
    ("/graphql", {"accept": "text/html"}),
    ("/graphql/graphiql.js", {"accept_encoding": "gzip"}),
]


@pytest.mark.parametrize(("path", "headers"), PATHS)
async def test_a_page_that_is_welcome_may_read_and_no_other(serving, path, headers):
    server = serving(origins=(SHOP,))
    status, without, body = await ask(server, path, **headers)
    assert status == 200
    assert ALLOWED not in without
    assert "origin" in varies(without), "what is kept of it must not be shown to a page that asks later"
    for origin in WELCOME:
        status, told, same = await ask(server, path, origin=origin, **headers)
        assert (status, told.get_all(ALLOWED)) == (200, [origin])
        assert varies(told) == varies(without)
        assert "access-control-allow-credentials" not in told
        assert same == body or path == "/health"
    for origin in STRANGERS:
        status, told, _ = await ask(server, path, origin=origin, **headers)
        assert status == 200, "nothing is refused that was not refused before"
        assert [name for name in told if name.lower().startswith("access-control")] == []


async def test_graphql_answers_queries_of_a_page(serving):
    server = serving(origins=(SHOP,))
    status, headers, body = await ask(
        server, "/graphql", "POST", QUERY, origin=SHOP, content_type="application/json"
    )
    assert (status, headers.get_all(ALLOWED)) == (200, [SHOP])
    assert json.loads(body)["data"] == {"logs": [{"name": "shop"}]}


@pytest.mark.parametrize("path", ["/changes", "/graphql", "/health", "/nothing", "/sinks"])
async def test_a_foreign_page_sends_nothing_to_any_path(serving, path):
    """F147: it need not read the answer to do something; of several origins none counts alone."""
    server = serving(origins=(SHOP,))
    for origin in (
        *STRANGERS,
        f"https://evil.example, {SHOP}",
        f"{SHOP}, https://evil.example",
        f"{SHOP}, {SHOP}",
    ):
        for method in ("POST", "DELETE"):
            status, told, why = await ask(server, path, method, QUERY, origin=origin)
            assert (status, told[ALLOWED]) == (403, None)
            assert "name it in origins" in json.loads(why)["error"]


@pytest.mark.parametrize(
    ("status", "method", "path", "headers", "body"),
    [
        (401, "GET", "/statistics", {}, None),
        (401, "POST", "/graphql", {"content_type": "application/json"}, QUERY),
        (404, "GET", "/elsewhere", {}, None),
        (404, "GET", "/graphql/elsewhere", {}, None),
        (405, "POST", "/health", {}, None),
        (405, "PUT", "/graphql", {"authorization": "Bearer right"}, None),
        (406, "GET", "/graphql", {"accept": "image/png"}, None),
        (415, "POST", "/graphql", {"authorization": "Bearer right", "content_type": "text/plain"}, QUERY),
        (421, "GET", "/health", {"host": "evil.example"}, None),
    ],
)
async def test_a_page_may_read_why_it_is_refused(serving, status, method, path, headers, body):
    server = serving(origins=(SHOP,), authenticate=knowing("right"))
    got, told, why = await ask(server, path, method, body, origin=SHOP, **headers)
    assert (got, told[ALLOWED]) == (status, SHOP)
    assert json.loads(why)
    got, told, same = await ask(server, path, method, body, origin="https://evil.example", **headers)
    if method == "GET":
        assert (got, told[ALLOWED], same) == (status, None, why)
    else:
        assert (got, told[ALLOWED], json.loads(same)["code"]) == (403, None, "INVALID_REQUEST")


async def test_a_file_that_the_browser_has_may_be_read_again(serving):
    server = serving(origins=(SHOP,))
    _, headers, _ = await ask(server, "/board/penstock.js")
    status, told, _ = await ask(server, "/board/penstock.js", origin=SHOP, if_none_match=headers["etag"])
    assert (status, told[ALLOWED]) == (304, SHOP)


@pytest.mark.parametrize(
    "path", ["/health", "/statistics", "/schemas", "/graphql", "/board/penstock.js", "/elsewhere"]
)
@pytest.mark.parametrize("origin", WELCOME)
async def test_a_preflight_is_agreed_to(serving, path, origin):
    server = serving(origins=(SHOP,), authenticate=knowing("right"))
    asked = {
        "origin": origin,
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization,content-type",
    }
    status, headers, body = await ask(server, path, "OPTIONS", **asked)
    assert (status, body) == (204, b"")
    assert headers.get_all(ALLOWED) == [origin]
    assert headers["access-control-allow-methods"] == "GET, HEAD, POST"
    allowed = headers["access-control-allow-headers"].split(", ")
    assert {
        "authorization",
        "content-type",
        "apollo-require-preflight",
        "graphql-require-preflight",
        "x-apollo-operation-name",
        "apollographql-client-name",
    } <= set(allowed)
    assert allowed == sorted(allowed)
    assert headers["access-control-max-age"] == "7200"
    assert "origin" in varies(headers)
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("path", ["/health", "/graphql", "/elsewhere"])
async def test_a_preflight_of_a_stranger_is_answered_as_any_request(serving, path):
    server = serving(origins=(SHOP,))
    plain = await ask(server, path, "OPTIONS")
    for origin in STRANGERS:
        asked = {"origin": origin, "access_control_request_method": "POST"}
        status, headers, body = await ask(server, path, "OPTIONS", **asked)
        assert (status, body) == (plain[0], plain[2])
        assert status in (404, 405)
        assert [name for name in headers if name.lower().startswith("access-control")] == []


async def test_options_without_a_method_to_come_are_no_preflight(serving):
    status, headers, _ = await ask(serving(origins=(SHOP,)), "/health", "OPTIONS", origin=SHOP)
    assert (status, headers[ALLOWED]) == (405, SHOP)


async def test_any_page_may_read_if_that_is_said(serving):
    server = serving(origins=("*",))
    for origin in ("https://evil.example", "null"):
        _, headers, _ = await ask(server, "/health", origin=origin)
        assert headers.get_all(ALLOWED) == [origin]
        assert "access-control-allow-credentials" not in headers


async def test_a_form_of_a_page_that_is_welcome_executes_nothing(serving):
    """A form needs no preflight, and what it sends is no JSON."""
    server = serving(origins=(SHOP,))
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, _, body = await ask(server, "/graphql", "POST", QUERY, origin=SHOP, content_type=kind)
        assert status == 415
        assert "data" not in json.loads(body)


async def test_a_name_that_is_not_the_servers_stays_closed_to_its_own_pages(log):
    """A page that has its name point here (DNS rebinding) is of an origin that is not welcome."""
    with serve(log, origins=[SHOP]) as server:
        for method in ("GET", "OPTIONS"):
            status, headers, _ = await ask(
                server,
                "/health",
                method,
                host=f"evil.example:{server.port}",
                origin=f"http://evil.example:{server.port}",
                access_control_request_method="GET",
            )
            assert (status, headers[ALLOWED]) == (421, None)

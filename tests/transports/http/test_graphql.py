"""GraphQL over HTTP, and the page for browsers."""

import asyncio
import gzip
import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
from graphql import get_introspection_query

from tests.transports.principals import knowing
from transports.http.graphql import _negotiate

STRICT = "application/graphql-response+json"
PLAIN = "application/json"


async def fetch(url, body=None, method=None, **headers):
    def work():
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named.setdefault("content-type", PLAIN)
        request = urllib.request.Request(url, data=body, headers=named, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    return await asyncio.to_thread(work)


async def post(server, query, accept=STRICT, **rest):
    body = json.dumps({"query": query, **rest}).encode()
    status, headers, data = await fetch(server.graphql_url, body, accept=accept)
    assert headers["content-type"] == f"{accept}; charset=utf-8"
    return status, json.loads(data)


def asking(server, **parameters):
    return server.graphql_url + "?" + urllib.parse.urlencode(parameters)


async def test_a_query_is_answered_by_post_and_by_get(serving, fill):
    fill(2)
    server = serving()
    query = "query Q($n: Int!) { history(limit: $n) { changes { key body } } }"
    data = {"history": {"changes": [{"key": None, "body": None}, {"key": "0-0", "body": {"value": "x"}}]}}
    for accept in (STRICT, PLAIN):
        status, answer = await post(server, query, accept, variables={"n": 2}, operationName="Q")
        assert status == 200
        assert answer["data"]["history"]["changes"][1] == data["history"]["changes"][1]
        url = asking(server, query=query, variables='{"n":2}', operationName="Q")
        status, _, body = await fetch(url, accept=accept)
        assert (status, json.loads(body)) == (200, answer)


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("{", {}),
        ("{ nonsense }", {}),
        ("query ($n: Int!) { history(limit: $n) { next } }", {}),
        ("query ($n: Int!) { history(limit: $n) { next } }", {"n": "x"}),
    ],
)
async def test_a_request_that_is_not_executed_has_no_data_and_the_status_of_its_media_type(
    serving, query, variables
):
    server = serving()
    for accept, expected in ((STRICT, 400), (PLAIN, 200)):
        status, answer = await post(server, query, accept, variables=variables)
        assert status == expected
        assert list(answer) == ["errors"]


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_the_hash_of_a_persisted_query_is_refused_as_apollo_understands_it(serving, fill, method):
    fill(1)
    server = serving()
    extensions = {"persistedQuery": {"version": 1, "sha256Hash": "0" * 64}}
    for accept, expected in ((STRICT, 400), (PLAIN, 200)):
        for query in ({}, {"query": None}) if method == "POST" else ({},):
            if method == "POST":
                body = json.dumps({**query, "extensions": extensions}).encode()
                status, _, data = await fetch(server.graphql_url, body, accept=accept)
            else:
                status, _, data = await fetch(
                    asking(server, extensions=json.dumps(extensions)), accept=accept
                )
            assert status == expected
            (error,) = json.loads(data)["errors"]
            assert error["message"] == "PersistedQueryNotSupported"
            assert error["extensions"]["code"] == "PERSISTED_QUERY_NOT_SUPPORTED"
    status, answer = await post(server, "{ __typename }", extensions=extensions)
    assert (status, answer["data"]) == (200, {"__typename": "Query"})


async def test_an_error_of_a_field_has_status_200(serving):
    status, answer = await post(serving(), '{ history(since: "x") { next } }')
    assert status == 200
    assert answer["data"] is None
    assert answer["errors"][0]["extensions"]["code"] == "CURSOR_INVALID"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"query":1}',
        b'{"query":"{a}","variables":1}',
        b'{"query":"{a}","variables":[]}',
        b'{"query":"{a}","operationName":1}',
        b'{"query":"{a}","extensions":"x"}',
    ],
)
async def test_a_body_that_is_no_request_gets_400(serving, body):
    status, headers, data = await fetch(serving().graphql_url, body)
    assert status == 400
    assert headers["content-type"].startswith(PLAIN)
    assert json.loads(data)["errors"][0]["extensions"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "parameters", [{}, {"query": "{a}", "variables": "{"}, {"query": "{a}", "extensions": "1"}]
)
async def test_parameters_that_are_no_request_get_400(serving, parameters):
    assert (await fetch(asking(serving(), **parameters), accept=PLAIN))[0] == 400


async def test_what_is_not_served_is_told_with_its_status(serving):
    server = serving(message_bytes=1000)
    url = server.graphql_url
    query = b'{"query":"{__typename}"}'
    assert (await fetch(url, query, method="PUT"))[0] == 405
    assert (await fetch(url, query, method="PUT"))[1]["allow"] == "GET, POST"
    assert (await fetch(url, query, content_type="text/plain"))[0] == 415
    assert (await fetch(url, query, content_type="application/json; charset=latin-1"))[0] == 415
    assert (await fetch(url, query, content_type='application/json; charset="UTF-8"'))[0] == 200
    assert (await fetch(url, query, accept="image/png"))[0] == 406
    assert (await fetch(url, b" " * 1001))[0] == 413
    assert (await fetch(url + "/../secret"))[0] == 404
    assert (await fetch(url + "/nothing.js"))[0] == 404
    assert (await fetch(asking(server, query="mutation { a }"), accept=STRICT))[0] == 400


async def test_a_subscription_is_sent_to_the_web_socket(serving):
    server = serving()
    status, answer = await post(server, "subscription { onChange { key } }")
    assert status == 400
    assert "WebSocket" in answer["errors"][0]["message"]
    status, headers, _ = await fetch(asking(server, query="subscription { onChange { key } }"), accept=STRICT)
    assert (status, headers["allow"]) == (405, "POST")


async def test_a_failure_of_ours_gets_500_and_an_id(serving, monkeypatch, caplog):
    from transports.graphql.execution import GraphQLOperation

    server = serving()
    monkeypatch.setattr(GraphQLOperation, "run", lambda *_: {}["secret"])
    status, _, body = await fetch(server.graphql_url, b'{"query":"{__typename}"}')
    (error,) = json.loads(body)["errors"]
    assert status == 500
    assert error["extensions"]["id"] in caplog.text
    assert b"secret" not in body


async def test_a_token_is_judged(serving):
    server = serving(authenticate=knowing("right"))
    query = b'{"query":"{__typename}"}'
    status, headers, body = await fetch(server.graphql_url, query)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert [error["extensions"]["code"] for error in json.loads(body)["errors"]] == ["UNAUTHENTICATED"]
    assert (await fetch(server.graphql_url, query, authorization="Bearer wrong"))[0] == 401
    assert (await fetch(server.graphql_url, query, authorization="Bearer right"))[0] == 200


async def test_tools_may_ask_for_the_schema(serving):
    status, answer = await post(serving(), get_introspection_query(input_value_deprecation=True))
    assert status == 200
    assert {"Change", "Long", "Cursor", "JSON"} <= {
        each["name"] for each in answer["data"]["__schema"]["types"]
    }


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", PLAIN),
        ("application/*", PLAIN),
        (PLAIN, PLAIN),
        (STRICT, STRICT),
        (f"{STRICT}, {PLAIN};q=0.9", STRICT),
        (f"{PLAIN};q=0.9, {STRICT}", STRICT),
        (f"{PLAIN}, {STRICT}", PLAIN),
        (f"{STRICT};charset=utf-8", STRICT),
        (f"{STRICT};q=0", None),
        (f"{STRICT};q=x", None),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("image/png", None),
        ("", None),
    ],
)
def test_the_media_type_is_the_one_that_the_client_likes_best(accept, chosen):
    assert _negotiate(accept) == chosen


# The page.


async def test_browsers_get_a_page_that_needs_nothing_from_elsewhere(serving):
    server = serving()
    status, headers, page = await fetch(server.graphql_url, accept="text/html,*/*;q=0.8")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"//" not in re.sub(rb"<!.*?>", b"", page)
    for path in re.findall(rb'(?:src|href)="(/.*?)"', page):
        status, headers, _ = await fetch(server.graphql_url.replace("/graphql", path.decode()), accept="*/*")
        assert status == 200
        assert headers["content-type"] in ("text/javascript; charset=utf-8", "text/css; charset=utf-8")


@pytest.mark.parametrize("accepted", ["gzip, br", "br, *;q=0.1", "GZIP;q=0.5"])
async def test_the_bundle_is_sent_as_it_lies_in_the_package(serving, accepted):
    """F147: no reader has it unpacked on the server."""
    url = serving().graphql_url + "/graphiql.js"
    _, headers, packed = await fetch(url, accept_encoding=accepted)
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert b"GraphiQL" in gzip.decompress(packed)
    assert len(packed) < 500_000


@pytest.mark.parametrize("accepted", ["identity", "br", "gzip;q=0, br", ""])
async def test_who_takes_nothing_compressed_is_told_what_there_is(serving, accepted):
    status, _, body = await fetch(serving().graphql_url + "/graphiql.js", accept_encoding=accepted)
    assert status == 406
    assert b"accept the encoding gzip" in body


async def test_the_licences_of_the_bundle_are_sent_with_it(serving):
    status, _, text = await fetch(serving().graphql_url + "/LICENSES.txt")
    assert status == 200
    for name in (b"graphiql 3", b"react 18", b"graphql-ws 6", b"codemirror 5"):
        assert name in text


async def test_without_the_extra_the_path_says_what_to_install(serving, monkeypatch):
    server = serving()
    monkeypatch.setitem(sys.modules, "transports.server.graphql_endpoint", None)
    status, _, body = await fetch(server.graphql_url)
    assert status == 404
    assert json.loads(body)["error"].endswith("pip install 'penstock-cdc[graphql]'")
    assert (await fetch(server.health_url))[0] == 200


def test_nothing_else_needs_the_extra():
    code = (
        "import asyncio, sys\n"
        "for name in ('strawberry', 'graphql'): sys.modules[name] = None\n"
        "import transports, transports.cli\n"
        "import transports.server.asgi as application\n"
        "served = application.Application({})\n"
        "assert asyncio.run(served._load_graphql()) is None\n"
        "print(served._elsewhere('/graphql', ''))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "GraphQL needs strawberry, which is not installed; run: pip install 'penstock-cdc[graphql]'\n"
    )

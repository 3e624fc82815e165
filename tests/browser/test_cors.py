"""Pages of another origin in a real browser: what they may read of a server, and what not."""

import contextlib
import http.server
import json
import threading

import pytest

from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.transports.principals import knowing
from transports import serve


@pytest.fixture
def page():
    """An empty page, under any name that ends with .example; yields its port."""

    class Empty(http.server.BaseHTTPRequestHandler):
        timeout = 1.0  # a browser opens connections in advance, and says nothing on them

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>a page</title>")

        def log_message(self, *_args):
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def served(page, tmp_path):
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(ChangeLog.open(tmp_path / "shop"))
        log.commit([upsert("order", "1", {"total": 1})])

        def start(**options):
            return stack.enter_context(serve(log, origins=[f"http://shop.example:{page}"], **options))

        yield start


def fetched(tab, url, **options):
    """What a page's fetch gives: the status and the body, or the name of the error."""
    asked = json.dumps(options)
    return tab.run(
        f"fetch({json.dumps(url)}, {asked}).then(async (r) => [r.status, await r.text()], (e) => e.name)"
    )


def post(token=None, **more):
    headers = {"Content-Type": "application/json", "Apollo-Require-Preflight": "true", **more}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {"method": "POST", "headers": headers, "body": json.dumps({"query": "{ logs { name } }"})}


def test_a_page_that_is_welcome_fetches_and_asks(tab, page, served):
    url = f"http://127.0.0.1:{served(authenticate=knowing('right')).port}"
    tab.open(f"http://shop.example:{page}/")
    status, body = fetched(tab, f"{url}/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    status, body = fetched(tab, f"{url}/statistics", headers={"Authorization": "Bearer right"})
    assert (status, list(json.loads(body)["logs"])) == (200, ["shop"])
    status, body = fetched(tab, f"{url}/graphql", **post("right"))
    assert (status, json.loads(body)) == (200, {"data": {"logs": [{"name": "shop"}]}})
    status, body = fetched(tab, f"{url}/graphql", **post("wrong"))
    assert status == 401
    assert "token" in json.loads(body)["errors"][0]["message"]
    status, body = fetched(tab, f"{url}/elsewhere")
    assert (status, "is not served" in body) == (404, True)
    tab.complaints = [one for one in tab.complaints if " 401 " not in one and " 404 " not in one]


def test_a_page_that_is_welcome_imports_the_client_and_follows_the_log(tab, page, served):
    server = served()
    tab.open(f"http://shop.example:{page}/")
    told = tab.run(
        f"""(async () => {{
          const {{ connect }} = await import("http://127.0.0.1:{server.port}/board/penstock.js");
          const client = connect("{server.url}");
          const changes = client.changes({{ criteria: [{{ entity_types: ["order"] }}], start: "earliest" }});
          const {{ value }} = await changes.next();
          client.close();
          return value.key;
        }})()"""
    )
    assert told == "1"


def test_a_page_that_is_not_welcome_reads_nothing(tab, page, served):
    url = f"http://127.0.0.1:{served().port}"
    tab.open(f"http://evil.example:{page}/")
    assert fetched(tab, f"{url}/health") == "TypeError"
    assert fetched(tab, f"{url}/graphql", **post()) == "TypeError"
    assert fetched(tab, f"{url}/board/penstock.js") == "TypeError"
    tab.run("0")
    assert sum("blocked by CORS policy" in one for one in tab.complaints) == 3
    tab.complaints.clear()

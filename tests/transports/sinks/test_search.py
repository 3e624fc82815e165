"""Documents of a search engine: the lines of bulk requests, and what is made of its answers; a real one is in tests/servers."""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import remove, truncate, upsert
from tests.harness.constants import set_constant
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import GoingClock, rigged
from tests.transports.sinks.test_switch import left_out
from transports.sinks import SinkState, search_connection
from transports.sinks.search import SearchSink


class Engine(BaseHTTPRequestHandler):
    """Answers bulk requests: with what is planned, or well."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        place = self.server.place
        body = self.server.kept or json.dumps({"found": place is not None, "_source": place}).encode()
        self.send_response(404 if place is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "100")  # of the answer to GET
        self.end_headers()

    def do_POST(self):
        if self.path.endswith(("/_search", "/_refresh")):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            found = self.server.searches
            answer = b"{}" if "refresh" in self.path else found.pop(0) if found else b'{"hits":{"hits":[]}}'
            found += [answer] * (self.server.endless and "search" in self.path)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        lines = self.rfile.read(int(self.headers["content-length"])).split(b"\n")
        mark, place = map(json.loads, lines[:2])
        assert mark["index"]["_index"].endswith("penstock-places")
        lines = lines[2:]
        self.server.lines += [json.loads(one) for one in lines if one]
        actions = [one for one in map(json.loads, filter(None, lines)) if set(one) & {"index", "delete"}]
        plan = self.server.plan.pop(0) if self.server.plan else 200
        if plan == "silent":
            self.server.released.wait(60)
            self.close_connection = True
            return
        if callable(plan):
            self.close_connection = True
            with contextlib.suppress(OSError):
                plan(self)
            return
        if isinstance(plan, int):
            status, statuses = plan, [200] * len(actions)
        else:
            status, statuses = 200, plan
        items = [
            {next(iter(one)): {"status": each, "error": {"type": "t", "reason": "r"}}}
            for one, each in zip(actions, statuses, strict=False)
        ]
        if status == 200:
            self.server.place = place
        items.insert(0, {"index": {"status": 200}})
        body = json.dumps({"items": items}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        document = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "place" in document:
            self.server.place = document
        else:
            self.server.documents.append((self.path, document))
        status = self.server.plan.pop(0) if self.server.plan else 201
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        server.plan, server.lines, server.documents, server.place, server.kept = [], [], [], None, None
        server.searches, server.endless = [], False
        server.released = threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sink(engine, **options):
    return SearchSink(f"http://127.0.0.1:{engine.server_address[1]}", "shop-{entity_type}", **options)


def test_documents_are_in_the_index_of_their_entity_type(engine, tmp_path):
    """F105: without a name of an index."""
    target = SearchSink(f"http://127.0.0.1:{engine.server_address[1]}")
    with rigged(tmp_path / "log", target) as rig:
        rig.log.commit([upsert("Order", "1", {"n": 1}), upsert("bill", "1", {"n": 2}), remove("bill", "2")])
        rig.drained()
    told = [action for line in engine.lines for action in line.values() if isinstance(action, dict)]
    assert [(one["_index"], one["_id"]) for one in told] == [("order", "1"), ("bill", "1"), ("bill", "2")]


def test_an_engine_that_answers_without_a_body_answers(engine, tmp_path):
    """F105: as to HEAD, by which an index and the engine itself are asked for."""
    target = sink(engine)
    with rigged(tmp_path / "log", target) as rig:
        rig.commit("a")
        rig.drained()
        assert target.alive()


def test_documents_have_the_key_as_id_and_the_position_as_version(engine, tmp_path):
    """F105."""
    with rigged(tmp_path / "log", sink(engine)) as rig:
        rig.log.commit([upsert("Order", "1", b'{"n":\n1}'), remove("Order", "2")])
        rig.drained()
        what = {"_index": "shop-order", "version_type": "external"}
        assert engine.lines == [
            {"index": {**what, "_id": "1", "version": 2**20 + 1}},
            {"n": 1},
            {"delete": {**what, "_id": "2", "version": 2**20 + 2}},
        ]


def test_conflicts_and_unknown_deletions_are_good_and_single_changes_are_tried_again_or_poison(
    engine, tmp_path
):
    """F100, F105: 409, 404 of a delete, 429, 400."""
    with rigged(tmp_path / "log", sink(engine), on_reject="drop") as rig:
        engine.plan = [[409, 404, 429, 400]]
        rig.log.commit([upsert("a", "1", {}), remove("a", "2"), upsert("a", "3", {}), upsert("a", "4", {})])
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        rig.later(60.0)
        rig.drained()
        assert rig.runner.counters.dropped == 1
        assert engine.lines[-2]["index"]["_id"] == "3"


@pytest.mark.parametrize(
    ("index", "name"), [("shop-{entity_type}", "shop-penstock-gaps"), ("shop", "shop-penstock-gaps")]
)
def test_what_was_left_out_is_a_document_before_what_follows(engine, tmp_path, index, name):
    """F105, F127: the same one each time that it is told."""
    url = f"http://127.0.0.1:{engine.server_address[1]}"
    with rigged(tmp_path / "log", SearchSink(url, index)) as rig:
        engine.plan = [200, 503]  # a batch, then the document
        gap = left_out(rig)
        log_id = rig.log.log_id.hex
        told = {"log": "log", "log_id": log_id, "sink": "stock", **gap}
        path = f"/{name}/_doc/{quote('stock:' + gap['first'], safe='')}"
        assert engine.documents == [(path, told)] * 2
        assert [one["index"]["_id"] for one in engine.lines if "index" in one] == ["1", "3"]


@pytest.mark.parametrize(("status", "state"), [(503, SinkState.RETRYING), (401, SinkState.PAUSED)])
def test_a_refused_request_is_judged(engine, tmp_path, status, state):
    """F125."""
    with rigged(tmp_path / "log", sink(engine)) as rig:
        engine.plan = [status]
        rig.commit("a")
        rig.until(lambda: rig.runner.state is state)
        rig.later(60.0)
        rig.runner.resume()
        rig.drained()


def test_an_engine_that_does_not_answer_in_time_is_tried_again(tmp_path):
    """F105: it is down, and has refused nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with rigged(tmp_path, SearchSink(url, timeout=0.05)) as rig:
            rig.commit("a")
            rig.until(lambda: rig.runner.counters.failures)
            assert rig.runner.state is SinkState.RETRYING


@pytest.mark.parametrize(("kind", "key"), [("a b", "1"), ("a", "k" * 600), ("a", b"\xff")])
def test_what_can_be_no_document_is_poison(engine, tmp_path, kind, key):
    with rigged(tmp_path / "log", sink(engine)) as rig:
        rig.log.commit([upsert(kind, key, {})])
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)


@pytest.mark.parametrize("arguments", [{"url": "x"}, {"index": "{key}"}, {"index": "A"}, {"timeout": 0}])
def test_what_is_out_of_its_bounds_is_refused(arguments):
    with pytest.raises(InvalidOption):
        SearchSink(**{"url": "http://x", **arguments})


def test_an_engine_that_does_not_answer_in_time_is_asked_again(engine, tmp_path):
    """F105, F125: its client calls that by another name than a connection that fails."""
    engine.plan = ["silent"]
    with rigged(tmp_path / "log", sink(engine, timeout=0.1)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert "Timeout" in rig.runner.statistics().last_error
        engine.released.set()
        rig.later(5.0)
        rig.drained()


def says(body):
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return lambda one: one.wfile.write(head.encode() + body)


def drips(beginning):
    """A byte now and then, until the other side has closed."""

    def plan(one):
        one.wfile.write(beginning)
        while not one.server.released.wait(0.02):
            one.wfile.write(b" ")

    return plan


def endless(one):
    one.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        one.wfile.write(b" " * 100_000)


TAKEN = {"index": {"status": 201}}
LIES = {
    "nothing": says(b""),
    "a page": says(b"<html>fine</html>"),
    "null": says(b"null"),
    "no items": says(b'{"ok": true}'),
    "fewer items": says(json.dumps({"items": [TAKEN]}).encode()),
    "each item twice": says(json.dumps({"items": [TAKEN] * 4}).encode()),
    "items of another kind": says(b'{"items": [1, 2]}'),
    "states that are none": says(json.dumps({"items": [TAKEN, {"index": {"status": "fine"}}]}).encode()),
    "a head in drips": drips(b"HTTP/1.1 200 OK\r\nx: "),
    "a body in drips": drips(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"),
    "no end": endless,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_an_engine_that_lies_is_asked_again(engine, tmp_path, monkeypatch, lie):
    """F105: nothing passes for written, and neither time nor memory is without a bound."""
    set_constant(monkeypatch, search_connection, "ANSWER_BYTES", 1_000_000)
    engine.plan = [lie]
    with rigged(tmp_path / "log", sink(engine, timeout=0.2 if "drips" in lie.__qualname__ else 10.0)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        engine.released.set()
        rig.later(5.0)
        rig.drained()


@pytest.mark.parametrize(
    "kept", [b"null", b"[]", b'{"found": true}', b'{"found": true, "_source": {"place": 5}}', b"{"]
)
def test_an_engine_that_lies_about_the_place_is_asked_again(engine, tmp_path, kept):
    """F105, F125."""
    engine.kept = kept
    with rigged(tmp_path / "log", sink(engine)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is not SinkState.STARTING)
        assert rig.runner.state is SinkState.RETRYING
        engine.kept = None
        rig.later(60.0)
        rig.drained()


HITS = b'{"hits":{"hits":[{"_id":"1","sort":["1"]}]}}'


@pytest.mark.parametrize(
    "found",
    [b"null", b"{}", b'{"hits": 5}', b'{"hits": {"hits": [5]}}', b'{"hits": {"hits": [{"_id": "1"}]}}'],
)
def test_an_engine_that_lies_about_the_documents_of_a_truncate_is_asked_again(engine, tmp_path, found):
    """F105, F125."""
    engine.searches = [found, HITS, HITS]
    with rigged(tmp_path / "log", sink(engine)) as rig:
        rig.log.commit([truncate("order")])
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(60.0)
        rig.drained()
        what = {"_index": "shop-order", "_id": "1", "version": 2**20 + 1, "version_type": "external"}
        assert engine.lines == [{"delete": what}] * 2


def test_documents_without_end_keep_no_sink_from_its_orders(engine, tmp_path):
    """F105."""
    engine.searches, engine.endless = [HITS], True
    with rigged(tmp_path / "log", sink(engine), clock=GoingClock()) as rig:
        rig.log.commit([truncate("order")])
        runner = rig.runner.start()
        wait_until(lambda: len(engine.lines) > 3)
        runner.pause().result(30)
        assert runner.state is SinkState.PAUSED
        runner.close(30)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:s3cr3t@search.example:9200/x?key=s3cr3t", "https://search.example:9200"),
        ("https://ann:s3/cr3t@search.example", "https://search.example"),
        ("http://search.example?key=s3cr3t", "http://search.example"),
        ("env:SEARCH_URL", "env:SEARCH_URL"),
    ],
)
def test_the_engine_and_the_index_are_shown_without_credentials(url, shown):
    """F142: as `penstock sinks list` prints them."""
    assert repr(SearchSink(url, "shop-{entity_type}")) == f"<SearchSink {shown} shop-{{entity_type}}>"

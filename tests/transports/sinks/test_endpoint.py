"""``/sinks``: declared, moved and dropped over HTTP by those who may, and by nobody else."""

import itertools
import json
import re
import urllib.error
import urllib.request

import pytest

from publishers import ChangeLog, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.targets import QUICK, Target
from transports import Grant, LogAction, Principal, serve
from transports.sinks import LogSinks, SinkError, SinkOptions
from transports.sinks.declared import KINDS_FROM_AFAR, StoredSinks, secrets_of
from transports.sinks.endpoint import SinksEndpoint
from transports.sinks.webhook import WebhookSink

ACTIONS = {
    "reader": {LogAction.READ},
    "operator": {LogAction.READ, LogAction.OPERATE},
    "manager": {LogAction.MANAGE},
}


def authenticate(credentials):
    return Principal(credentials.token) if credentials.token in ACTIONS else None


authenticate.quick = True


def authorise(principal, _log, _action):
    return Grant(ACTIONS[principal.name])


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Served:
    """A log that is served with its sinks, and a client of it."""

    def __init__(self, log, sinks, server):
        self.log, self.sinks, self._server = log, sinks, server

    def ask(self, method, path, told=None, *, who="manager", headers=None):
        data = None if told is None else told if isinstance(told, bytes) else json.dumps(told).encode()
        given = {"authorization": f"Bearer {who}", "content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(
            self._server.health_url.removesuffix("/health") + path, data, given, method=method
        )
        try:
            with _DIRECT.open(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")


@pytest.fixture
def served(tmp_path):
    with (
        ChangeLog.open(tmp_path / "shop", **QUICK, state=True) as log,
        LogSinks(log) as sinks,
        serve(log, port=0, authenticate=authenticate, authorise=authorise) as server,
    ):
        stored = StoredSinks(log.path, sinks.log_name)

        def make(**given):
            return SinksEndpoint(sinks, stored, KINDS_FROM_AFAR, **given)

        server.application.mount("sinks", make)
        made = Served(log, sinks, server)
        yield made


HOOK = {
    "name": "hook",
    "kind": "webhook",
    "url": "http://shop.example/hook",
    "start": "earliest",
    "linger": 0.0,
}


def test_those_who_may_manage_declare_look_at_and_drop_sinks(served):
    """F109: by code, by file, and here; what was declared is there after a restart."""
    status, told = served.ask("POST", "/sinks", HOOK)
    assert (status, told["state"]) == (201, told["state"])
    assert list(served.sinks) == ["hook"]
    assert served.ask("GET", "/sinks")[1]["log"] == "shop"
    assert served.ask("GET", "/sinks/hook")[1].keys() == told.keys()
    (file,) = (served.log.path / "sinks").glob("*.declared.json")
    assert file.stat().st_mode & 0o777 == 0o600  # it may hold a secret
    (kept,) = StoredSinks(served.log.path, "shop")
    assert (kept.name, kept.kind, kept.options.linger) == ("hook", "webhook", 0.0)
    wait_until(lambda: "hook" in served.log.slots)
    assert served.ask("DELETE", "/sinks/hook") == (200, {"dropped": "hook"})
    assert (list(served.sinks), list(StoredSinks(served.log.path, "shop")), list(served.log.slots)) == (
        [],
        [],
        [],
    )
    assert served.ask("GET", "/sinks/hook")[0] == 404


def test_a_sink_that_would_be_there_again_after_a_restart_is_not_dropped(tmp_path, served):
    """F109: one of a file, also if it was declared here before, and one of the program."""
    served.sinks.add("stock", Target(), SinkOptions())
    status, told = served.ask("DELETE", "/sinks/stock")
    assert (status, told["error"]) == (
        409,
        "sink 'stock' is declared by the program: remove it there, or switch it off",
    )
    assert served.ask("POST", "/sinks", HOOK)[0] == 201
    file = tmp_path / "penstock.toml"
    stored = StoredSinks(served.log.path, "shop", {"hook": None}, file)
    assert list(stored) == []  # that of the file counts
    with pytest.raises(SinkError) as refused:
        stored.check_kept("hook")
    assert str(refused.value) == f"sink 'hook' is declared in {file}: remove it there, or switch it off"
    assert list(served.sinks) == ["stock", "hook"]


def test_they_order_what_a_sink_does(served):
    """F109, F127: each order, and the status that follows."""
    target = Target()
    served.sinks.add("stock", target, SinkOptions(since="earliest", linger=0.0, store_every=0.05))
    served.log.commit([upsert("order", "a", {})])
    wait_until(lambda: target.keys == ["a"])
    assert served.ask("POST", "/sinks/stock/pause")[1]["state"] == "PAUSED"
    assert served.ask("POST", "/sinks/stock/seek", {"place": "earliest"})[1]["position"] == "1:0"
    assert served.ask("POST", "/sinks/stock/resume")[0] == 200
    wait_until(lambda: target.keys == ["a", "a"])
    assert served.ask("POST", "/sinks/stock/again", {"criteria": [{"entity_types": ["order"]}]})[0] == 200
    wait_until(lambda: target.keys == ["a", "a", "a"] and served.sinks["stock"].state.name == "STREAMING")
    assert served.ask("POST", "/sinks/stock/test") == (200, {"said": "the target answers"})
    assert served.ask("POST", "/sinks/stock/off")[1]["state"] == "OFF"
    served.log.commit([upsert("order", "b", {})])
    status, told = served.ask("POST", "/sinks/stock/on", {"place": "latest"})
    assert (status, told["gap"].keys()) == (200, {"first", "next"})
    served.log.commit([upsert("order", "c", {})])
    wait_until(lambda: target.keys[-1] == "c")


def test_a_test_sends_one_signed_example_and_tells_what_the_target_said(served, monkeypatch):
    """F109: to a target that is known to be reached."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    with Receiver() as receiver:
        receiver.plan = [(200, {}, b"welcome"), (404, {}, b"who?")]
        hook = WebhookSink(receiver.url, allow=["127.0.0.0/8", "::1/128"], secrets=["env:HOOK_SECRET"])
        served.sinks.add("hook", hook, SinkOptions())
        status, told = served.ask("POST", "/sinks/hook/test")
        assert (status, told["said"]) == (200, f"{receiver.url} answered 200: welcome")
        example = receiver.received[0]
        assert example.headers["penstock-test"] == "true"
        assert example.headers["webhook-signature"].startswith("v1,")
        assert json.loads(example.body)["changes"][0]["entity_type"] == "penstock-example"
        status, told = served.ask("POST", "/sinks/hook/test")
        assert (status, told["error"]) == (409, f"{receiver.url} answered 404: who?")


def test_the_example_of_a_test_has_the_ids_and_the_position_of_no_change(served, monkeypatch):
    """F109: a receiver that recognises repeats would take the first batch for one."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    served.log.commit([upsert("order", "a", {})])
    with Receiver() as receiver:
        hook = WebhookSink(receiver.url, allow=["127.0.0.0/8", "::1/128"], secrets=["env:HOOK_SECRET"])
        served.sinks.add("hook", hook, SinkOptions(since="earliest"))
        assert served.ask("POST", "/sinks/hook/test")[0] == 200
        wait_until(lambda: len(receiver.received) >= 2)
        (example,) = [one for one in receiver.received if "penstock-test" in one.headers]
        real = [one for one in receiver.received if one is not example]
        assert example.headers["webhook-id"] not in {one.headers["webhook-id"] for one in real}
        (sent,) = json.loads(example.body)["changes"]
        assert (sent["version"], sent["index"]) == (0, 0)
        assert sent["id"] not in {one["id"] for batch in real for one in json.loads(batch.body)["changes"]}


@pytest.mark.parametrize(
    ("who", "method", "path", "status"),
    [
        ("stranger", "GET", "/sinks", 401),
        ("reader", "GET", "/sinks", 403),
        ("operator", "GET", "/sinks", 200),
        ("operator", "POST", "/sinks", 403),
        ("operator", "POST", "/sinks/stock/pause", 403),
        ("operator", "DELETE", "/sinks/stock", 403),
        ("manager", "GET", "/sinks", 200),
        ("manager", "DELETE", "/sinks/other", 404),
        ("manager", "PUT", "/sinks/stock", 400),
        ("manager", "POST", "/sinks/stock/explode", 400),
    ],
)
def test_what_each_may_do(served, who, method, path, status):
    """F109, F140."""
    served.sinks.add("stock", Target(), SinkOptions())
    found = served.ask(method, path, {} if method == "POST" else None, who=who)
    assert found[0] == status
    assert list(served.sinks) == ["stock"]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"kind": "file", "directory": "/etc"}, "a kind that may be declared over HTTP: webhook"),
        ({"allow": ["127.0.0.0/8"]}, "only a file of the server may have it"),
        ({"tls": {"ca": "/etc/passwd"}}, "only a file of the server may have it"),
        ({"dead_letters": "/etc/cron.d/x"}, "only a file of the server may have it"),
        ({"secrets": ["file:/etc/passwd"]}, "a reference that begins with env:PENSTOCK_SINK_shop__hook__"),
        (
            {"headers": {"x": "env:AWS_SECRET_ACCESS_KEY"}},
            "a reference that begins with env:PENSTOCK_SINK_shop__hook__",
        ),
        (
            {"secrets": ["env:PENSTOCK_SINK_other__hook__SECRET"]},
            "a reference that begins with env:PENSTOCK_SINK_shop__hook__",
        ),
        (
            {"url": "env:PENSTOCK_SINK_shop__stock__URL"},
            "a reference that begins with env:PENSTOCK_SINK_shop__hook__",
        ),
        ({"url": "env:HOME"}, "a reference that begins with env:PENSTOCK_SINK_shop__hook__"),
        ({"url": "http://ann:s3cr3t@shop.example/"}, "an address without credentials"),
        ({"url": "file:///etc/passwd"}, "a reference that begins with"),
        ({"url": "http://[x/"}, "an address without credentials"),
        ({"name": "A B"}, "name"),
        ({"name": "stock"}, "another name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_reaches_for_more_than_it_may_is_refused(served, told, says):
    """F109, F141, F142: files, private networks, and the secrets of others."""
    served.sinks.add("stock", Target(), SinkOptions())
    status, answer = served.ask("POST", "/sinks", {**HOOK, **told})
    assert (status, says in answer["error"]) == (400, True), answer
    assert "s3cr3t" not in answer["error"]
    assert (list(served.sinks), list(StoredSinks(served.log.path, "shop"))) == (["stock"], [])


def test_secrets_of_no_two_sinks_begin_alike():
    """F142: whatever their logs and they are called; those of the sink itself are taken."""
    names = ["a", "A", "a_", "_a", "a-b", "a_b", "a__b", "a.b", "a_5Fb", "b", "__"]
    own = {(log, sink): secrets_of(log, sink) for log in names for sink in names}
    for one, other in itertools.permutations(own, 2):
        assert not own[one].startswith(own[other]), (one, other)
    assert all(re.fullmatch(r"env:PENSTOCK_SINK_\w+__", one, re.ASCII) for one in own.values())


def test_a_sink_takes_its_own_secrets(served):
    """F109, F142."""
    declared = {**HOOK, "secrets": ["env:PENSTOCK_SINK_shop__hook__SECRET"]}
    assert served.ask("POST", "/sinks", declared)[0] == 201


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b" " * 70_000, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 400),
        (b'{"place":7}', {}, 400),
        (b'{"colour":"red"}', {}, 400),
        (b'{"place":"nowhere"}', {}, 400),
        (b'{"place":"99"}', {}, 409),
        (b'{"place":"1"}', {"origin": "http://evil.example"}, 403),
    ],
)
def test_a_request_that_is_none_is_refused(served, body, headers, status):
    """F109."""
    served.sinks.add("stock", Target(), SinkOptions())
    found = served.ask("POST", "/sinks/stock/seek", body, headers=headers)
    assert found[0] == status
    assert found[1]["error"]


def test_a_declaration_of_a_strange_hand_is_told_with_its_file(served):
    """F109."""
    (served.log.path / "sinks").mkdir()
    (served.log.path / "sinks" / "x.declared.json").write_text("{")
    with pytest.raises(ValueError, match=r"x\.declared\.json"):
        list(StoredSinks(served.log.path, "shop"))

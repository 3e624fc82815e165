"""``POST /changes`` over real sockets: every form of body, every status, and what keeps pages of others out."""

import asyncio
import errno
import http.client
import json
import socket
import tempfile
from datetime import datetime

import msgspec
import pytest

from publishers import ChangeLog, Content, Position
from publishers.commits.label import RemoteProducer
from tests.harness.failing import failing
from tests.harness.inside import appending_of, committer_of
from tests.publishers.support import wait_until
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, change

PACKED = "application/msgpack"
LINES = "application/x-ndjson"


@pytest.fixture
def post(serving):
    """Posts to a server that everybody may append to; answers status, what is told, and the headers."""
    servers = []

    def send(body, kind="application/json", query="", *, method="POST", headers=(), **options):
        if not servers or options:
            servers.append(serving(**{"authorise": WRITERS, **options}))
        connection = http.client.HTTPConnection("127.0.0.1", servers[-1].port, timeout=60)
        try:
            data = (
                body
                if isinstance(body, (bytes, type(iter([])))) or hasattr(body, "__next__")
                else json.dumps(body).encode()
            )
            connection.request(method, "/changes" + query, data, {"content-type": kind, **dict(headers)})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}"), dict(answer.headers)
        finally:
            connection.close()

    send.servers = servers
    return send


def lines(*changes):
    return b"".join(json.dumps(one).encode() + b"\n" for one in changes)


def test_a_transaction_is_written_in_each_form(post, log):
    """F145: 201 with its version and the cursor behind it."""
    status, told, headers = post({"changes": [change(1, n=1)], "meta": {"by": "ann"}, "wait": "visible"})
    at = told.pop("timestamp")
    assert (status, told) == (
        201,
        {"version": 1, "cursor": str(log.token(Position(2, 0))), "duplicate": False, "changes": 2},
    )
    assert datetime.fromisoformat(at) == log.time_of(1)
    assert headers["cache-control"] == "no-store"
    assert post(lines(change(2), change(3)), LINES)[1]["changes"] == 3
    packed = msgspec.msgpack.encode({"changes": [change(4), {**change(0), "key": b"\xff"}], "log": "shop"})
    assert post(packed, PACKED, "?wait=accepted")[0] == 201
    assert (
        post((piece for piece in [lines(change(5)), lines(change(6))]), "application/jsonl; charset=utf-8")[0]
        == 201
    )
    changes = log.history(content=Content.BODY).changes
    assert changes[0].meta == {"by": "ann"}
    assert [one.key for one in changes if one.key] == ["1", "2", "3", "4", "\udcff", "5", "6"]


def test_a_repetition_is_200_and_tells_the_version_of_the_first(post, log):
    """F145: idempotent by producer and sequence, whatever the form."""
    for number, version in ((1, 1), (2, 2)):
        status, told, _ = post({"changes": [change(number)], "producer": "etl", "sequence": number})
        assert (status, told["version"]) == (201, version)
    assert post(lines(change(2)), LINES, "?producer=etl&sequence=2")[:2][0] == 200
    status, told, _ = post({"changes": [change(1)]}, query="?producer=etl&sequence=1")
    assert (status, told["version"], told["duplicate"]) == (200, 1, True)
    assert log.visible == 2
    assert log.produced(RemoteProducer("anonymous", "etl")).sequence == 2


def test_an_expectation_that_fails_is_409(post, log, fill):
    """F145: with the place that would be right."""
    place = str(log.token(log.head))
    assert post({"changes": [change(1)], "expect": place})[0] == 201
    status, told, _ = post(lines(change(1)), LINES, f"?expect={place}")
    assert (status, told["code"], told["found"]) == (
        409,
        "EXPECTATION_FAILED",
        str(log.token(Position(2, 0))),
    )
    keys = [{"entity_type": "order", "key": "1"}]
    status, told, _ = post({"changes": [change(1)], "expect": {"cursor": place, "keys": keys}})
    assert (status, told["key"]) == (409, "1")
    other = "0" * 32 + place[32:]
    assert post({"changes": [change(1)], "expect": other})[0] == 409


@pytest.mark.parametrize(
    ("body", "kind", "query", "status", "says"),
    [
        (b"{", "application/json", "", 400, "the body is"),
        (b"[]", "application/json", "", 400, "the body is"),
        ({}, "application/json", "", 400, "changes is"),
        (
            {"changes": [change(1), {"entity_type": "order"}]},
            "application/json",
            "",
            400,
            "changes[1].key is None",
        ),
        (lines(change(1)) + b"\nnonsense\n", LINES, "", 400, "line 3: "),
        (lines(change(1), {"entity_type": "order"}), LINES, "", 400, "line 2: key is None"),
        (b"\xc1", PACKED, "", 400, "the body is"),
        (msgspec.msgpack.encode([1]), PACKED, "", 400, "changes is"),
        (msgspec.msgpack.encode({"changes": [7]}), PACKED, "", 400, "changes[0] is 7"),
        ({"changes": []}, "application/json", "?colour=1", 400, "parameter is 'colour'"),
        ({"changes": []}, "application/json", "?log=a&log=b", 400, "given once"),
        (
            {"changes": [], "log": "shop"},
            "application/json",
            "?log=shop",
            400,
            "in the body or in the address",
        ),
        (lines(change(1)), LINES, "?sequence=x&producer=a", 400, "sequence is 'x'"),
        (lines(change(1)), LINES, "?expect=x", 400, "position"),
        (lines(change(1)), LINES, "?log=none", 404, "shop"),
        (lines(change("k" * 2000)), LINES, "", 413, "max_key_bytes"),
        ({"changes": []}, "text/plain", "", 415, "application/x-ndjson"),
        ({"changes": []}, "application/x-www-form-urlencoded", "", 415, "application/x-ndjson"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_nothing_is_written(
    post, log, body, kind, query, status, says
):
    """F145."""
    found, told, _ = post(body, kind, query)
    assert found == status, told
    assert says in told["error"]
    assert log.head == Position(1, 0)


def test_only_post_is_taken(post):
    """F145."""
    status, told, headers = post({}, method="PUT")
    assert (status, headers["allow"]) == (405, "POST")
    assert "use POST" in told["error"]


def test_pages_of_other_origins_are_refused(post, log):
    """F145: with or without a preflight; those of this machine and named ones may."""
    assert post({"changes": [change(1)]}, headers={"origin": "https://evil.example"})[0] == 403
    assert post({"changes": [change(1)]}, headers={"origin": "http://localhost:3000"})[0] == 201
    status, _, headers = post(
        {"changes": [change(1)]},
        headers={"origin": "https://shop.example"},
        origins=("https://shop.example",),
    )
    assert (status, headers["access-control-allow-origin"]) == (201, "https://shop.example")
    assert log.visible == 2


def test_who_may_not_write_is_told_what_would_allow_it(post, log):
    """F145: 401 without a token, 403 without the right."""
    status, told, _ = post({"changes": [change(1)]}, authorise=None)
    assert (status, told["code"]) == (403, "FORBIDDEN")
    assert "--writable" in told["error"]
    status, _, headers = post({"changes": [change(1)]}, authenticate=knowing("ann"))
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    token = {"authorization": "Bearer ann"}
    assert post(lines(change(1)), LINES, "?producer=etl&sequence=1", headers=token)[0] == 201
    assert log.produced(RemoteProducer("ann", "etl"))
    with ChangeLog.open(log.path, read_only=True) as follower:
        assert post({"changes": [change(1)]}, served={"shop": follower})[:2][0] == 403


def test_bodies_are_bounded(post, log):
    """F145: 413 by what is declared and by what comes, 503 where the server has no room."""
    limits = {"message_bytes": 2_000, "transaction_bytes": 400_000, "spooled_bytes": 2**21}
    large = [change(n, pad="x" * 1000) for n in range(5)]
    status, told, _ = post({"changes": large}, **limits)
    assert status == 413
    assert "application/x-ndjson" in told["error"]
    assert post(lines(*large), LINES)[0] == 201
    status, told, _ = post(lines(*large * 100), LINES)
    assert (status, "transaction_bytes" in told["error"]) == (413, True)
    appending = appending_of(post.servers[-1].application)
    appending.spooled.take("another", 2**20)
    appending.spooled.take("a third", 2**20 - 1)
    status, told, headers = post(lines(*large), LINES)
    assert (status, told["code"], headers["retry-after"]) == (503, "TOO_COSTLY", "1")
    appending.spooled.give("another", 2**20)
    appending.spooled.give("a third", 2**20 - 1)
    status, told, headers = post(lines(*large), LINES, **{**limits, "spooled_bytes": 1_000})
    assert (status, told["code"], "retry-after" in headers) == (413, "TOO_COSTLY", False)
    status, told, _ = post(lines(*large), LINES, **{**limits, "spooled_bytes": 10_000})
    assert (status, told["option"]) == (413, "principal_spooled_bytes")
    appending = appending_of(post.servers[-1].application)
    wait_until(lambda: not appending.spooled.taken and not appending.unanswered.taken)


@pytest.mark.parametrize(
    ("number", "told"), [(errno.ENOSPC, (503, "LOG_FULL")), (errno.EMFILE, (503, "EXHAUSTED"))]
)
def test_lines_that_find_no_room_for_a_file_are_to_be_sent_again(post, log, monkeypatch, number, told):
    """F145: as transactions in parts."""
    failing(monkeypatch, tempfile.SpooledTemporaryFile, "rollover", OSError(number, "no"))
    status, found, headers = post(lines(*(change(n, pad="x" * 1000) for n in range(300))), LINES)
    assert (status, found["code"]) == told
    assert headers["retry-after"] == "1"
    assert log.head == Position(1, 0)
    appending = appending_of(post.servers[-1].application)
    wait_until(lambda: not appending.spooled.taken and not appending.memory.taken)


def test_many_lines_are_streamed_into_one_transaction(post, log):
    """F145: more than a message holds, and more than the log keeps in memory of one."""
    body = (lines(*(change(f"{part}-{n}", pad="x" * 100) for n in range(1000))) for part in range(10))
    status, told, _ = post(body, LINES, "?producer=etl&sequence=1")
    assert (status, told["changes"]) == (201, 10_001)
    again = (lines(*(change(f"{part}-{n}", pad="x" * 100) for n in range(1000))) for part in range(10))
    assert post(again, LINES, "?producer=etl&sequence=1")[0] == 200
    place = str(log.token(Position(1, 0)))
    big = (lines(*(change(n, pad="x" * 100) for n in range(1000))) for _ in range(10))
    assert post(big, LINES, f"?expect={place}")[0] == 409
    assert log.visible == 1


def test_a_client_that_leaves_or_stalls_in_mid_body_writes_nothing(post, log):
    """F145: nothing of it is kept."""
    post({"changes": []}, method="PUT")
    server = post.servers[-1]
    head = b"POST /changes HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-ndjson\r\ncontent-length: 100000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(head + lines(change(1)))
        wait_until(lambda: appending_of(server.application).spooled.taken)
    wait_until(lambda: not appending_of(server.application).spooled.taken)
    post({"changes": []}, method="PUT", request_timeout=0.3)
    server = post.servers[-1]
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(head + lines(change(1)))
        assert peer.recv(1000).startswith(b"HTTP/1.1 408")
    wait_until(lambda: not appending_of(server.application).spooled.taken)
    assert log.head == Position(1, 0)


async def test_concurrent_requests_share_group_commits(post, log):
    """F145: many clients, fewer syncs."""
    post({"changes": [change(0)]})
    groups = committer_of(log).groups
    found = await asyncio.gather(*(asyncio.to_thread(post, {"changes": [change(n)]}) for n in range(40)))
    assert sorted(told["version"] for _, told, _ in found) == list(range(2, 42))
    assert committer_of(log).groups - groups <= 40

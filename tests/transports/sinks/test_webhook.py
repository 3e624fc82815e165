"""Webhooks against real servers that fail on purpose."""

import gzip
import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpcore
import pytest
import standardwebhooks

from publishers import Change, Criterion, InvalidOption, Position
from publishers.model.change import Action, Area, Operation
from publishers.views.view import Content, Integers, View
from tests.publishers.support import wait_until
from tests.transports.certificates import Authority
from tests.transports.sinks.receivers import OK, Receiver, closed_port, server_context
from tests.transports.sinks.targets import HandClock, rigged
from transports.sinks import (
    ItemVerdict,
    SecretReference,
    SinkBatch,
    SinkContext,
    SinkState,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)
from transports.sinks.network import AddressGuard, GuardedNetwork
from transports.sinks.signatures import sign
from transports.sinks.webhook import WebhookSink, WebhookSource, WebhookTls

GOLDEN = Path(__file__).parents[2] / "golden" / "webhooks"
LOOPBACK = ["127.0.0.0/8", "::1/128"]
LOG_ID = "7f3c0000000000000000000000000001"
EPOCH = "3.AAAAAAAAAAE"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
MOMENT = datetime(2025, 11, 20, 8, 0, 0, 123456, UTC)


def change(index=1, version=118, **fields):
    given = {
        "count": 3,
        "timestamp": MOMENT,
        "area": Area.DATA,
        "operation": Operation.UPSERT,
        "entity_type": "product",
        "key": "5",
        "body_bytes": b'{"price":"12.00"}',
    }
    return Change(version=version, index=index, **{**given, **fields})


CHANGES = (
    change(
        1,
        before_bytes=b'{"price":"10.00"}',
        changed=("price",),
        meta_bytes=b'{"request_id":"r-1"}',
        entry_version=118,
    ),
    change(2, operation=Operation.REMOVE, key="6", body_bytes=None, before_bytes=b'{"price":"3.00"}'),
)
BATCH = SinkBatch(CHANGES, Position(120))


def context(view=None, generation=7):
    return SinkContext(
        name="orders-webhook",
        log_name="orders",
        log_id=LOG_ID,
        view=view or View(Content.BODY),
        generation=generation,
        clock=HandClock(),
        token=lambda position: f"{LOG_ID}:{EPOCH}:{position}",
        position_of=lambda text: Position(*map(int, text.split(":")[2:])),
        change_id=lambda one: f"{LOG_ID}:{EPOCH}:{one.position}",
    )


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


@pytest.fixture
def sinks():
    """Makes sinks that are opened, and closes them."""
    made = []

    def make(url, view=None, **options):
        sink = WebhookSink(url, **{"allow": LOOPBACK, **options})
        made.append(sink)
        sink.open(context(view))
        return sink

    yield make
    for sink in made:
        sink.close()


class TestBody:
    """F94, F111: what is posted, byte for byte."""

    @pytest.mark.parametrize("profile", ["native", "rqlite", "cloudevents", "keys"])
    def test_it_is_that_of_the_golden_file_in_every_attempt(self, receiver, sinks, profile):
        source = WebhookSource("shop-eu", "n1")
        sink = sinks(receiver.url, profile=profile, source=source)
        sink.write(BATCH)
        sink.write(BATCH.again())
        first, second = receiver.received
        assert first.body == second.body
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        golden = json.loads((GOLDEN / f"{profile}.json").read_text())
        assert first.body.decode() == json.dumps(golden, separators=(",", ":"))

    def test_header_content_leaves_out_images_and_nothing_else(self, receiver, sinks):
        sinks(receiver.url, View(Content.HEADER)).write(BATCH)
        told = json.loads(receiver.received[0].body)["changes"][0]
        assert "body" not in told
        assert "before" not in told
        assert told["origin"] is None

    def test_rare_fields_are_told_where_they_apply(self, receiver, sinks):
        rare = change(
            expires_at=MOMENT,
            linked="9",
            field="lines[0]",
            action=Action.PUSH,
            lacking=("before",),
            error_text="broken",
            schema_version=2**60,
            entry_version=5,
            key="\udcff",
        )
        sinks(receiver.url, View(Content.BODY, integers=Integers.TEXT)).write(
            SinkBatch((rare,), Position(119))
        )
        told = json.loads(receiver.received[0].body)["changes"][0]
        assert told["expires_at"] == "2025-11-20T08:00:00.123456Z"
        assert (told["linked"], told["field"], told["action"]) == ("9", "lines[0]", "PUSH")
        assert (told["lacking"], told["error"]) == (["before"], "broken")
        assert (told["schema_version"], told["entry_version"]) == (str(2**60), 5)
        assert told["key"] == "\udcff"

    def test_the_envelope_of_rqlite_has_every_field_also_for_what_sqlite_does_not_know(self, receiver, sinks):
        batch = SinkBatch(
            (
                change(0, operation=Operation.TRANSACTION, entity_type=None, key=None, body_bytes=None),
                change(1, key="-12"),
                change(2, key="x1", operation=Operation.EXPIRE, body_bytes=None),
                change(1, 119, operation=Operation.TRUNCATE, key=None, body_bytes=None),
                change(2, 119, key="9" * 19),
                change(3, 119, key="9" * 30),
            ),
            Position(120),
        )
        sinks(receiver.url, profile="rqlite").write(batch)
        first, second = json.loads(receiver.received[0].body)["payload"]
        assert [(e["op"], e["new_row_id"], e["old_row_id"]) for e in first["events"]] == [
            ("INSERT", -12, 0),
            ("DELETE", 0, 0),
        ]
        assert [(e["op"], e["new_row_id"]) for e in second["events"]] == [
            ("TRUNCATE", 0),
            ("INSERT", 0),
            ("INSERT", 0),
        ]
        assert all(
            set(e) == {"op", "table", "new_row_id", "old_row_id", "before", "after", "error"}
            for e in first["events"]
        )

    def test_headers_say_which_batch_of_which_sender_it_is(self, receiver, sinks):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        traced = change(meta_bytes=json.dumps({"traceparent": parent}).encode())
        sinks(receiver.url).write(SinkBatch((traced,), Position(119), attempt=3))
        told = receiver.received[0].headers
        assert told["webhook-id"] == f"{LOG_ID}:{EPOCH}:118:1-119:0"
        assert told["webhook-timestamp"] == str(context().clock.now_us() // 10**6)
        assert (told["penstock-sink"], told["penstock-attempt"], told["penstock-epoch"]) == (
            "orders-webhook",
            "3",
            "7",
        )
        assert (told["penstock-first"], told["penstock-next"]) == ("118:1", "119:0")
        assert told["traceparent"] == parent
        assert told["content-type"] == "application/json"
        assert "webhook-signature" not in told

    @pytest.mark.parametrize("meta", [b'{"traceparent":7}', b"[]", b'{"traceparent":"x\\ny"}'])
    def test_what_is_no_trace_is_not_passed_on(self, receiver, sinks, meta):
        sinks(receiver.url).write(SinkBatch((change(meta_bytes=meta),), Position(119)))
        assert "traceparent" not in receiver.received[0].headers

    def test_large_bodies_may_be_compressed_and_the_same_bytes_are_signed(self, receiver, sinks, monkeypatch):
        monkeypatch.setenv("HOOK", SECRET)
        sink = sinks(receiver.url, compress=True, secrets=["env:HOOK"])
        large = SinkBatch(
            tuple(change(n, body_bytes=b'{"text":"%s"}' % (b"x" * 900)) for n in (1, 2)), Position(119)
        )
        sink.write(large)
        sink.write(SinkBatch((change(),), Position(119)))
        first, second = receiver.received
        assert first.headers["content-encoding"] == "gzip"
        assert len(first.body) < 1000
        body = gzip.decompress(first.body)
        assert len(json.loads(body)["changes"]) == 2
        message, now = first.headers["webhook-id"], int(first.headers["webhook-timestamp"])
        assert first.headers["webhook-signature"] == sign([SecretReference("env:HOOK")], message, now, body)
        assert "content-encoding" not in second.headers


class TestSignature:
    """F99: Standard Webhooks."""

    def test_it_is_that_of_the_published_example(self, monkeypatch):
        # https://github.com/standard-webhooks/standard-webhooks, the tests of its libraries
        monkeypatch.setenv("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        told = sign(
            [SecretReference("env:HOOK")],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
        )
        assert told == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_while_secrets_rotate_either_verifies(self, receiver, sinks, monkeypatch, tmp_path):
        other = "bmV3LXNlY3JldC1uZXctc2VjcmV0LW5ldy1zZWNyZXQ="
        monkeypatch.setenv("HOOK", SECRET)
        (tmp_path / "new").write_text(f"{other}\n")
        sink = sinks(receiver.url, secrets=["env:HOOK", SecretReference(f"file:{tmp_path / 'new'}")])
        monkeypatch.setattr(HandClock, "now_us", lambda _self: int(datetime.now(UTC).timestamp() * 1e6))
        sink.write(BATCH)
        (tmp_path / "new").write_text(SECRET)  # counts at once
        sink.write(BATCH)
        first, second = receiver.received
        for secret in (SECRET, other):
            told = standardwebhooks.Webhook(secret).verify(first.body, first.headers)
            assert told["format"] == "penstock.webhook.v1"
        parts = second.headers["webhook-signature"].split(" ")
        assert len(parts) == 2
        assert parts[0] == parts[1]

    @pytest.mark.parametrize("kept", ["", "not base64!", "whsec_", "ÿ"])
    def test_a_secret_that_is_none_is_refused_and_not_told(self, receiver, sinks, monkeypatch, kept):
        monkeypatch.setenv("HOOK", kept)
        with pytest.raises(TargetRefused) as caught:
            sinks(receiver.url, secrets=["env:HOOK"]).write(BATCH)
        assert "env:HOOK" in str(caught.value)
        assert not kept or kept not in str(caught.value)
        assert receiver.received == []

    def test_a_file_that_is_not_there_is_named(self, receiver, sinks, tmp_path):
        with pytest.raises(TargetRefused, match="No such file"):
            sinks(receiver.url, secrets=[f"file:{tmp_path / 'none'}"]).write(BATCH)
        (tmp_path / "bytes").write_bytes(b"\xff")
        with pytest.raises(TargetRefused, match="UTF-8"):
            sinks(receiver.url, secrets=[f"file:{tmp_path / 'bytes'}"]).write(BATCH)


class TestAnswers:
    """F94, F97, F100: each row of the table of answers."""

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    def test_2xx_is_done(self, receiver, sinks, status):
        receiver.plan = [(status, {}, b"")]
        assert not sinks(receiver.url).write(BATCH)

    @pytest.mark.parametrize(("status", "done"), [(200, True), (202, True), (201, False), (204, False)])
    def test_of_these_the_profile_rqlite_takes_two(self, receiver, sinks, status, done):
        receiver.plan = [(status, {}, b"")]
        sink = sinks(receiver.url, profile="rqlite")
        if done:
            assert not sink.write(BATCH)
        else:
            with pytest.raises(TargetRefused):
                sink.write(BATCH)

    def test_single_changes_may_have_failed(self, receiver, sinks):
        name = f"{LOG_ID}:{EPOCH}:118:2"
        said = {"failed": [{"id": name, "error": "no such product"}, {"id": "unknown", "error": "?"}]}
        receiver.plan = [(200, {}, json.dumps(said).encode())]
        (failed,) = sinks(receiver.url).write(BATCH)
        assert (failed.place, failed.verdict, failed.error) == (1, ItemVerdict.REJECT, "no such product")

    @pytest.mark.parametrize(
        "body", [b'{"failed": 7}', b'{"failed"', b"fine", b'{"failed": []}', b'"failed"' + b"x" * 70000]
    )
    def test_an_answer_of_another_kind_says_nothing(self, receiver, sinks, body):
        receiver.plan = [(200, {}, body)]
        sink = sinks(receiver.url)
        assert not sink.write(BATCH)
        assert not sink.write(BATCH)

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
    def test_what_may_work_later_is_retried(self, receiver, sinks, status):
        receiver.plan = [(status, {"retry-after": "120"}, b"busy\nnow")]
        with pytest.raises(TargetUnavailable, match=f"answered {status}: busy now") as caught:
            sinks(receiver.url).write(BATCH)
        assert caught.value.retry_after == 120.0
        assert caught.value.overloaded is (status in (429, 503))

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("", None), ("soon", None), ("-5", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("9" * 400, None)],
    )
    def test_retry_after_may_be_a_date_or_nonsense(self, receiver, sinks, text, seconds):
        receiver.plan = [(503, {"retry-after": text}, b"")]
        with pytest.raises(TargetUnavailable) as caught:
            sinks(receiver.url).write(BATCH)
        assert caught.value.retry_after == seconds

    def test_a_date_is_counted_from_now(self, receiver, sinks):
        now = context().clock.now_us() / 1e6
        date = format_datetime(datetime.fromtimestamp(int(now) + 90, UTC), usegmt=True)
        receiver.plan = [(503, {"retry-after": date}, b"")]
        with pytest.raises(TargetUnavailable) as caught:
            sinks(receiver.url).write(BATCH)
        assert caught.value.retry_after == pytest.approx(90, abs=1.1)

    @pytest.mark.parametrize("failure", ["reset", "die", "half", "garbage"])
    def test_a_broken_answer_is_retried_on_a_new_connection(self, receiver, sinks, failure):
        receiver.plan = [failure]
        sink = sinks(receiver.url)
        with pytest.raises(TargetUnavailable):
            sink.write(BATCH)
        assert not sink.write(BATCH)
        assert [one.headers["webhook-id"] for one in receiver.received][:1] * 2 == [
            one.headers["webhook-id"] for one in receiver.received
        ]

    @pytest.mark.parametrize("failure", ["silent", "drip"])
    def test_the_time_for_all_of_it_is_bounded(self, receiver, sinks, failure):
        receiver.plan = [failure]
        with pytest.raises(TargetUnavailable, match="no answer in time"):
            sinks(receiver.url, timeout=0.3).write(BATCH)

    def test_nobody_there_is_retried(self, sinks):
        sink = sinks(f"http://127.0.0.1:{closed_port()}/")
        with pytest.raises(TargetUnavailable, match="refused"):
            sink.write(BATCH)
        assert not sink.alive()

    @pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 422, 501, 505])
    def test_the_rest_is_permanent_and_redirects_are_not_followed(self, receiver, sinks, status):
        """F142: where a redirect leads to is not asked."""
        receiver.plan = [(status, {"location": receiver.url}, b"")]
        with pytest.raises(TargetRefused, match=f"answered {status}$"):
            sinks(receiver.url).write(BATCH)
        assert len(receiver.received) == 1

    def test_410_says_that_it_is_gone(self, receiver, sinks):
        receiver.plan = [(410, {}, b"")]
        with pytest.raises(TargetRefused, match=r"^gone: "):
            sinks(receiver.url).write(BATCH)

    def test_413_asks_for_smaller_batches(self, receiver, sinks):
        receiver.plan = [(413, {}, b"")]
        with pytest.raises(TooLargeForTarget):
            sinks(receiver.url).write(BATCH)

    def test_a_connection_is_kept(self, receiver, sinks):
        sink = sinks(receiver.url)
        for _ in range(3):
            sink.write(BATCH)
        assert receiver.connections == 1
        assert sink.alive()
        sink.flush()
        sink.move(Position(1))
        sink.close()


class TestGuard:
    """F94, F142: a URL reaches public addresses only, whatever its name resolves to."""

    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
            "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd12::1",
            "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
            "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1",
        ],
    )  # fmt: skip
    def test_what_is_not_public_is_refused(self, address):
        assert not AddressGuard().allows(address)

    @pytest.mark.parametrize(
        "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
    )
    def test_what_is_public_is_not(self, address):
        assert AddressGuard().allows(address)

    def test_networks_may_be_allowed_also_in_other_forms(self):
        guard = AddressGuard(["10.1.0.0/16", "fd00::/8"])
        assert guard.allows("10.1.2.3")
        assert guard.allows("::ffff:10.1.2.3")
        assert guard.allows("fd00::1")
        assert not guard.allows("10.2.0.1")
        with pytest.raises(InvalidOption):
            AddressGuard(["10.0.0.1/8"])

    def test_a_local_receiver_is_refused_unless_it_is_meant(self, receiver, sinks):
        with pytest.raises(TargetRefused, match=r"127\.0\.0\.1 is not public"):
            sinks(receiver.url.replace("localhost", "127.0.0.1"), allow=[]).write(BATCH)
        assert receiver.connections == 0

    def test_a_name_is_resolved_once_for_each_connection_and_what_was_checked_is_connected_to(self, receiver):
        """F142: against rebinding: a second answer of the name server is never asked for."""
        asked = []

        def resolve(host, port, **_):
            asked.append(host)
            address = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
            return [(2, 1, 6, "", (address, port))]

        network = GuardedNetwork(AddressGuard(LOOPBACK), resolve)
        network.deadline = time.monotonic() + 60.0
        with httpcore.ConnectionPool(network_backend=network) as pool:
            for _ in range(2):
                answer = pool.request("POST", f"http://rebound.example:{receiver.port}/", content=b"x")
                assert answer.status == 200
            assert receiver.received[0].headers["host"] == f"rebound.example:{receiver.port}"
        assert asked == ["rebound.example"]
        with httpcore.ConnectionPool(network_backend=network) as pool, pytest.raises(TargetRefused):
            pool.request("POST", f"http://rebound.example:{receiver.port}/", content=b"x")

    def test_of_several_addresses_the_next_one_is_tried(self, receiver):
        def resolve(_host, port, **_):
            return [(2, 1, 6, "", (address, port)) for address in ("10.0.0.1", "127.0.0.9", "127.0.0.1")]

        network = GuardedNetwork(AddressGuard(LOOPBACK), resolve)
        network.deadline = time.monotonic() + 60.0
        network.connect_tcp("many.example", receiver.port).close()

    def test_a_name_that_there_is_not_may_be_there_later(self, sinks):
        def resolve(*_, **__):
            raise OSError("Name or service not known")

        sink = sinks("http://nowhere.example/")
        sink._network._resolve = resolve
        with pytest.raises(TargetUnavailable, match="has no address"):
            sink.write(BATCH)


class TestTls:
    """F98: good, wrong, expired and missing certificates."""

    @pytest.fixture
    def ours(self, tmp_path):
        return Authority(tmp_path)

    def test_the_receiver_is_known_by_its_certificate_and_knows_the_sink_by_its_own(self, ours, sinks):
        cert, key = ours.issue("server")
        mine = ours.issue("sink", file="sink")
        with Receiver(server_context(cert, key, ours.path)) as receiver:
            tls = WebhookTls(ca=ours.path, cert=mine[0], key=mine[1])
            assert not sinks(receiver.url, tls=tls).write(BATCH)
            assert not sinks(receiver.url.replace("localhost", "127.0.0.1"), tls=tls).write(BATCH)
            with pytest.raises(TargetUnavailable):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)
            with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                sinks(receiver.url).write(BATCH)

    def test_a_name_may_be_given_and_a_wrong_one_is_refused(self, ours, sinks):
        cert, key = ours.issue("server", names=("hooks.shop.example",), file="named")
        with Receiver(server_context(cert, key)) as receiver:
            named = WebhookTls(ca=ours.path, server_name="hooks.shop.example")
            assert not sinks(receiver.url, tls=named).write(BATCH)
            with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)

    def test_an_expired_one_is_refused_unless_any_will_do_which_is_logged(self, ours, sinks, caplog):
        cert, key = ours.issue("server", ends=timedelta(hours=-1), file="old")
        with Receiver(server_context(cert, key)) as receiver:
            with pytest.raises(TargetUnavailable, match="expired"):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)
            assert "any certificate" not in caplog.text
            assert not sinks(receiver.url, tls=WebhookTls(insecure_skip_verify=True)).write(BATCH)
            assert "accepts any certificate" in caplog.text

    def test_files_are_read_when_it_is_made(self, ours, tmp_path):
        (tmp_path / "none.pem").write_text("none")
        for wrong in ({"ca": str(tmp_path / "none.pem")}, {"cert": str(tmp_path / "no")}, {"key": "x"}):
            with pytest.raises(InvalidOption):
                WebhookTls(**wrong)


class TestSecrets:
    def test_nothing_that_is_told_has_a_secret_in_it(self, receiver, sinks, monkeypatch, caplog):
        monkeypatch.setenv("TOKEN", "s3cr3t-token")
        url = receiver.url.replace("http://", "http://ann:pa55word@") + "?key=s3cr3t-query"
        receiver.plan = [OK, (404, {}, b"")]
        sink = sinks(url, headers={"X-Token": "env:TOKEN", "x-plain": "plain:hello"})
        sink.write(BATCH)
        told = receiver.received[0]
        assert told.headers["authorization"] == "Basic YW5uOnBhNTV3b3Jk"
        assert (told.headers["x-token"], told.headers["x-plain"]) == ("s3cr3t-token", "hello")
        assert told.target == "/hook?key=s3cr3t-query"
        with pytest.raises(TargetRefused) as caught:
            sink.write(BATCH)
        for text in (repr(sink), str(caught.value), caplog.text):
            assert "s3cr3t" not in text
            assert "pa55word" not in text
        assert repr(sink) == f"<WebhookSink {receiver.url}>"

    def test_the_address_may_be_kept_elsewhere_and_is_not_told_then(self, receiver, sinks, monkeypatch):
        monkeypatch.setenv("HOOK_URL", receiver.url)
        receiver.plan = [(404, {}, b"")]
        sink = sinks("env:HOOK_URL")
        with pytest.raises(TargetRefused, match=r"^env:HOOK_URL answered 404$"):
            sink.write(BATCH)
        monkeypatch.setenv("HOOK_URL", "ftp://x/")
        with pytest.raises(InvalidOption) as caught:
            sinks("env:HOOK_URL")
        assert "ftp" not in str(caught.value)
        assert repr(WebhookSink("env:HOOK_URL")) == "<WebhookSink env:HOOK_URL>"

    def test_references_are_compared_and_told_without_what_they_hold(self):
        assert SecretReference("env:A") == SecretReference("env:A") != SecretReference("env:B")
        assert len({SecretReference("env:A"), SecretReference("env:A")}) == 1
        assert repr(SecretReference("plain:x")) == "<SecretReference plain:...>"
        for wrong in ("whsec_abc", "env:", "file", "s3cr3t:x"):
            with pytest.raises(InvalidOption) as caught:
                SecretReference(wrong)
            assert "abc" not in str(caught.value)
            assert "s3cr3t" not in str(caught.value)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"url": "ftp://x/"}, {"url": "http:///x"}, {"url": "http://[::1/"}, {"url": "http://x:99999/"},
            {"url": "http://x/\n"}, {"profile": "xml"}, {"timeout": 0}, {"headers": {"Webhook-Id": "plain:x"}},
            {"headers": {"a b": "plain:x"}}, {"headers": {"host": "plain:x"}}, {"secrets": ["whsec_x"]},
        ],
    )  # fmt: skip
    def test_arguments_are_checked(self, wrong):
        with pytest.raises(InvalidOption):
            WebhookSink(**{"url": "http://x.example/", **wrong})

    def test_a_header_that_cannot_be_sent_is_refused(self, receiver, sinks, monkeypatch):
        monkeypatch.setenv("TOKEN", "s3cr3t\r\nx: y")
        with pytest.raises(TargetRefused, match="header") as caught:
            sinks(receiver.url, headers={"x-token": "env:TOKEN"}).write(BATCH)
        assert "s3cr3t" not in str(caught.value)


def test_every_change_arrives_in_order_at_a_receiver_that_fails_in_every_way(tmp_path, receiver):
    """F94, F97, F100: at least once, whatever happens to requests and answers."""
    refused = (200, {}, b'{"failed":[]}')
    receiver.plan = [
        (500, {}, b""), "reset", (429, {"retry-after": "5"}, b""), "half", (413, {}, b""), "die", (503, {}, b""), refused,
        "garbage", (408, {}, b""),
    ]  # fmt: skip
    sink = WebhookSink(receiver.url, allow=LOOPBACK, timeout=20.0)
    with rigged(tmp_path / "log", sink, criteria=Criterion(entity_types={"order"}), batch_changes=4) as rig:
        for number in range(12):
            rig.commit(number)

        def arrived():
            rig.later(40.0)
            return rig.runner.machine._progress.confirmed == rig.log.head

        rig.until(arrived)
        assert receiver.plan == []
        seen = []
        for request in receiver.received:
            for one in json.loads(request.body)["changes"]:
                if one["key"] not in seen:
                    assert one["key"] == str(len(seen)), "nothing comes before what lies before it"
                    seen.append(one["key"])
        assert len(seen) == 12
        assert rig.runner.state is SinkState.STREAMING


def test_410_pauses_the_sink_and_only_failed_items_are_sent_again(tmp_path, receiver):
    """F97, F100."""
    sink = WebhookSink(receiver.url, allow=LOOPBACK)
    with rigged(tmp_path / "log", sink, criteria=Criterion(entity_types={"order"})) as rig:
        rig.commit(*"abc")
        b = change(2, 1)
        said = {"failed": [{"id": rig.log.idempotency_key(b), "error": "no"}]}
        receiver.plan = [(410, {}, b""), (200, {}, json.dumps(said).encode())]
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert rig.runner.statistics().reason.startswith("gone: ")
        rig.runner.resume()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED and len(receiver.received) == 2)
        rig.runner.resume()
        rig.drained()
        assert [[one["key"] for one in json.loads(each.body)["changes"]] for each in receiver.received] == [
            list("abc"),
            list("abc"),
            list("b"),
        ]
        wait_until(lambda: rig.stored() == Position(2, 0))

"""Webhooks against real servers that fail on purpose."""

import gzip
import json
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from publishers import Criterion, Position
from publishers.model.change import Action, Operation
from publishers.views.view import Content, Integers, View
from tests.harness.inside import progress_of
from tests.publishers.support import wait_until
from tests.transports.sinks.receivers import closed_port
from tests.transports.sinks.targets import rigged
from tests.transports.sinks.webhooks import BATCH, EPOCH, LOG_ID, LOOPBACK, MOMENT, change, context
from transports.sinks import (
    ItemVerdict,
    SecretReference,
    SinkBatch,
    SinkState,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)
from transports.sinks.webhook import WebhookSink, WebhookSource, sign

GOLDEN = Path(__file__).parents[2] / "golden" / "webhooks"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"


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
        """F94, F139."""
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


class TestAnswers:
    """F94, F97, F100: each row of the table of answers."""

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    def test_2xx_is_done(self, receiver, sinks, status):
        receiver.plan = [(status, {}, b"")]
        assert not sinks(receiver.url).write(BATCH)

    @pytest.mark.parametrize(("status", "done"), [(200, True), (202, True), (201, False), (204, False)])
    def test_of_these_the_profile_rqlite_takes_two(self, receiver, sinks, status, done):
        """F111."""
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
            return progress_of(rig.runner.machine).confirmed == rig.log.head

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

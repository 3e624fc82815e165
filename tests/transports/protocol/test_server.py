import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.errors import LogClosed
from publishers.fanout.batch import Batch
from publishers.model.position import Position
from publishers.views.view import View
from tests.harness.constants import without_bounds
from transports.codec.events import EventEncoder
from transports.errors import CloseCode
from transports.limits import Limits
from transports.problems import describe
from transports.protocol.connection import Authenticate, Cancel, Close, Demand, Send
from transports.protocol.server import ServerSession
from transports.protocol.states import ConnectionPhase, EntryStage
from transports.protocol.subscriptions import Open

TOLD = {"log": "shop", "epoch": 1, "cursor": "c", "oldest": "o", "head": "h"}


def session(**limits):
    return ServerSession(Limits(**without_bounds(limits)), server="test", now=0.0)


def acknowledged(**limits):
    made = session(**limits)
    made.receive('{"type":"connection_init"}', 0.0)
    made.acknowledge()
    return made


def subscribe(made, name="a", now=0.0, **payload):
    effects = made.receive(
        json.dumps({"type": "subscribe", "id": name, "payload": {"criteria": [], "credits": 1} | payload}),
        now,
    )
    assert isinstance(effects[0], Open), effects
    return effects[0].entry


def active(made, name="a", now=0.0, **payload):
    entry = subscribe(made, name, now, **payload)
    made.subscribed(entry, resync=False, now=now, **TOLD)
    return entry


def sent(effects):
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Send)]


def closed(effects):
    return next(effect for effect in effects if isinstance(effect, Close))


def test_init_asks_for_a_judgement_and_is_acknowledged_with_the_limits():
    made = session()
    assert made.receive('{"type":"connection_init","payload":{"token":"t"}}', 0.0) == [
        Authenticate({"token": "t"})
    ]
    (ack,) = sent(made.acknowledge())
    assert ack["type"] == "connection_ack"
    assert ack["payload"]["keepAliveMs"] == 12000
    assert ack["payload"]["limits"] == {
        "subscriptions": 100,
        "credits": 2**31 - 1,
        "batchEvents": 1000,
        "messageBytes": 2**20,
        "appends": 256,
        "appendBytes": 4 * 2**20,
        "transactions": 4,
        "transactionBytes": 256 * 2**20,
        "groupCalls": 256,
    }


def test_init_with_a_null_payload_is_legal():
    assert session().receive('{"type":"connection_init","payload":null}', 0.0) == [Authenticate({})]


def test_a_refused_client_is_closed_with_4403():
    made = session()
    made.receive('{"type":"connection_init"}', 0.0)
    assert made.refuse("wrong token") == [Close(CloseCode.FORBIDDEN, "wrong token")]


def test_a_second_init_is_closed_with_4429():
    """E55."""
    assert closed(acknowledged().receive('{"type":"connection_init"}', 0.0)).code == 4429


@pytest.mark.parametrize("kind", ["subscribe", "request", "complete"])
def test_what_comes_before_the_acknowledgement_is_closed_with_4401(kind):
    made = session()
    text = json.dumps({"type": kind, "id": "a", "n": 1, "payload": {}})
    assert closed(made.receive(text, 0.0)).code == 4401
    made = session()
    made.receive('{"type":"connection_init"}', 0.0)
    assert closed(made.receive(text, 0.0)).code == 4401


def test_without_init_in_time_the_connection_is_closed_with_4408():
    made = session(init_timeout=3.0)
    assert made.due == 3.0
    assert made.tick(2.9) == []
    assert closed(made.tick(3.0)).code == 4408


def test_ping_is_answered_with_its_payload_in_every_phase():
    made = session()
    assert sent(made.receive('{"type":"ping","payload":{"n":[1,2]}}', 0.0)) == [
        {"type": "pong", "payload": {"n": [1, 2]}}
    ]
    assert sent(made.receive('{"type":"ping"}', 0.0)) == [{"type": "pong"}]
    assert made.receive('{"type":"pong"}', 0.0) == []
    assert sent(acknowledged().receive('{"type":"ping","payload":null}', 0.0)) == [
        {"type": "pong", "payload": None}
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "one JSON object"),
        ("{", "one JSON object"),
        ('{"type":"ping"}x', "one JSON object"),
        ("[1]", "Expected `object`"),
        ("7", "Expected `object`"),
        ("null", "Expected `object`"),
        ("{}", "required field `type`"),
        ('{"type":7}', "$.type"),
        ('{"type":"subscribed"}', "must be one of: connection_init"),
        ('{"type":"request","id":"a"}', "`n`"),
        ('{"type":"request","n":1}', "`id`"),
        ('{"type":"request","id":7,"n":1}', "$.id"),
        ('{"type":"subscribe","id":"","payload":{}}', "$.id"),
        ('{"type":"subscribe","id":"' + "a" * 65 + '","payload":{}}', "$.id"),
        ('{"type":"subscribe","id":"a"}', "`payload`"),
        ('{"type":"subscribe","id":"a","payload":[]}', "$.payload"),
        ('{"type":"ping","x":' + "[" * 100_000 + "}", ""),
        ('{"type":"request","id":"a","n":1e999}', "range"),
        ('{"type":"\\ud800"}', "one JSON object"),
    ],
)
def test_what_is_no_message_is_closed_with_4400_and_told_why(text, says):
    close = closed(acknowledged().receive(text, 0.0))
    assert close.code == 4400
    assert says in close.reason
    assert len(close.reason.encode()) <= 123


def test_after_the_close_nothing_is_answered():
    made = acknowledged()
    made.receive("{", 0.0)
    assert made.phase is ConnectionPhase.CLOSED
    assert made.receive('{"type":"ping"}', 0.0) == []
    assert made.close(CloseCode.INTERNAL, "again") == []
    assert made.stop() == []


def test_an_id_in_use_is_closed_with_4409_and_may_be_used_again_after_its_end():
    """E55, E56."""
    made = acknowledged()
    first = active(made)
    assert made.receive('{"type":"complete","id":"a"}', 0.0) == [Cancel(first)]
    second = active(made)
    assert second is not first
    # What still arrives for the first one is not sent under its successor's id.
    assert made.failed(first, describe(LogClosed())) == []
    assert made.completed(first, "c") == []
    assert closed(made.receive('{"type":"subscribe","id":"a","payload":{}}', 0.0)).code == 4409


def test_late_requests_and_completes_are_ignored():
    made = acknowledged()
    assert made.receive('{"type":"request","id":"z","n":1}', 0.0) == []
    assert made.receive('{"type":"request","id":"z","n":0}', 0.0) == []
    assert made.receive('{"type":"complete","id":"z"}', 0.0) == []


@pytest.mark.parametrize(
    "n", [0, -1, 2**31, 2**70, -(2**70), 10**4000, '"5"', '"many"', 1.5, "true", "null", "[1]", '{"n":1}']
)
def test_what_is_no_count_of_credits_ends_that_subscription_with_invalid_demand(n):
    """F131: and what is one is demanded as it is."""
    made = acknowledged()
    entry, other = active(made, "a"), active(made, "b")
    effects = made.receive('{"type":"request","id":"a","n":' + str(n) + "}", 0.0)
    (error,) = sent(effects)
    assert error["id"] == "a"
    assert error["payload"]["code"] == "INVALID_DEMAND"
    assert error["payload"]["retryable"] is False
    assert "between 1 and 2147483647" in error["payload"]["message"]
    assert effects[-1] == Cancel(entry)
    assert made.receive('{"type":"request","id":"b","n":2147483647}', 0.0) == [Demand(other, 2**31 - 1)]


def test_a_wrong_wish_is_an_error_of_that_id_only():
    made = acknowledged()
    active(made, "a")
    text = '{"type":"subscribe","id":"b","payload":{"criteria":[{"keyz":[]}],"credits":1}}'
    (error,) = sent(made.receive(text, 0.0))
    assert (error["id"], error["payload"]["code"]) == ("b", "INVALID_CRITERIA")
    assert error["payload"]["path"] == "criteria[0].keyz"
    assert list(made.entries) == ["a"]


def test_too_many_subscriptions_are_told_and_retryable():
    made = acknowledged(subscriptions=2)
    active(made, "a"), active(made, "b")
    (error,) = sent(made.receive('{"type":"subscribe","id":"c","payload":{}}', 0.0))
    assert error["payload"]["code"] == "TOO_MANY_SUBSCRIPTIONS"
    assert error["payload"]["limit"] == 2
    assert error["payload"]["retryable"] is True


def test_a_flood_is_closed_with_4490_but_a_burst_is_not():
    made = acknowledged(messages_per_second=10)
    for _ in range(18):
        assert closed_code(made.receive('{"type":"pong"}', 0.0)) is None
    # A second later there is room for ten more.
    for _ in range(10):
        assert closed_code(made.receive('{"type":"pong"}', 1.0)) is None
    codes = [closed_code(made.receive('{"type":"pong"}', 1.0)) for _ in range(3)]
    assert 4490 in codes


def closed_code(effects):
    return next((effect.code for effect in effects if isinstance(effect, Close)), None)


def test_subscribed_comes_once_and_nothing_before_it():
    made = acknowledged()
    entry = subscribe(made)
    encoder = EventEncoder(str)
    assert made.next(entry, Batch((), Position(2, 0), View()), encoder, 0.0) is None
    assert made.checkpoint([(entry, "c", "h", 7, False)], 0.0) == []
    assert made.completed(entry, "c") == []
    assert sent(made.subscribed(entry, resync=False, now=0.0, **TOLD)) == [
        {"type": "subscribed", "id": "a", **TOLD}
    ]
    assert made.subscribed(entry, resync=False, now=0.0, **TOLD) == []


def test_an_error_may_be_the_first_answer_and_is_the_last():
    made = acknowledged()
    entry = subscribe(made)
    (error,) = sent(made.failed(entry, describe(LogClosed())))
    assert error["payload"]["code"] == "LOG_CLOSED"
    assert made.subscribed(entry, resync=False, now=0.0, **TOLD) == []
    assert entry.stage is EntryStage.ENDED


def test_complete_carries_the_cursor():
    made = acknowledged()
    effects = made.completed(active(made), "the-end")
    assert sent(effects) == [{"type": "complete", "id": "a", "cursor": "the-end"}]


def test_checkpoints_are_due_by_heartbeat_resync_and_change_of_state():
    """E53."""
    made = acknowledged(resync_checkpoint=1.0)
    entry = active(made, heartbeatMs=5000)
    assert made.due == 5.0
    made.state(entry, resync=True)
    assert made.due == -math.inf
    (told,) = sent(made.checkpoint([(entry, "c", "h", 7, True)], 2.0))
    assert told == {
        "type": "checkpoint",
        "items": [{"id": "a", "cursor": "c", "head": "h", "live": 7, "state": "RESYNC"}],
        "n": 1,
        "nextMs": 1000,
    }
    assert made.due == 3.0
    assert made.overdue(2.9) == []
    assert made.overdue(3.0) == [entry]
    made.checkpoint([(entry, "c", "h", 7, False)], 3.0)
    assert made.due == 8.0
    # A next postpones it, and one that leaves a transaction open is followed up soon.
    made.next(entry, Batch((), Position(2, 0), View()), EventEncoder(str), 4.0)
    assert made.due == 9.0
    made.next(entry, Batch((), Position(2, 1), View()), EventEncoder(str), 5.0)
    assert made.due == 6.0


def test_a_subscription_that_is_sent_changes_all_the_time_is_told_of_its_resync_all_the_same():
    made = acknowledged(resync_checkpoint=1.0)
    entry = active(made, heartbeatMs=5000)
    made.state(entry, resync=True)
    made.checkpoint([(entry, "c", "h", 7, True)], 2.0)
    for now in (2.5, 2.9, 3.4):
        made.next(entry, Batch((), Position(2, 0), View()), EventEncoder(str), now)
    assert made.due == 3.0


def test_a_subscription_that_begins_in_the_log_is_told_so_at_once():
    made = acknowledged()
    made.subscribed(subscribe(made, "a", 0.0), resync=True, now=0.0, **TOLD)
    assert made.due == -math.inf


@pytest.mark.parametrize(
    ("limits", "period"),
    [
        ({}, 10.0),
        ({"keepalive": 4.0}, 4.0),
        ({"stall_timeout": 2.5}, 2.5),
        ({"keepalive": 0.1}, 1.0),
        ({"keepalive": 9_999.0, "stall_timeout": 9_999.0}, 300.0),
    ],
)
def test_the_period_of_heartbeats_comes_from_the_timeouts(limits, period):
    """E53: on a virtual clock; each tells its number, the live version and the time to the next."""
    made = acknowledged(**limits)
    entry = active(made)
    now = 0.0
    for number in range(1, 4):
        assert made.due == now + period
        assert made.overdue(now + 0.9 * period) == []
        now = made.due
        (told,) = sent(made.checkpoint([(entry, "c", "h", 40 + number, False)], now))
        assert (told["n"], told["items"][0]["live"]) == (number, 40 + number)
        assert told["nextMs"] == round(period * 1000)


def test_one_checkpoint_message_serves_all_subscriptions_and_counts_up():
    made = acknowledged()
    entries = [active(made, name) for name in "abc"]
    (first,) = sent(made.checkpoint([(entry, "c", "h", 7, False) for entry in entries], 1.0))
    (second,) = sent(made.checkpoint([(entries[0], "c", "h", 7, False)], 2.0))
    assert [item["id"] for item in first["items"]] == ["a", "b", "c"]
    assert (first["n"], second["n"]) == (1, 2)


def test_without_heartbeat_there_is_no_checkpoint():
    made = acknowledged()
    active(made, heartbeatMs=0)
    assert made.due == math.inf


def test_goaway_refuses_new_subscriptions_and_keeps_the_running_ones():
    made = acknowledged()
    entry = active(made)
    assert sent(made.goaway(5.0, "restart")) == [{"type": "goaway", "deadlineMs": 5000, "reason": "restart"}]
    (error,) = sent(made.receive('{"type":"subscribe","id":"b","payload":{}}', 0.0))
    assert (error["payload"]["code"], error["payload"]["retryable"]) == ("GOING_AWAY", True)
    assert made.receive('{"type":"request","id":"a","n":3}', 0.0) == [Demand(entry, 3)]


def test_stop_ends_every_subscription_with_going_away_and_closes_with_1012():
    """E45."""
    made = acknowledged()
    entries = [active(made, "a"), subscribe(made, "b")]
    effects = made.stop()
    assert [(m["id"], m["payload"]["code"]) for m in sent(effects)] == [
        ("a", "GOING_AWAY"),
        ("b", "GOING_AWAY"),
    ]
    assert [effect.entry for effect in effects if isinstance(effect, Cancel)] == entries
    assert closed(effects).code == 1012
    assert effects[-1] is closed(effects)


def test_a_lost_connection_cancels_every_subscription():
    made = acknowledged()
    entries = [active(made, name) for name in "abc"]
    assert made.lost() == [Cancel(entry) for entry in entries]


MESSAGES = st.one_of(
    st.sampled_from(
        [
            '{"type":"connection_init"}',
            '{"type":"ping"}',
            '{"type":"subscribe","id":"a","payload":{"criteria":[],"credits":1}}',
            '{"type":"subscribe","id":"b","payload":{"criteria":[],"credits":1}}',
            '{"type":"subscribe","id":"b","payload":{"criteria":7}}',
            '{"type":"request","id":"a","n":3}',
            '{"type":"request","id":"a","n":0}',
            '{"type":"complete","id":"a"}',
            "ack",
            "subscribed",
            "fail",
            "complete",
            "goaway",
        ]
    ),
    st.text(max_size=20),
    st.binary(max_size=20),
)


def play(made, message):
    live = list(made.entries.values())
    steps = {
        "ack": made.acknowledge,
        "subscribed": lambda: [
            e for one in live for e in made.subscribed(one, resync=False, now=0.0, **TOLD)
        ],
        "fail": lambda: [e for one in live for e in made.failed(one, describe(LogClosed()))],
        "complete": lambda: [e for one in live for e in made.completed(one, "c")],
        "goaway": lambda: made.goaway(1.0, "test"),
    }
    return steps[message]() if message in steps else made.receive(message, 0.0)


@given(st.lists(MESSAGES, max_size=40))
def test_whatever_comes_each_subscription_has_one_first_and_one_last_message(messages):
    made = session()
    effects = [effect for message in messages for effect in play(made, message)] + made.stop()
    running = {}
    for effect in effects:
        told = json.loads(effect.data) if isinstance(effect, Send) else {"type": None}
        if isinstance(effect, Open):
            assert effect.entry.id not in running
            running[effect.entry.id] = False
        elif isinstance(effect, Cancel):
            del running[effect.entry.id]
        elif told["type"] == "subscribed":
            assert running[told["id"]] is False
            running[told["id"]] = True
        elif told["type"] == "complete":
            assert running[told["id"]]
    assert running == {}
    assert sum(isinstance(effect, Open) for effect in effects) == sum(isinstance(e, Cancel) for e in effects)
    assert sum(isinstance(effect, Close) for effect in effects) == 1
    assert isinstance(effects[-1], Close)


@pytest.mark.parametrize("quiet", [0.0, 1.0, 3600.0])
def test_a_client_that_was_quiet_may_send_as_many_messages_at_once_as_any_other(quiet):
    """F147: what it did not use is not saved up."""
    made = acknowledged(messages_per_second=5)
    answers = [made.receive('{"type":"ping"}', quiet) for _ in range(1000)]
    answered = [effects for effects in answers if sent(effects)]
    assert 5 <= len(answered) <= 10
    assert closed(answers[len(answered)]).code == CloseCode.FLOOD

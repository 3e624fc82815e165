"""The machine of graphql-transport-ws, message by message."""

import json
import math

import pytest

from tests.harness.constants import without_bounds
from transports.limits import Limits
from transports.protocol.connection import Authenticate, Cancel, Close, Demand, Send
from transports.protocol.graphql_ws import Execute, GraphQLSession, Resume
from transports.protocol.states import ConnectionPhase

QUERY = {"query": "subscription { onChange { key } }"}


def opened(**limits):
    return GraphQLSession(Limits(**without_bounds(limits)), now=0.0)


def acknowledged(**limits):
    session = opened(**limits)
    session.receive('{"type":"connection_init"}', 0.0)
    session.acknowledge()
    return session


def tell(session, now=0.0, **message):
    return session.receive(json.dumps(message), now)


def subscribe(session, name="a", **payload):
    return tell(session, type="subscribe", id=name, payload=QUERY | payload)


def started(session, name="a"):
    (effect,) = subscribe(session, name)
    assert isinstance(effect, Execute)
    return effect.entry


def closing(effects):
    assert isinstance(effects[-1], Close), effects
    return effects[-1].code, effects[-1].reason


def sent(effects):
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Send)]


# The handshake.


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"connection_init"}',
        '{"type":"connection_init","payload":null}',
        b'{"type":"connection_init"}',
    ],
)
def test_init_is_judged_and_then_acknowledged(text):
    session = opened()
    assert session.receive(text, 0.0) == [Authenticate({})]
    assert sent(session.acknowledge()) == [{"type": "connection_ack"}]
    assert session.acknowledge() == []


def test_init_carries_what_the_client_says_of_itself():
    assert tell(opened(), type="connection_init", payload={"token": "x"}) == [Authenticate({"token": "x"})]


def test_a_client_that_is_not_welcome_is_closed_with_4403():
    """F130, E55."""
    session = opened()
    tell(session, type="connection_init")
    assert closing(session.refuse("not you")) == (4403, "Forbidden")
    assert session.acknowledge() == []


def test_subscribing_before_the_ack_is_closed_with_4401():
    """E55."""
    assert closing(subscribe(opened())) == (4401, "Unauthorized")
    session = opened()
    tell(session, type="connection_init")
    assert closing(subscribe(session)) == (4401, "Unauthorized")


def test_a_second_init_is_closed_with_4429():
    """E55."""
    session = opened()
    tell(session, type="connection_init")
    assert closing(tell(session, type="connection_init")) == (4429, "Too many initialisation requests")
    assert closing(tell(acknowledged(), type="connection_init")) == (4429, "Too many initialisation requests")


def test_without_init_in_time_it_is_closed_with_4408():
    """E55."""
    session = opened(init_timeout=3.0)
    assert session.due == 3.0
    assert session.tick(2.9) == []
    assert closing(session.tick(3.0)) == (4408, "Connection initialisation timeout")
    assert session.due == math.inf
    assert opened(init_timeout=3.0).tick(1.0) == []
    assert acknowledged().tick(100.0) == []


def test_complete_is_ignored_at_any_time_for_an_id_that_is_not_in_use():
    for session in (opened(), acknowledged()):
        assert tell(session, type="complete", id="nobody") == []


# Ping and pong.


@pytest.mark.parametrize("payload", [{"n": 1}, {}, None])
def test_a_ping_is_answered_with_its_payload_also_before_the_init(payload):
    for session in (opened(), acknowledged()):
        assert sent(tell(session, type="ping", payload=payload)) == [{"type": "pong", "payload": payload}]
    assert sent(tell(opened(), type="ping")) == [{"type": "pong"}]


def test_a_pong_needs_no_ping():
    assert tell(opened(), type="pong") == []
    assert tell(acknowledged(), type="pong", payload={"x": [1]}) == []


# What is no message of the protocol.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "1",
        "null",
        '"text"',
        "{}",
        '{"type":1}',
        '{"type":"nonsense"}',
        '{"type":"next","id":"a","payload":{}}',
        '{"type":"connection_ack"}',
        '{"type":"connection_init","payload":[]}',
        '{"type":"connection_init","payload":"x"}',
        '{"type":"subscribe","payload":{"query":"{a}"}}',
        '{"type":"subscribe","id":"","payload":{"query":"{a}"}}',
        '{"type":"subscribe","id":1,"payload":{"query":"{a}"}}',
        '{"type":"subscribe","id":"a"}',
        '{"type":"subscribe","id":"a","payload":null}',
        '{"type":"subscribe","id":"a","payload":"x"}',
        '{"type":"subscribe","id":"a","payload":[]}',
        '{"type":"subscribe","id":"a","payload":{}}',
        '{"type":"subscribe","id":"a","payload":{"query":1}}',
        '{"type":"subscribe","id":"a","payload":{"query":null}}',
        '{"type":"subscribe","id":"a","payload":{"query":"{a}","operationName":1}}',
        '{"type":"subscribe","id":"a","payload":{"query":"{a}","variables":[]}}',
        '{"type":"subscribe","id":"a","payload":{"query":"{a}","extensions":"x"}}',
        '{"type":"complete"}',
        '{"type":"complete","id":""}',
        b"\xff\xfe",
        "[" * 100_000,
        '{"type":"subscribe","id":"' + "a" * 257 + '","payload":{"query":"{a}"}}',
    ],
)
def test_what_is_no_message_is_closed_with_4400_and_a_reason_that_fits(text):
    session = acknowledged()
    (effect,) = session.receive(text, 0.0)
    assert effect.code == 4400
    assert 0 < len(effect.reason.encode()) <= 123
    assert "\n" not in effect.reason
    assert session.receive('{"type":"ping"}', 0.0) == []


# Operations.


def test_the_hash_of_a_persisted_query_replaces_the_query():
    session = acknowledged()
    payload = {"query": None, "extensions": {"persistedQuery": {"version": 1, "sha256Hash": "0" * 64}}}
    (effect,) = subscribe(session, **payload)
    assert effect.request.query is None


def test_an_operation_is_entered_before_it_is_opened_and_a_quick_complete_is_not_lost():
    session = acknowledged()
    (effect,) = subscribe(session, operationName="X", variables={"a": 1}, extensions={"b": 2})
    assert effect.request.query == QUERY["query"]
    assert (effect.request.operation_name, effect.request.variables) == ("X", {"a": 1})
    assert session.entries == {"a": effect.entry}
    assert tell(session, type="complete", id="a") == [Cancel(effect.entry)]
    assert session.next(effect.entry, [b"{}"], 0.0) == []
    assert session.result(effect.entry, b"{}") == session.failed(effect.entry, []) == []
    assert session.completed(effect.entry) == []


def test_an_id_in_use_is_closed_with_4409_and_every_operation_ends():
    session = acknowledged()
    entries = [started(session, name) for name in ("a", "b")]
    effects = subscribe(session)
    assert effects[:2] == [Cancel(entry) for entry in entries]
    assert closing(effects) == (4409, "Subscriber for a already exists")
    assert session.phase is ConnectionPhase.CLOSED


def test_the_reason_for_a_long_id_is_cut_and_has_the_right_code():
    session = acknowledged()
    name = "ü" * 200
    started(session, name)
    effect = subscribe(session, name)[-1]
    assert effect.code == 4409
    assert len(effect.reason.encode()) <= 123
    assert "ü" in effect.reason


@pytest.mark.parametrize("end", ["complete", "completed", "failed", "result"])
def test_an_id_may_be_used_again_after_any_end(end):
    session = acknowledged()
    entry = started(session)
    if end == "complete":
        tell(session, type="complete", id="a")
    elif end == "completed":
        assert sent(session.completed(entry)) == [{"id": "a", "type": "complete"}]
    elif end == "failed":
        problem = {"message": "no"}
        assert sent(session.failed(entry, [problem])) == [{"id": "a", "type": "error", "payload": [problem]}]
    else:
        assert [message["type"] for message in sent(session.result(entry, b'{"data":1}'))] == [
            "next",
            "complete",
        ]
    again = started(session)
    assert again is not entry
    assert session.next(entry, [b"old"], 0.0) == []
    assert session.next(again, [b'{"data":2}'], 0.0) == [b'{"id":"a","type":"next","payload":{"data":2}}']


def test_above_the_limit_an_operation_is_refused_and_its_neighbours_go_on():
    session = acknowledged(subscriptions=2)
    entry = started(session, "a")
    started(session, "b")
    (message,) = sent(subscribe(session, "c"))
    assert (message["id"], message["type"]) == ("c", "error")
    assert message["payload"][0]["extensions"] == {
        "code": "TOO_MANY_SUBSCRIPTIONS",
        "retryable": True,
        "limit": 2,
    }
    tell(session, type="complete", id="a")
    started(session, "c")
    assert entry.ended


def test_pings_stand_among_the_events_and_hold_them_back_until_they_are_answered():
    session = acknowledged(fence_events=2, fence_width=2)
    entry = started(session)
    messages = [json.loads(message) for message in session.next(entry, [b"1", b"2", b"3", b"4", b"5"], 7.0)]
    assert [message.get("payload") for message in messages] == [1, 2, {"fence": 1}, 3, 4, {"fence": 2}, 5]
    assert session.blocked
    assert tell(session, type="pong", payload={"fence": 1}) == [Resume()]
    assert not session.blocked
    assert tell(session, type="pong") == [Resume()]
    assert tell(session, type="pong") == []


def test_a_client_that_answers_no_pings_gets_its_events_all_the_same():
    session = acknowledged(fence_events=1, fence_width=1, fence_timeout=10.0)
    entry = started(session)
    session.next(entry, [b"1"], 7.0)
    assert session.due == 17.0
    assert session.tick(16.0) == []
    assert session.tick(17.0) == [Resume()]
    assert session.next(entry, [b"2"], 18.0) == [b'{"id":"a","type":"next","payload":2}']


def test_a_flood_of_messages_is_closed_with_4490_and_answers_to_pings_do_not_count():
    session = acknowledged(messages_per_second=10, fence_events=1, fence_width=1000)
    entry = started(session)
    session.next(entry, [b"1"] * 100, 0.0)
    for _ in range(100):
        assert tell(session, type="pong") == [Resume()]
    codes = [
        closing(effects)[0]
        for effects in (tell(session, type="ping") for _ in range(20))
        if effects and isinstance(effects[-1], Close)
    ]
    assert codes == [4490]


# Demand of those who want it.


def test_credits_come_with_the_operation_and_requests_in_pings():
    session = acknowledged()
    (effect,) = subscribe(session, extensions={"flow": {"credits": 3}})
    assert effect.entry.credits == 3
    effects = tell(session, type="ping", payload={"request": {"a": 5, "nobody": 1, "b": "x"}})
    assert sent(effects[:1])[0]["type"] == "pong"
    assert effects[1:] == [Demand(effect.entry, 5)]


@pytest.mark.parametrize(
    "payload", [{"request": 1}, {"request": {"a": True}}, {"request": {"a": 1.5}}, ["request"]]
)
def test_pings_that_mean_something_else_are_only_answered(payload):
    session = acknowledged()
    assert started(session).credits is None
    (effect,) = tell(session, type="ping", payload=payload)
    assert sent([effect]) == [{"type": "pong", "payload": payload}]


@pytest.mark.parametrize("n", [0, -1, 2**31, 10**40])
def test_a_request_out_of_range_ends_its_operation_only(n):
    session = acknowledged()
    entries = [started(session, name) for name in "ab"]
    effects = tell(session, type="ping", payload={"request": {"a": n}})
    (_, message) = sent(effects)
    assert (message["id"], message["payload"][0]["extensions"]["code"]) == ("a", "INVALID_DEMAND")
    assert [entry.ended for entry in entries] == [True, False]


@pytest.mark.parametrize(
    ("flow", "code"),
    [
        (1, "INVALID_REQUEST"),
        ({}, "INVALID_REQUEST"),
        ({"credits": True}, "INVALID_REQUEST"),
        ({"credits": "1"}, "INVALID_REQUEST"),
        ({"credits": -1}, "INVALID_DEMAND"),
        ({"credits": 2**31}, "INVALID_DEMAND"),
    ],
)
def test_credits_that_are_none_are_an_error_of_the_operation(flow, code):
    session = acknowledged()
    (message,) = sent(subscribe(session, extensions={"flow": flow}))
    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", code)
    assert session.entries == {}


# The end.


def test_when_the_server_stops_it_closes_with_1012_and_says_nothing_that_a_client_takes_for_final():
    session = acknowledged()
    entry = started(session)
    effects = session.stop()
    assert effects[0] == Cancel(entry)
    assert closing(effects)[0] == 1012
    assert sent(effects) == []
    assert session.stop() == session.close(4400, "again") == []


def test_a_lost_connection_ends_every_operation():
    session = acknowledged()
    entries = [started(session, name) for name in "abc"]
    assert session.lost() == [Cancel(entry) for entry in entries]
    assert session.entries == {}
    assert session.due == math.inf

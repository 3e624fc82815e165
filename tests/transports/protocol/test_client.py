"""The client's machine: messages in, effects out; no socket, no clock."""

import json

import pytest

from transports.errors import CloseCode, ConnectionLost, RemoteError, Violation
from transports.protocol.client import (
    Answered,
    ClientQuestion,
    ClientSession,
    Deliver,
    Ended,
    Progress,
    Retry,
)
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Send
from transports.protocol.states import ConnectionPhase

CURSOR = "0123456789abcdef0123456789abcdef:1:{}:0"


def said(effects):
    assert all(isinstance(effect, Send) for effect in effects), effects
    return [json.loads(effect.data) for effect in effects]


def session(*, delay=lambda _: None):
    made = ClientSession(delay)
    assert said(made.begin())[0]["type"] == "connection_init"
    return made


def ready(**named):
    made = session(**named)
    assert say(made, type="connection_ack") == []
    return made


def say(made, **message):
    return made.receive(json.dumps(message))


def subscription(made, **payload):
    return ClientSubscription(made.name(), {"criteria": [{}], **payload})


def event(version):
    told = {"cursor": CURSOR.format(version + 1), "version": version, "index": 0, "count": 1}
    return told | {"timestamp": "2026-03-01T12:00:00Z", "area": "DATA", "operation": "UPSERT"}


def deliver(made, entry, *versions):
    cursor = CURSOR.format(versions[-1] + 1)
    events = [event(version) for version in versions]
    return say(made, type="next", id=entry.id, events=events, cursor=cursor, boundary=True)


def test_it_greets_with_its_token_and_says_nothing_else_before_the_ack():
    made = ClientSession(lambda _: None)
    entry, question = subscription(made), ClientQuestion(made.name(), {"entity_type": "order"})
    entry.wanted = 5
    (greeting,) = said(made.begin("secret"))
    assert greeting["payload"]["token"] == "secret"
    assert made.subscribe(entry) == made.ask(question) == made.request(entry) == []
    asked, subscribed = said(say(made, type="connection_ack"))
    assert (asked["type"], asked["id"]) == ("schema", question.id)
    assert (subscribed["type"], subscribed["id"], subscribed["payload"]["credits"]) == (
        "subscribe",
        entry.id,
        5,
    )


def test_what_comes_before_the_ack_breaks_the_protocol():
    with pytest.raises(Violation, match="connection_ack was expected, not Ping"):
        say(session(), type="ping")


def test_on_the_next_connection_it_goes_on_behind_what_has_come_with_what_is_still_wanted():
    made = ready()
    entry = subscription(made, start="earliest", whole=True)
    entry.wanted = 3
    made.subscribe(entry)
    (delivered,) = deliver(made, entry, 1, 2)
    assert isinstance(delivered, Deliver)
    assert [change.version for change in delivered.events] == [1, 2]
    made.lost()
    assert made.phase is ConnectionPhase.CLOSED
    assert made.request(entry) == []
    made.begin()
    ((again),) = said(say(made, type="connection_ack"))
    assert again["payload"] == {"criteria": [{}], "credits": 1, "since": CURSOR.format(3)}


@pytest.mark.parametrize(
    ("told", "cursor"),
    [
        ({"type": "snapshot_begin", "snapshot": "5b1c"}, f"n1:5b1c::{CURSOR.format(58)}"),
        ({"type": "chunk_end"}, f"n1:5b1c:b3JkZXI.NDI:{CURSOR.format(58)}"),
        ({"type": "snapshot_end", "snapshot": "5b1c"}, CURSOR.format(58)),
    ],
)
def test_what_is_told_of_a_snapshot_moves_the_place_to_go_on_from(told, cursor):
    """F89: else the next connection repeats the page, or begins the snapshot again."""
    made = ready()
    entry = subscription(made, start="state")
    made.subscribe(entry)
    (delivered,) = say(made, id=entry.id, cursor=cursor, **told)
    assert (delivered.cursor, delivered.events[0].cursor) == (cursor, cursor)
    made.lost()
    made.begin()
    (again,) = said(say(made, type="connection_ack"))
    assert again["payload"]["since"] == cursor
    assert "start" not in again["payload"]


def test_only_what_is_new_is_requested():
    made = ready()
    entry = subscription(made)
    made.subscribe(entry)
    entry.wanted += 4
    assert said(made.request(entry)) == [{"type": "request", "id": entry.id, "n": 4}]
    assert made.request(entry) == []


def test_more_events_than_were_requested_break_the_protocol():
    made = ready()
    entry = subscription(made)
    entry.wanted = 1
    made.subscribe(entry)
    with pytest.raises(Violation, match="2 events came, but 1 were requested") as caught:
        deliver(made, entry, 1, 2)
    assert caught.value.close_code is CloseCode.FLOOD


def test_a_checkpoint_that_is_missing_is_noticed_on_each_connection_anew():
    made = ready()
    entry = subscription(made)
    made.subscribe(entry)
    item = {"id": entry.id, "cursor": CURSOR.format(7), "head": CURSOR.format(9), "state": "RESYNC"}
    (told,) = say(made, type="checkpoint", items=[item], n=1)
    assert isinstance(told, Progress)
    assert entry.cursor == CURSOR.format(7)
    with pytest.raises(ConnectionError, match="checkpoint 3 came, but 2 was to come"):
        say(made, type="checkpoint", items=[], n=3)
    made.lost()
    made.begin()
    say(made, type="connection_ack")
    assert say(made, type="checkpoint", items=[], n=1) == []


def failure(made, entry, code, **payload):
    return say(made, type="error", id=entry.id, payload={"code": code, "message": "no", **payload})


def test_an_error_ends_a_subscription_unless_it_is_an_interruption_that_is_waited_for():
    made = ready(delay=lambda attempt: None if attempt == 2 else attempt + 0.5)
    entry = subscription(made)
    made.subscribe(entry)
    for attempt in range(2):
        (retry,) = failure(made, entry, "CURSOR_AHEAD", retryable=True)
        assert isinstance(retry, Retry)
        assert retry.delay == attempt + 0.5
        assert said(made.subscribe(entry))[0]["type"] == "subscribe"
    (ended,) = failure(made, entry, "CURSOR_AHEAD", retryable=True)
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, RemoteError)
    assert made.subscribe(entry) == made.cancel(entry) == []


def test_a_server_that_goes_away_is_subscribed_to_again_on_the_next_connection_only():
    made = ready(delay=lambda _: 1.0)
    entry = subscription(made)
    made.subscribe(entry)
    assert say(made, type="goaway", deadlineMs=5) == []
    assert made.phase is ConnectionPhase.DRAINING
    assert failure(made, entry, "GOING_AWAY", retryable=True) == []
    made.lost()
    made.begin()
    assert said(say(made, type="connection_ack"))[0]["id"] == entry.id


def test_whoever_waits_is_told_when_there_will_be_no_connection():
    made, lost = ready(), ConnectionLost("ws://x", "gone")
    entry, question = subscription(made), ClientQuestion(made.name(), {"entity_type": "order"})
    made.subscribe(entry)
    made.ask(question)
    assert made.give_up(lost) == [Answered(question, lost), Ended(entry, lost)]
    assert made.give_up(lost) == []


def test_a_cancelled_subscription_is_completed_at_the_server_and_heard_of_no_more():
    made = ready()
    entry = subscription(made)
    entry.wanted = 9
    made.subscribe(entry)
    assert said(made.cancel(entry)) == [{"type": "complete", "id": entry.id}]
    assert deliver(made, entry, 1) == made.cancel(entry) == []


def test_a_ping_is_answered_with_what_it_holds():
    assert said(say(ready(), type="ping", payload={"n": 1})) == [{"type": "pong", "payload": {"n": 1}}]

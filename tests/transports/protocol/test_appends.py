"""The appends of one connection as a machine: window, order of answers, and what follows a refusal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import ExpectationFailed, LogFull
from penstock_cdc.types import Commit
from publishers import Position
from publishers.commits.submission import Wait
from publishers.model.position import PositionToken
from tests.transports.protocol.test_server import acknowledged, closed, sent, session, subscribe
from transports.errors import CloseCode
from transports.problems import describe
from transports.protocol.appends import Write
from transports.protocol.connection import Send

CURSOR = "0" * 32 + ":1:7:0"
CHANGES = [{"entity_type": "order", "key": "1", "body": {}}]


def append(made, name="a", now=0.0, **payload):
    message = {"type": "append", "id": name, "payload": {"changes": CHANGES} | payload}
    return made.receive(json.dumps(message), now)


def write(made, name="a", **payload):
    effects = append(made, name, **payload)
    assert isinstance(effects[0], Write), effects
    return effects[0].entry


def done(made, entry, version=7):
    return sent(made.appended(entry, Commit(version, duplicate=False, changes=2, committed_at=1), CURSOR))


def refused(made, entry, error=None):
    return sent(made.append_failed(entry, describe(error or LogFull(0, 1))))


def codes(messages):
    return [(one["id"], one["payload"]["code"] if one["type"] == "error" else "appended") for one in messages]


def test_an_append_is_checked_handed_on_and_answered():
    """F145: the changes are left as they came."""
    made = acknowledged()
    (effect,) = append(
        made,
        log="shop",
        producer="etl",
        sequence=3,
        expect={"cursor": CURSOR, "keys": [{"entity_type": "order", "key": "1"}]},
        meta={"by": "ann"},
        wait="visible",
        unknown="ignored",
    )
    wish = effect.request
    assert (wish.log, wish.producer, wish.sequence, wish.meta, wish.wait) == (
        "shop",
        "etl",
        3,
        {"by": "ann"},
        Wait.VISIBLE,
    )
    assert wish.expect == (PositionToken.parse(CURSOR), [("order", "1")])
    assert json.loads(effect.changes) == CHANGES
    assert done(made, effect.entry) == [
        {
            "type": "appended",
            "id": "a",
            "version": 7,
            "cursor": CURSOR,
            "duplicate": False,
            "changes": 2,
            "timestamp": "1970-01-01T00:00:00.000001Z",
        }
    ]
    assert (len(made.window), made.window.nbytes) == (0, 0)
    assert done(made, effect.entry) == refused(made, effect.entry) == []
    assert append(made, expect=CURSOR)[0].request.expect == PositionToken.parse(CURSOR)


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"producer": ""}, "producer"),
        ({"producer": "x" * 201, "sequence": 1}, "producer"),
        ({"producer": "etl"}, "sequence"),
        ({"sequence": 1}, "sequence"),
        ({"producer": "etl", "sequence": -1}, "sequence"),
        ({"producer": "etl", "sequence": 2**63}, "sequence"),
        ({"producer": 7, "sequence": 1}, "producer"),
        ({"log": 7}, "log"),
        ({"meta": []}, "meta"),
        ({"wait": "forever"}, "wait"),
        ({"first": "yes"}, "first"),
        ({"expect": 7}, "expect"),
        ({"expect": {"cursor": CURSOR, "key": "1"}}, "expect"),
        ({"expect": {"cursor": CURSOR, "keys": "order"}}, "expect.keys"),
        ({"expect": {"cursor": CURSOR, "keys": ["order"]}}, "expect.keys"),
        ({"expect": {"cursor": CURSOR, "keys": []}}, "expect"),
        ({"expect": {"cursor": CURSOR, "keys": [{"entity_type": "order", "key": 7}]}}, "expect"),
    ],
)
def test_a_wish_that_is_none_is_refused_by_its_field(payload, path):
    """F145."""
    made = acknowledged()
    (answer,) = sent(append(made, **payload))
    assert answer["payload"]["code"] == "INVALID_REQUEST"
    assert answer["payload"]["path"] == path
    assert len(made.window) == 0


def test_a_cursor_that_is_none_is_refused_as_such():
    """F145."""
    for expect in ("nonsense", {"cursor": 7}, {}):
        (answer,) = sent(append(acknowledged(), expect=expect))
        assert answer["payload"]["code"] == "CURSOR_INVALID"
    assert append(acknowledged(), expect={"cursor": CURSOR})[0].request.expect == PositionToken.parse(CURSOR)


def test_answers_come_in_the_order_of_the_appends():
    """F145: whatever is known first."""
    made = acknowledged()
    first, second, third = (write(made, name) for name in "abc")
    assert done(made, second, 2) == []
    assert done(made, third, 3) == []
    assert [one["id"] for one in done(made, first, 1)] == ["a", "b", "c"]


def test_a_refusal_refuses_everything_behind_it_until_the_client_says_that_it_knows():
    """F145: else a repetition of what was refused would be a duplicate of what was written behind it."""
    made = acknowledged()
    first, second = write(made, "a"), write(made, "b")
    error = ExpectationFailed(Position(1, 0), Position(3, 0))
    assert codes(refused(made, first, error)) == [("a", "EXPECTATION_FAILED")]
    assert append(made, "c") == []  # it is told behind b
    assert codes(refused(made, second)) == [("b", "LOG_FULL"), ("c", "PREDECESSOR_FAILED")]
    # All are answered, but what comes may have been sent before that.
    assert codes(sent(append(made, "d"))) == [("d", "PREDECESSOR_FAILED")]
    entry = write(made, "e", first=True)
    assert entry.run != first.run
    follower = write(made, "f")
    assert codes(done(made, entry, 1) + done(made, follower, 2)) == [("e", "appended"), ("f", "appended")]


def test_what_is_wrong_with_one_append_refuses_what_is_behind_it_too():
    """F145: also what the machine refuses by itself."""
    made = acknowledged()
    assert codes(sent(append(made, "a", wait="forever"))) == [("a", "INVALID_REQUEST")]
    assert codes(sent(append(made, "b"))) == [("b", "PREDECESSOR_FAILED")]
    assert write(made, "c", first=True)


def test_first_must_be_true():
    """F145: it is refused while something is unanswered."""
    made = acknowledged()
    write(made, "a")
    assert append(made, "b", first=True) == []
    assert codes(done(made, made.window._entries["a"]))[1:] == [("b", "INVALID_REQUEST")]


def test_the_window_is_bounded_in_appends_and_bytes():
    """F145: above it appends are refused, far above it the connection is closed."""
    made = acknowledged(appends=2)
    entries = [write(made, name) for name in "ab"]
    assert append(made, "c") == append(made, "d") == []
    assert closed(append(made, "e")).code is CloseCode.FLOOD
    assert done(made, entries[0]) == []  # the connection is closed
    made = acknowledged(append_bytes=200)
    large = write(made, "a", meta={"pad": "x" * 1000})  # alone it is taken
    assert append(made, "b") == []
    assert codes(done(made, large)) == [("a", "appended"), ("b", "TOO_MANY_APPENDS")]


def test_ids_are_shared_with_subscriptions():
    """F145: one id, one thing."""
    made = acknowledged()
    subscribe(made, "a")
    assert closed(append(made, "a")).code is CloseCode.ID_IN_USE
    made = acknowledged()
    write(made, "a")
    assert closed(append(made, "a")).code is CloseCode.ID_IN_USE
    for message in (
        {"type": "subscribe", "id": "a", "payload": {}},
        {"type": "schema", "id": "a", "payload": {}},
    ):
        made = acknowledged()
        write(made, "a")
        assert closed(made.receive(json.dumps(message), 0.0)).code is CloseCode.ID_IN_USE


def test_appends_have_their_own_bound_and_refusals_that_of_messages():
    """F145: a fast writer is no flood; one that is refused again and again is."""
    made = acknowledged(messages_per_second=5)
    for number in range(100):
        done(made, write(made, str(number)))
    for number in range(20):
        effects = append(made, str(number), wait="forever")
        if not isinstance(effects[0], Send):
            break
    assert closed(effects).code is CloseCode.FLOOD


def test_before_the_ack_and_while_the_server_stops_nothing_is_appended():
    """F145."""
    assert closed(append(session())).code is CloseCode.UNAUTHORIZED
    made = acknowledged()
    made.goaway(1.0, "restart")
    assert codes(sent(append(made))) == [("a", "GOING_AWAY")]
    assert closed(made.receive('{"type":"append","id":"b","payload":7}', 0.0)).code is CloseCode.BAD_REQUEST


def test_a_connection_that_is_gone_is_told_nothing():
    """F145: what was under way goes on, and nobody is answered."""
    made = acknowledged()
    entry = write(made)
    made.lost()
    assert entry.ended
    assert not made.window.nbytes
    assert done(made, entry) == refused(made, entry) == []


@given(st.lists(st.sampled_from(["send", "first", "done", "fail"]), max_size=40), st.randoms())
def test_in_every_run_what_is_written_is_a_beginning_of_what_was_sent(steps, chance):
    """F145: and answers keep the order of the appends, whatever is known when."""
    made = acknowledged(appends=8)
    sent_ids, answers, runs, open_entries = [], [], {}, []
    for step in steps:
        if step in ("send", "first"):
            name = str(len(sent_ids))
            if len(made.window) >= 16:
                continue
            sent_ids.append(name)
            effects = append(made, name, first=step == "first")
            if effects and isinstance(effects[0], Write):
                open_entries.append(effects[0].entry)
            else:
                answers += sent(effects)
        elif open_entries:
            entry = open_entries.pop(chance.randrange(len(open_entries)))
            good = step == "done" and not runs.get(entry.run)
            runs[entry.run] = runs.get(entry.run) or not good
            answers += done(made, entry) if good else refused(made, entry)
    assert [one["id"] for one in answers] == sent_ids[: len(answers)]

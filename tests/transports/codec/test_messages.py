import pytest

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidCriteria
from publishers.model.position import Position
from publishers.views.view import Content, View
from transports.codec.envelope import Ping
from transports.codec.messages import Request, SubscribeRequest, parse
from transports.errors import InvalidDemand, InvalidRequest
from transports.limits import Limits


def wish(**payload):
    return SubscribeRequest.of({"criteria": [], "credits": 1} | payload, Limits())


def test_a_wish_has_the_defaults_of_the_protocol():
    made = wish()
    assert made == SubscribeRequest(
        log=None,
        criteria=Criteria.of(),
        view=View(),
        since=None,
        start="latest",
        until=None,
        credits=1,
        batch_events=32,
        batch_bytes=192 * 1024,
        linger=0.0,
        fail_on_lag=False,
        heartbeat=10.0,
        empty=True,
    )


def test_a_wish_is_read_as_it_travels():
    made = wish(
        log="shop",
        criteria=[{"areas": ["DATA"], "entity_types": ["order"], "operations": ["UPSERT"]}],
        content="BODY",
        since="cursor",
        until=9,
        credits=0,
        batch={"maxEvents": 1000, "maxBytes": 1000, "lingerMs": 5},
        onLag="fail",
        heartbeatMs=0,
        unknown="ignored",
    )
    assert made.criteria == Criteria.of(
        Criterion(areas={"DATA"}, entity_types={"order"}, operations={"UPSERT"})
    )
    assert made.view == View(Content.BODY)
    assert (made.log, made.since, made.until, made.credits) == ("shop", "cursor", 9, 0)
    assert (made.batch_events, made.batch_bytes, made.linger) == (1000, 1000, 0.005)
    assert (made.fail_on_lag, made.heartbeat) == (True, 0.0)
    assert wish(start={"version": 7}).start == Position(7, 0)
    assert wish(start="earliest").start == "earliest"


def test_a_batch_may_not_be_asked_larger_than_the_window_allows():
    assert wish(batch={"maxBytes": 2**30}).batch_bytes == 192 * 1024


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"content": "body"}, "content"),
        ({"content": 7}, "content"),
        ({"content": ["BODY"]}, "content"),
        ({"images": "NEITHER"}, "images"),
        ({"log": 7}, "log"),
        ({"since": 7}, "since"),
        ({"since": "x", "start": "latest"}, "start"),
        ({"start": "tomorrow"}, "start"),
        ({"start": {"time": "2026-01-01T00:00:00Z", "version": 1}}, "start"),
        ({"start": {"version": 0}}, "start.version"),
        ({"until": 0}, "until"),
        ({"until": "9"}, "until"),
        ({"until": 2**53}, "until"),
        ({"credits": None}, "credits"),
        ({"credits": "5"}, "credits"),
        ({"credits": True}, "credits"),
        ({"credits": 1.0}, "credits"),
        ({"batch": 7}, "batch"),
        ({"batch": {"maxEvents": 0}}, "batch.maxEvents"),
        ({"batch": {"maxEvents": 1001}}, "batch.maxEvents"),
        ({"batch": {"maxBytes": -1}}, "batch.maxBytes"),
        ({"batch": {"lingerMs": 1001}}, "batch.lingerMs"),
        ({"onLag": "conflate"}, "onLag"),
        ({"heartbeatMs": -1}, "heartbeatMs"),
        ({"heartbeatMs": 2**70}, "heartbeatMs"),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(payload, path):
    with pytest.raises(InvalidRequest) as caught:
        wish(**payload)
    assert caught.value.data == {"path": path}
    assert str(caught.value).startswith(f"{path} is ")
    assert "must be" in str(caught.value)


@pytest.mark.parametrize("value", [-1, 2**31, 2**70])
def test_credits_out_of_range_are_invalid_demand(value):
    with pytest.raises(InvalidDemand, match="between 0 and 2147483647"):
        wish(credits=value)


@pytest.mark.parametrize(
    ("criteria", "path"),
    [
        (7, "criteria"),
        ({}, "criteria"),
        ([7], "criteria[0]"),
        ([{}, {"keyz": ["1"]}], "criteria[1].keyz"),
        ([{"keys": "1"}], "criteria[0].keys"),
        ([{"keys": [1]}], "criteria[0].keys"),
        ([{"operations": ["UPSRT"]}], "criteria[0].operations"),
    ],
)
def test_wrong_criteria_are_located(criteria, path):
    with pytest.raises(InvalidCriteria) as caught:
        wish(criteria=criteria)
    assert caught.value.path == path


def test_missing_criteria_are_refused_and_not_taken_for_everything():
    with pytest.raises(InvalidCriteria, match="empty one for everything"):
        SubscribeRequest.of({"credits": 1}, Limits())


def test_messages_are_typed_and_unknown_fields_ignored():
    assert parse('{"type":"request","id":"a","n":5,"extra":[]}') == Request("a", 5)
    ping = parse(b'{"type":"ping","payload": {"a" : 1}}')
    assert isinstance(ping, Ping)
    assert bytes(ping.payload) == b'{"a" : 1}'

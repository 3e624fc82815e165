"""Webhooks behind OAuth 2.0: tokens are got, kept, replaced when they end or are not taken any more, and never told."""

import base64
import json
from urllib.parse import parse_qs

import pytest

from penstock_cdc.errors import InvalidOption
from tests.transports.sinks.receivers import OK, Receiver, closed_port
from tests.transports.sinks.targets import HandClock
from tests.transports.sinks.webhooks import BATCH, LOOPBACK, context
from transports.sinks import TargetRefused, TargetUnavailable
from transports.sinks.oauth import ClientCredentials
from transports.sinks.webhook import WebhookSink


def token(number, **fields):
    told = {"access_token": f"s3cr3t-{number}", "token_type": "bearer", **fields}
    return (200, {}, json.dumps(told).encode())


@pytest.fixture
def issuer():
    with Receiver() as made:
        yield made


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def sink(issuer, receiver, clock, monkeypatch):
    monkeypatch.setenv("CLIENT_SECRET", "s3cr3t/secret")
    made = []

    def make(**options):
        oauth = ClientCredentials(issuer.url, "ann", "env:CLIENT_SECRET", clock=clock, **options)
        made.append(WebhookSink(receiver.url, allow=LOOPBACK, oauth=oauth, timeout=30.0))
        made[-1].open(context())
        return made[-1]

    yield make
    for one in made:
        one.close()


def shown(receiver):
    return [one.headers["authorization"] for one in receiver.received]


def test_a_token_is_got_once_and_kept_until_shortly_before_its_end(issuer, receiver, clock, sink):
    """F165."""
    issuer.plan = [token(1, expires_in=100), token(2)]
    hook = sink(scope="hooks", audience="shop")
    for seconds in (0, 85, 10):
        clock.now += seconds
        assert not hook.write(BATCH)
    assert shown(receiver) == ["Bearer s3cr3t-1", "Bearer s3cr3t-1", "Bearer s3cr3t-2"]
    asked = issuer.received[0]
    pair = base64.b64encode(b"ann:s3cr3t%2Fsecret").decode()
    assert asked.headers["authorization"] == f"Basic {pair}"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["hooks"],
        "audience": ["shop"],
    }
    assert len(issuer.received) == 2


def test_id_and_secret_may_go_in_the_form(issuer, receiver, sink):
    """F165: as some servers want it."""
    issuer.plan = [token(1)]
    sink(auth="body").write(BATCH)
    asked = issuer.received[0]
    assert "authorization" not in asked.headers
    told = parse_qs(asked.body.decode())
    assert (told["client_id"], told["client_secret"]) == (["ann"], ["s3cr3t/secret"])
    assert shown(receiver) == ["Bearer s3cr3t-1"]


def test_a_token_that_ends_in_the_middle_of_a_batch_is_replaced_in_the_same_attempt(issuer, receiver, sink):
    """F165: what is sent again is the very same, so that a receiver which has taken it can tell."""
    issuer.plan = [token(1), token(2)]
    receiver.plan = [OK, (401, {}, b"expired"), OK]
    hook = sink()
    assert not hook.write(BATCH)
    assert not hook.write(BATCH)
    assert shown(receiver) == ["Bearer s3cr3t-1", "Bearer s3cr3t-1", "Bearer s3cr3t-2"]
    again = [
        (one.headers["webhook-id"], one.headers["penstock-attempt"], one.body)
        for one in receiver.received[1:]
    ]
    assert again[0] == again[1]


def test_a_receiver_that_takes_no_new_token_either_refuses_for_good(issuer, receiver, sink):
    """F165."""
    issuer.plan = [token(1), token(2)]
    receiver.plan = [(401, {}, b"no"), (401, {}, b"no")]
    with pytest.raises(TargetRefused, match="answered 401"):
        sink().write(BATCH)
    assert len(issuer.received) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((503, {}, b""), TargetUnavailable, "the authorisation server answered 503"),
        ("reset", TargetUnavailable, "the authorisation server: "),
        ((401, {}, b'{"error":"invalid_client","error_description":"s3cr3t"}'), TargetRefused, "401: invalid_client$"),
        ((400, {}, b'{"error":"s3cr3t/secret"}'), TargetRefused, "answered 400$"),
        ((400, {}, b"[]"), TargetRefused, "answered 400$"),
        ((200, {}, b"nonsense"), TargetRefused, "with no token"),
        ((200, {}, b'{"access_token":"s3cr3t\\n"}'), TargetRefused, "no bearer token"),
        (token(1, token_type="mac"), TargetRefused, "no bearer token"),
    ],
)  # fmt: skip
def test_a_server_that_gives_no_token_is_tried_again_or_pauses_the_sink(
    issuer, receiver, sink, answer, kind, says
):
    """F165, F141: and what it says is not repeated, as it may hold a secret."""
    issuer.plan = [answer]
    with pytest.raises(kind, match=says) as caught:
        sink().write(BATCH)
    assert "s3cr3t" not in str(caught.value)
    assert receiver.received == []


def test_the_authorisation_server_is_guarded_as_the_receiver_is(receiver, monkeypatch):
    """F142, F165."""
    monkeypatch.setenv("CLIENT_SECRET", "x")
    oauth = ClientCredentials(f"http://10.0.0.1:{closed_port()}/token", "ann", "env:CLIENT_SECRET")
    hook = WebhookSink(receiver.url, allow=LOOPBACK, oauth=oauth)
    hook.open(context())
    with pytest.raises(TargetRefused, match="not public"):
        hook.write(BATCH)
    hook.close()
    assert repr(oauth) == "<ClientCredentials plain:... env:CLIENT_SECRET>"


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_url": ""},
        {"token_url": 7},
        {"client_id": ""},
        {"client_secret": "s3cr3t"},
        {"auth": "digest"},
    ],
)
def test_arguments_are_checked(wrong):
    """F165, F141."""
    given = {"token_url": "https://x/", "client_id": "ann", "client_secret": "env:X", **wrong}
    with pytest.raises(InvalidOption) as caught:
        ClientCredentials(**given)
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(InvalidOption, match="token_url"):
        WebhookSink("https://x/", oauth=ClientCredentials("ftp://x/", "ann", "env:X"))

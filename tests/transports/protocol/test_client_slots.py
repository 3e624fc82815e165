"""What the machine of a client sends of a slot, over connections that come and go."""

import msgspec
import pytest

from transports.protocol.client import Acked, ClientSession, ClientSubscription, Retry
from transports.protocol.client_slots import ClientSlot
from transports.protocol.connection import Send

ACK = '{"type":"connection_ack"}'
GIVEN = '{"type":"subscribed","id":"1","log":"shop","epoch":1,"cursor":"c1","oldest":"c1","head":"c9","slot":{"name":"stock","generation":7,"cursor":"c1"}}'


@pytest.fixture
def session():
    session = ClientSession(lambda _attempt: 0.0)
    session.begin()
    session.receive(ACK)
    return session


@pytest.fixture
def entry(session):
    slot = ClientSlot("stock", opening="o", take_over=False, owner=None)
    entry = ClientSubscription(session.name(), {}, slot)
    session.subscribe(entry)
    return entry


def sent(effects):
    return [msgspec.json.decode(effect.data) for effect in effects if isinstance(effect, Send)]


def test_an_acknowledgement_waits_until_the_slot_is_open_on_the_next_connection(session, entry):
    """F74, F85: the server drops what it hears before, and the client would wait for its answer for ever."""
    session.receive(GIVEN)
    session.lost()
    session.begin()
    (asked,) = sent(session.receive(ACK))
    assert (asked["type"], asked["payload"]["slot"]["generation"]) == ("subscribe", 7)
    number = entry.slot.acknowledge("c2", durable=True)
    assert session.acknowledge(entry) == []
    (said,) = sent(session.receive(GIVEN))
    assert (said["type"], said["cursor"], said["n"], said["durable"]) == ("ack", "c2", number, True)
    (acked,) = session.receive('{"type":"acked","id":"1","cursor":"c2","n":1}')
    assert acked == Acked(entry, 1, None)


def test_an_acknowledgement_goes_again_when_the_subscription_is_tried_again(session, entry):
    """F74: on the same connection, whose server had ended it."""
    session.receive(GIVEN)
    entry.slot.acknowledge("c2", durable=True)
    assert len(sent(session.acknowledge(entry))) == 1
    refused = '{"type":"error","id":"1","payload":{"code":"LOG_CLOSED","message":"closed","retryable":true}}'
    (effect,) = session.receive(refused)
    assert isinstance(effect, Retry)
    session.subscribe(entry)
    assert session.acknowledge(entry) == []
    (said,) = sent(session.receive(GIVEN))
    assert (said["cursor"], said["durable"]) == ("c2", True)


def test_what_is_tried_again_when_its_connection_was_made_anew_is_subscribed_once(session, entry):
    """F39: a server closes the connection of a client that uses an id twice, and the client would give up."""
    session.receive(GIVEN)
    refused = '{"type":"error","id":"1","payload":{"code":"LOG_CLOSED","message":"closed","retryable":true}}'
    (effect,) = session.receive(refused)
    assert isinstance(effect, Retry)
    session.lost()
    session.begin()
    assert [message["type"] for message in sent(session.receive(ACK))] == ["subscribe"]
    assert session.subscribe(entry) == []  # its time has come, and it has nothing to do

"""What a client may not do before it was acknowledged, over real sockets."""

import contextlib
import json

import pytest
import websockets

QUERY = {"query": "subscription { onChange { key } }"}


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "subscribe", "id": "a", "payload": QUERY}],
        [{"type": "ping"}, {"type": "subscribe", "id": "a", "payload": QUERY}],
        [{"type": "subscribe", "id": "a", "payload": QUERY}, {"type": "connection_init"}],
    ],
)
async def test_what_comes_before_the_acknowledgement_is_closed_with_4401(serving, graphql, messages, log):
    """E55: also behind a ping, and nobody is subscribed."""
    async with graphql(serving()) as wire:
        for message in messages:
            with contextlib.suppress(websockets.ConnectionClosed):  # it may be closed by now
                await wire.socket.send(json.dumps(message))
        if messages[0]["type"] == "ping":
            assert (await wire.receive())["type"] == "pong"
        code, reason = await wire.closed()
        assert code == 4401
        assert reason
        assert not log.statistics().publishers

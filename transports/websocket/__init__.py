"""``penstock.v1+json`` over WebSockets: explicit credits, cursors, checkpoints."""

from transports.websocket.backoff import Backoff
from transports.websocket.client import RemoteLog, connect
from transports.websocket.remote import RemoteFeed, RemoteSubscription

__all__ = ["Backoff", "RemoteFeed", "RemoteLog", "RemoteSubscription", "connect"]

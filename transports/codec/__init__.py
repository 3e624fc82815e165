"""Bytes on the wire: events encoded once and shared, messages read and checked."""

from transports.codec.events import EventEncoder
from transports.codec.messages import Wish, parse

__all__ = ["EventEncoder", "Wish", "parse"]

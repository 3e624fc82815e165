"""What all faces have in common: refusals by their codes, and what is given as the contracts compare it."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from publishers import ChangeLog, Position
from tests.contracts.place import DEADLINE

__all__ = ["DEADLINE", "Claimed", "Given", "Mux", "Refused", "Row", "Seen", "SlotSeen", "apart", "place_of"]


class Refused(Exception):
    """What a face answers in place of a result.

    Attributes:
        code: The code of the protocol for it.
        data: What it is told with.
    """

    def __init__(self, code: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, dict(data or {}))
        self.code = code
        self.data = dict(data or {})


@dataclass(frozen=True)
class Given:
    """A delivery of a group.

    Attributes:
        at: What the face calls it by.
        position: Its position.
        count: How often it was delivered.
        changes: Key and body of each of its changes.
    """

    at: Any = field(compare=False)
    position: Position
    count: int | None
    changes: tuple[tuple[str | None, Any], ...]

    @property
    def keys(self) -> list[str | None]:
        return [key for key, _ in self.changes]


@dataclass(frozen=True)
class Row:
    """A delivery that is not acknowledged, as it is listed."""

    position: Position
    consumer: str
    count: int


@dataclass(frozen=True)
class Claimed:
    """What a claim gave, where the next one may begin, and what retention has taken."""

    given: list[Given]
    next: Position | None
    lost: list[Position]


@dataclass(frozen=True)
class Seen:
    """A change that a subscription gave.

    Attributes:
        at: What the face calls the place behind it by.
        position: Its position.
        key: Its key.
        body: Its body.
        operation: Its operation, where the face was asked for it.
    """

    at: Any = field(compare=False)
    position: Position
    key: str | None
    body: Any
    operation: str = ""


@dataclass(frozen=True)
class SlotSeen:
    """A slot as it is told of."""

    name: str
    version: int
    state: str
    paused: bool
    owner: str | None


def place_of(cursor: str) -> Position:
    """The position of a cursor; clients never do that."""
    version, index = cursor.rsplit(":", 2)[1:]
    return Position(int(version), int(index))


class Mux:
    """One WebSocket with messages of JSON, each of which is kept for the id that it has.

    Args:
        place: Whose loop it lives on.
        socket: The connection.
    """

    def __init__(self, place: Any, socket: Any) -> None:
        self.place = place
        self.socket = socket
        self._kept: dict[Any, deque[dict[str, Any]]] = {}

    def say(self, **message: Any) -> None:
        self.place.run(self.socket.send(json.dumps(message)))

    def hear(self, name: Any, *kinds: str) -> dict[str, Any]:
        """The next message of one of these types that has an id; the others stay for later."""
        kept = self._kept.setdefault(name, deque())
        for message in kept:
            if message["type"] in kinds:
                kept.remove(message)
                return message
        while True:
            message = json.loads(self.place.run(self.socket.recv()))
            if message["type"] == "ping":
                self.say(type="pong", payload=message.get("payload"))
            elif message.get("id") == name and message["type"] in kinds:
                return message
            elif message["type"] == "checkpoint":
                for item in message["items"]:
                    self._kept.setdefault(item["id"], deque()).append({**item, "type": "checkpoint"})
            else:
                self._kept.setdefault(message.get("id"), deque()).append(message)

    def settle(self) -> None:
        """What the server sent before it has come."""
        self.say(type="ping", payload={"n": "settled"})
        self.hear(None, "pong")

    def has(self, name: Any, kind: str) -> bool:
        """Whether a message of a type has come for an id."""
        return any(message["type"] == kind for message in self._kept.get(name, ()))


@contextmanager
def apart(face: Any, log: ChangeLog) -> Iterator[Any]:
    """The same face with a connection of its own, for a test that loses it."""
    lone = type(face)(face.place)
    lone.begin(log)
    try:
        yield lone
        lone.end()
    finally:
        lone.close()

"""The faces of the Redis protocol, by a stock client."""

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import redis

from publishers import Criterion, Position
from tests.contracts.faces import DEADLINE, Claimed, Given, Refused, Row
from tests.contracts.in_process import while_waiting
from tests.contracts.orders import Face, Following
from tests.contracts.place import Place

__all__ = ["Groups"]

CODES: Final = {
    "NOGROUP": "GROUP_NOT_FOUND",
    "BUSYGROUP": "GROUP_EXISTS",
    "NOPERM": "FORBIDDEN",
    "READONLY": "LOG_READ_ONLY",
    "PAUSED": "GROUP_PAUSED",
    "ERR": "INVALID_REQUEST",
}
BITS: Final = 24


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        word = str(error).partition(" ")[0]
        if isinstance(error, redis.exceptions.NoPermissionError):
            word = "NOPERM"
        elif isinstance(error, redis.exceptions.ReadOnlyError):
            word = "READONLY"
        raise Refused(
            CODES.get(word, word if word.isupper() else "INVALID_REQUEST"), {"message": str(error)}
        ) from error


class Connected:
    """A stock client that is connected as long as the module."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.client = redis.Redis(port=place.resp.port, socket_timeout=DEADLINE)
        self.client.ping()

    def close(self) -> None:
        self.client.close()

    def cut(self) -> None:
        """Loses the connection; the client makes another one."""
        self.client.connection_pool.disconnect()

    @refusals()
    def say(self, *words: Any) -> Any:
        return self.client.execute_command(*words)


class Groups(Connected, Face):
    """Groups over the Redis protocol, as Kora's clients use them."""

    name = "resp"
    cannot: ClassVar[dict[str, str]] = {
        "ack_upto": "an acknowledgement names each sequence",
        "in_progress": "Kora has no command for it: the time of a delivery is ACKWAIT",
        "term": "Kora has no command for it: MAXDELIVER ends what cannot be handled",
        "reset": "moving a group is left to its owner",
        "pause": "likewise",
        "resume": "likewise",
        "drop": "likewise",
        "dead": "dead letters are left to the owner of the log",
        "discard": "likewise",
        "release": "a consumer claims",
    }
    lacks: ClassVar[dict[str, str]] = {
        "generation": "a consumer is a name; its generations are the server's affair",
        "whole transactions": "events come one by one, without the delivery around them",
        "end told": "a consumer hears of its end when it says something",
    }

    def attempt(self, verb: str) -> None:
        """Says what would be said if it could be."""
        words = {
            "ack_upto": ("CDC.ACK", self.log.name, "pickers", "UPTO", 1),
            "in_progress": ("CDC.INPROGRESS", self.log.name, "pickers", "one", 1),
            "term": ("CDC.TERM", self.log.name, "pickers", "one", 1),
        }
        self.say(*words.get(verb, ("CDC.GROUP", verb.upper(), self.log.name, "pickers")))

    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        used: Consumer = self.keep(Consumer(self, group, consumer, history=history))
        return used

    def create(
        self, name: str, criterion: Criterion | None = None, start: str = "latest", **options: Any
    ) -> None:
        words: list[Any] = []
        if criterion is not None:
            (entity_type,) = criterion.entity_types
            words += ["MATCH", f"{entity_type}:*"]
        for option, value in options.items():
            words += [option.replace("_", "").upper(), value]
        self.say("CDC.GROUP", "CREATE", self.log.name, name, {"earliest": 0, "latest": "$"}[start], *words)

    def info(self, name: str) -> dict[str, Any]:
        told = self.say("CDC.GROUP", "INFO", self.log.name, name)
        told = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
        return {
            "state": told[b"state"].decode(),
            "floor": position(told[b"floor"]),
            "pending": told[b"pending"],
            "dead": told[b"dead"],
            "consumers": [one.decode() for one in told[b"consumers"]],
        }

    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        words: list[Any] = ["WITHCOUNTS", "COUNT", limit, "MINIDLE", int(min_idle * 1000)]
        words += [] if consumer is None else ["CONSUMER", consumer]
        rows = self.say("CDC.PENDING", self.log.name, name, *words)
        return [Row(position(sequence), name.decode(), count) for sequence, name, _idle, count in rows]


class Consumer(Following):
    """A name that reads."""

    def __init__(self, face: Groups, group: str, name: str, *, history: bool) -> None:
        self.face = face
        self.key = face.log.name, group
        self.name = name
        self.history = history

    def read(self, count: int) -> list[Given]:
        found: list[Any] = []
        while len(found) < count:
            words = ["BLOCK", 60_000, *(["HISTORY"] if self.history else [])]
            found += self.face.say("CDC.GROUP", "READ", *self.key, self.name, count - len(found), *words)
        assert len(found) == count
        return self._given(found)

    def read_meanwhile(self, count: int, act: Callable[[], object]) -> list[Given]:
        return while_waiting(lambda: self.read(count), act)

    def _given(self, events: list[Any]) -> list[Given]:
        counts = {one.position: one.count for one in self.face.pending(self.key[1], self.name)}
        return [
            Given(
                sequence,
                position(sequence),
                counts.get(position(sequence)),
                ((key.decode().partition(":")[2], None if value is None else json.loads(value)),),
            )
            for sequence, _time, _operation, key, value in events
        ]

    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        words = ["CONSUMER", self.name, *(["DURABLE"] if durable else [])]
        return int(self.face.say("CDC.ACK", *self.key, *words, *(one.at for one in deliveries)))

    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        words: list[Any] = [] if delay is None else ["DELAY", int(delay * 1000)]
        words += [] if count else ["NOCOUNT"]
        return int(self.face.say("CDC.NACK", *self.key, self.name, *words, *(one.at for one in deliveries)))

    def claim(
        self,
        min_idle: float,
        *deliveries: Given,
        start: Given | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> Claimed:
        words: list[Any] = ["COUNT", limit, *([] if start is None else ["START", start.at])]
        words += ["JUSTID"] if only_ids else []
        following, events, lost = self.face.say(
            "CDC.CLAIM", *self.key, self.name, int(min_idle * 1000), *words, *(one.at for one in deliveries)
        )
        if only_ids:
            counts = {one.position: one.count for one in self.face.pending(self.key[1], self.name)}
            given = [Given(one, position(one), counts[position(one)], ()) for one in events]
        else:
            given = self._given(events)
        return Claimed(given, position(following) if following else None, [position(one) for one in lost])

    def leave(self) -> None:
        with contextlib.suppress(Refused):  # the group may be gone
            self.face.say("CDC.GROUP", "LEAVE", *self.key, self.name)


def position(sequence: int) -> Position:
    return Position(*divmod(sequence, 1 << BITS))

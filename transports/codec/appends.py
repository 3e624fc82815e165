"""Transactions that clients append: their wishes, checked, and the answers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from publishers.commits.expectation import Expect, ExpectedKeys
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Wait
from publishers.model.change import time_of
from publishers.model.position import PositionToken
from transports.codec.fields import typed, whole, word
from transports.errors import InvalidRequest

__all__ = ["AppendPayload", "AppendWish", "appended", "expect_json", "outcome"]

_PRODUCER_MAX: Final = 200
_SEQUENCE_MAX: Final = 2**63 - 1
_KEYS: Final = 'a list of objects {"entity_type": "order", "key": "42"}'
_encoder: Final = msgspec.json.Encoder()


class AppendPayload(msgspec.Struct, frozen=True):
    """The payload of ``append``: the changes are left as they came, the rest is unchecked."""

    changes: msgspec.Raw = msgspec.Raw()
    log: Any = None
    producer: Any = None
    sequence: Any = None
    expect: Any = None
    meta: Any = None
    wait: Any = None
    first: Any = None

    def told(self) -> dict[str, Any]:
        """All but the changes, by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "changes"}


class AppendWish(msgspec.Struct, frozen=True):
    """What a client wants of a transaction, checked, beside its changes.

    Attributes:
        log: Name of the log, or None for the only one.
        producer: What the client calls the producer, or None.
        sequence: Its number for the transaction.
        expect: What nothing may have been committed since, or None.
        meta: Annotations.
        wait: How far it is to be when it is answered.
        first: Whether the client has the answers to all that it has appended before.
    """

    log: str | None = None
    producer: str | None = None
    sequence: int = 0
    expect: Expect | None = None
    meta: Mapping[str, Any] | None = None
    wait: Wait = Wait.DURABLE
    first: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "AppendWish":
        """Checks the fields of a payload; one of None is as one that is left out.

        Raises:
            InvalidRequest: If a field has a value that it does not take.
            InvalidOption: If ``expect`` names keys that are none.
            PositionMalformed: If its cursor is none.
        """
        producer = typed(told, "producer", str, f"text of 1 to {_PRODUCER_MAX} characters")
        sequence = told.get("sequence")
        if producer is not None and not 0 < len(producer) <= _PRODUCER_MAX:
            raise InvalidRequest("producer", producer, f"text of 1 to {_PRODUCER_MAX} characters")
        if (producer is None) is not (sequence is None):
            raise InvalidRequest("sequence", sequence, "given with producer, and only then")
        return cls(
            log=typed(told, "log", str, "text"),
            producer=producer,
            sequence=0 if sequence is None else whole("sequence", sequence, 0, _SEQUENCE_MAX),
            expect=_expect(told.get("expect")),
            meta=typed(told, "meta", dict, "an object"),
            wait=Wait(word(told, "wait", "durable", [wait.value for wait in Wait])),
            first=typed(told, "first", bool, "true or false") or False,
        )

    def behind(self, first: object) -> "AppendWish":
        """The same, of which it is said at its end whether its client has all answers.

        Raises:
            InvalidRequest: If that is neither true nor false.
        """
        said = typed({"first": first}, "first", bool, "true or false") or False
        return msgspec.structs.replace(self, first=said)


def _expect(told: object) -> Expect | None:
    """``expect``: a cursor, or an object of a cursor and keys."""
    if told is None or isinstance(told, str):
        return None if told is None else PositionToken.parse(told)
    if not isinstance(told, dict) or not set(told) <= {"cursor", "keys"}:
        raise InvalidRequest("expect", told, "a cursor, or an object {cursor, keys}")
    cursor = PositionToken.parse(told.get("cursor"))
    keys = told.get("keys")
    if keys is None:
        return cursor
    if not isinstance(keys, list):
        raise InvalidRequest("expect.keys", keys, _KEYS)
    pairs = []
    for one in keys:
        if not isinstance(one, dict) or set(one) != {"entity_type", "key"}:
            raise InvalidRequest("expect.keys", one, _KEYS)
        pairs.append((one["entity_type"], one["key"]))
    ExpectedKeys(pairs)
    return cursor, pairs


def expect_json(expect: Expect) -> Any:
    """What a writer expects, as it travels."""
    if isinstance(expect, (str, PositionToken)):
        return str(expect)
    token, keys = expect
    return {
        "cursor": str(token),
        "keys": [
            {"entity_type": name, "key": key.decode() if isinstance(key, bytes) else key}
            for name, key in keys
        ],
    }


def appended(name: str, commit: Commit, cursor: str | None) -> bytes:
    """The message ``appended``.

    Args:
        name: Its id.
        commit: What became of the transaction.
        cursor: The place behind it; None if nobody knows its version any more.
    """
    told: dict[str, Any] = {"type": "appended", "id": name, **outcome(commit, cursor)}
    return _encoder.encode(told)


def outcome(commit: Commit, cursor: str | None) -> dict[str, Any]:
    """What became of a transaction, as it travels."""
    return {
        "version": commit.version,
        "cursor": cursor,
        "duplicate": commit.duplicate,
        "changes": commit.changes,
        "timestamp": time_of(commit.committed_at) if commit.committed_at else None,
    }

"""Transactions that clients append: validated requests, and answers."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from publishers.commits.expectation import Expect, ExpectedKeys
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Wait
from publishers.model.change import time_of
from publishers.model.position import PositionToken
from transports.codec.fields import LogName, convert
from transports.errors import InvalidRequest

__all__ = ["AppendPayload", "AppendRequest", "appended", "expect_json", "outcome"]

_PRODUCER_MAX: Final = 200
_SEQUENCE_MAX: Final = 2**63 - 1
_KEYS: Final = 'a list of objects {"entity_type": "order", "key": "42"}'
_encoder: Final = msgspec.json.Encoder()


class AppendPayload(msgspec.Struct, frozen=True):
    """The payload of ``append``: the changes are raw JSON, the other fields are unchecked."""

    changes: msgspec.Raw = msgspec.Raw()
    log: Any = None
    producer: Any = None
    sequence: Any = None
    expect: Any = None
    meta: Any = None
    wait: Any = None
    first: Any = None

    def fields(self) -> dict[str, Any]:
        """Returns all fields but the changes, by name."""
        fields = msgspec.structs.asdict(self)
        del fields["changes"]
        return fields


class AppendRequest(msgspec.Struct, frozen=True):
    """The fields of an append beside its changes.

    Attributes:
        log: The name of the log; None for the only one.
        producer: The producer's name; None without one.
        sequence: The producer's sequence number of the transaction.
        expect: The cursor, with keys if given, behind which no conflicting commit may exist; None for no check.
        meta: The annotations.
        wait: How far the transaction must have progressed before it is answered.
        first: Whether the client has received the answers to all its earlier appends.
    """

    log: LogName = None
    producer: Annotated[str, msgspec.Meta(min_length=1, max_length=_PRODUCER_MAX)] | None = None
    sequence: Annotated[int, msgspec.Meta(ge=0, le=_SEQUENCE_MAX)] = 0
    expect: Any = None
    meta: dict[str, Any] | None = None
    wait: Wait = Wait.DURABLE
    first: bool = False

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "AppendRequest":
        """Reads the fields of a payload; a field that is None counts as omitted.

        Raises:
            InvalidRequest: If the value of a field is wrong.
            InvalidOption: If a key of ``expect`` is invalid.
            PositionMalformed: If the cursor of ``expect`` is malformed.
        """
        found = convert(cls, payload)
        sequence = payload.get("sequence")
        if (found.producer is None) is not (sequence is None):
            raise InvalidRequest("sequence", sequence, "given with producer, and only then")
        if found.expect is None:
            return found
        return msgspec.structs.replace(found, expect=_expect(found.expect))

    def behind(self, first: object) -> "AppendRequest":
        """Returns the request with the ``first`` flag that ``commit`` carries.

        Raises:
            InvalidRequest: If ``first`` is neither true nor false.
        """
        return msgspec.structs.replace(self, first=convert(AppendRequest, {"first": first}).first)


def _expect(value: object) -> Expect:
    """Parses ``expect``: a cursor, or an object of a cursor and keys."""
    if isinstance(value, str):
        return PositionToken.parse(value)
    if not isinstance(value, dict) or not set(value) <= {"cursor", "keys"}:
        raise InvalidRequest("expect", value, "a cursor, or an object {cursor, keys}")
    cursor = PositionToken.parse(value.get("cursor"))
    keys = value.get("keys")
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
    """Returns the JSON of ``expect``."""
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
    """Returns the message ``appended``.

    Args:
        name: Its id.
        commit: The outcome of the transaction.
        cursor: The cursor behind the transaction; None if its version is no longer known.
    """
    reply: dict[str, Any] = {"type": "appended", "id": name, **outcome(commit, cursor)}
    return _encoder.encode(reply)


def outcome(commit: Commit, cursor: str | None) -> dict[str, Any]:
    """Returns the JSON of a transaction's outcome."""
    return {
        "version": commit.version,
        "cursor": cursor,
        "duplicate": commit.duplicate,
        "changes": commit.changes,
        "timestamp": time_of(commit.committed_at) if commit.committed_at else None,
    }

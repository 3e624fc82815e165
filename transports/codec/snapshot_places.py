"""Snapshot cursors as text for clients, sealed for clients that may not see every key.

A snapshot cursor names the last row of a page. Criteria or a grant may exclude that row, and a mask may hide its key. For a
client with such a restriction the name is encrypted with a key of this process: the client returns it unchanged and learns
nothing. Another process cannot decrypt it; there the snapshot is gone, and the client begins a new one.
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

from publishers.errors import PositionMalformed, SnapshotGone
from publishers.model.position import Position, PositionToken
from publishers.snapshots import SnapshotCursor

__all__ = ["opened", "sealed", "token_in"]

_KEY: Final = secrets.token_bytes(32)
_MARK: Final = "~"
_TAG: Final = 16
_SALT: Final = 8
"""Random bytes before the name of a row: the same row never has the same text, so no guess can be confirmed."""
_PADDED: Final = 64  # bytes; the name of a row is padded to a multiple, because its length is information too


def sealed(cursor: SnapshotCursor | str) -> str:
    """Returns the text of a snapshot cursor, which reveals nothing about its row."""
    head, snapshot, last, token = str(cursor).split(":", 3)
    if not last:
        return str(cursor)
    data = secrets.token_bytes(_SALT) + last.encode()
    data += b"=" * (-len(data) % _PADDED)
    tag = _tag(snapshot, data)
    text = urlsafe_b64encode(tag + _crossed(tag, data)).decode().rstrip("=")
    return f"{head}:{snapshot}:{_MARK}{text}:{token}"


def opened(text: str, oldest: Position) -> str:
    """Returns the log's text of a snapshot cursor, sealed or not.

    Raises:
        PositionMalformed: If the text is malformed.
        SnapshotGone: If another process sealed it; ``oldest`` is the log's oldest position.
    """
    parts = text.split(":", 3)
    if len(parts) != 4 or not parts[2].startswith(_MARK):
        return text
    head, snapshot, last, token = parts
    found = SnapshotCursor.parse(f"{head}:{snapshot}::{token}")
    try:
        raw = last.removeprefix(_MARK).encode("ascii")
        given = urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    except ValueError:
        raise PositionMalformed(text) from None
    tag = given[:_TAG]
    data = _crossed(tag, given[_TAG:])
    if not hmac.compare_digest(tag, _tag(snapshot, data)):
        raise SnapshotGone(oldest, found.snapshot)
    return f"{head}:{snapshot}:{data[_SALT:].decode().rstrip('=')}:{token}"


def token_in(text: str) -> PositionToken:
    """Returns the log position inside a cursor, which may be a snapshot cursor.

    Raises:
        PositionMalformed: If the text is malformed.
    """
    return PositionToken.parse(text.split(":", 3)[-1] if SnapshotCursor.is_text(text) else text)


def _tag(snapshot: str, data: bytes) -> bytes:
    return hmac.digest(_KEY, b"tag:" + snapshot.encode() + b":" + data, sha256)[:_TAG]


def _crossed(tag: bytes, data: bytes) -> bytes:
    """XORs the data with a stream derived from the tag, which both encrypts and decrypts."""
    blocks = -(-len(data) // 32)
    stream = b"".join(hmac.digest(_KEY, b"%d:" % n + tag, sha256) for n in range(blocks))
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))

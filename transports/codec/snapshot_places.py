"""Places inside a snapshot as text for clients, sealed for those who may not see every key.

Such a place names the last row of a page, which may be one that criteria or a grant leave out, and whose key a mask may hide. For
a client from whom something is kept that name is encrypted with a key of this process, so that it comes back as it went, and tells
nothing. In another process it cannot be read: the snapshot is gone, and the client begins a new one.
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
"""Random bytes before the name of a row, lest the same row have the same text, with which a guess could be confirmed."""
_PADDED: Final = (
    64  # bytes, to a multiple of which the name of a row is filled up, as its length tells something too
)


def sealed(cursor: SnapshotCursor | str) -> str:
    """The text of a place that tells nothing of its row."""
    head, snapshot, last, token = str(cursor).split(":", 3)
    if not last:
        return str(cursor)
    data = secrets.token_bytes(_SALT) + last.encode()
    data += b"=" * (-len(data) % _PADDED)
    tag = _tag(snapshot, data)
    text = urlsafe_b64encode(tag + _crossed(tag, data)).decode().rstrip("=")
    return f"{head}:{snapshot}:{_MARK}{text}:{token}"


def opened(text: str, oldest: Position) -> str:
    """The text of a place, sealed or not, as the log knows it.

    Raises:
        PositionMalformed: If it is none.
        SnapshotGone: If it was not sealed by this process; ``oldest`` is that of the log.
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
        raise SnapshotGone(found.snapshot, oldest)
    return f"{head}:{snapshot}:{data[_SALT:].decode().rstrip('=')}:{token}"


def token_in(text: str) -> PositionToken:
    """The place in the log that the text of a place in a snapshot holds.

    Raises:
        PositionMalformed: If it is none.
    """
    return PositionToken.parse(text.split(":", 3)[-1] if SnapshotCursor.is_text(text) else text)


def _tag(snapshot: str, data: bytes) -> bytes:
    return hmac.digest(_KEY, b"tag:" + snapshot.encode() + b":" + data, sha256)[:_TAG]


def _crossed(tag: bytes, data: bytes) -> bytes:
    """The data crossed with a stream that the tag determines: the same encrypts and decrypts."""
    blocks = -(-len(data) // 32)
    stream = b"".join(hmac.digest(_KEY, b"%d:" % n + tag, sha256) for n in range(blocks))
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))

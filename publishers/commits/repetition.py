"""Whether a transaction that repeats the newest sequence of its producer has the content of the first one."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain, zip_longest
from typing import Any, Final

import msgspec

from publishers.blocks.decode import attached_of, names_of, stored_rows
from publishers.errors import HistoryPruned
from publishers.schemas.stamping import unsealed
from publishers.wal import Columns, Transaction, Wal, decode_payload
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED, LAST

__all__ = ["differs", "named_producer", "stored_differs"]

_decoder: Final = msgspec.json.Decoder(float_hook=Decimal)
_encoder: Final = msgspec.json.Encoder(order="deterministic", decimal_format="number")


def stored_differs(repeated: Transaction, wal: Wal, version: int) -> bool:
    """Whether a transaction has another content than a version of the log; False if that is no longer kept.

    Raises:
        LogFailed: If the log could not be synced, which reading the version requires.
        LogError: If the version cannot be read.
    """
    if wal.durable < version:
        wal.sync()  # only durable frames can be read
    try:
        return differs(repeated, _stored(wal, version))
    except HistoryPruned:
        return False


def differs(repeated: Transaction, original: Iterable[Columns]) -> bool:
    """Whether a transaction has other changes, or another order of them, than its original.

    Not compared is what the log or the time of the attempt adds: the annotations of the transaction, in which traces are;
    schema versions, entry versions, origins, and times at which entities expire.
    """
    pairs = zip_longest(_rows(unsealed(repeated)), _rows(original))
    return any(one != other and _content(one) != _content(other) for one, other in pairs)


def named_producer(transaction: Transaction) -> str:
    """The name of a transaction's producer; its id if it has no name."""
    sealed, data = next(transaction.read())
    payload = inflate(data, sealed.raw) if sealed.flags & COMPRESSED else data
    name = msgspec.json.decode(decode_payload(payload, sealed.count)[1]).get("producer")
    return str(transaction.producer_id if name is None else name)


def _stored(wal: Wal, version: int) -> Iterator[Columns]:
    reader = wal.whole
    location = reader.locate(version)
    while (frame := reader.read(location)) is not None and frame.header.version == version:
        yield frame.columns
        if frame.header.flags & LAST:
            return
        location = frame.next


def _rows(parts: Iterable[Columns]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(stored_rows(part, 0, part.count) for part in parts if part.count)


def _content(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """What a stored row says, whatever the order of members and the white space in its JSON."""
    if row is None:
        return None
    kind, entity_type, key, body, before, changed, meta = row
    attached = attached_of(meta)
    names, flaw = names_of(changed)
    return (
        kind,
        entity_type,
        key,
        _plain(body),
        _plain(before),
        changed if names is None or flaw is not None else sorted(names),
        _plain(bytes(attached.meta)) if attached.error is None else meta,
        attached.linked,
        attached.field,
        attached.action,
    )


def _plain(stored: bytes | None) -> bytes | None:
    try:
        return _encoder.encode(_decoder.decode(stored)) if stored else stored
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return stored

"""Values that a database has not told, as they were not changed: taken from earlier rows of the batch, or from the state of the log."""

from collections.abc import Collection, Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from publishers.errors import StateIncomplete, StateOff, StateUnusable
from publishers.log.changelog import ChangeLog
from publishers.model.change import Operation
from publishers.spark.comparison import StateReads
from publishers.spark.schema import Encoding
from publishers.spark.server_log import ServerLog
from publishers.state import CompactedState
from publishers.state.rows import RowPlace

__all__ = ["Lacking", "UntoldRow", "UntoldValues"]

_HELD: Final = 256  # bytes of a remembered row, besides its body


class Lacking(msgspec.Struct, array_like=True):
    """The columns of which a row lacks the values.

    Attributes:
        body: Those of the body.
        before: Those of the before image.
    """

    body: list[str] = []
    before: list[str] = []


class UntoldRow(Exception):
    """A row of a repeated batch lacks values, so it cannot be compared."""


class _Row(NamedTuple):
    operation: Operation | None
    place: RowPlace
    body: bytes | None
    before: bytes | None
    flawed: bool
    lacks: Lacking | None


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lacking: Final = msgspec.json.Decoder(Lacking)


class UntoldValues:
    """Fills in the rows of one batch, which come in their order. A row that cannot be filled in keeps its flaw.

    Args:
        log: The log; without its state, nothing is filled in.
        encoding: The encoding of the rows.
        entity_type: The entity type of all rows; None if a column names it.
        limit: Most bytes of earlier rows that are remembered; above it they are forgotten, and rows that need them keep their flaw.
        timeout: Seconds to wait until the state contains what is visible.
        reads: What is read from the state is noted here. None for a batch that the log has already, as its state has changed since,
            and for a log without a state.
    """

    def __init__(
        self,
        log: ChangeLog | ServerLog,
        encoding: Encoding,
        entity_type: str | None,
        limit: int,
        timeout: float,
        reads: StateReads | None,
    ) -> None:
        self._log, self._encoding, self._entity_type = log, encoding, entity_type
        self._limit, self._timeout, self._reads = limit, timeout, reads
        self._state: CompactedState | None = _state_of(log)
        self._waited = self._forgotten = False
        self._held = 0
        self._now: dict[RowPlace, bytes | None] = {}  # bodies by earlier rows; None if removed
        self._cleared: set[str] = set()
        self._meanings = dict(encoding.operations)

    def filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns a record batch with the values that are known.

        Raises:
            UntoldRow: If the batch is repeated, the log has a state, and a row lacks values.
            TimeoutError: If the state does not reach the visible version in time.
        """
        if "lacks" not in batch.schema.names:
            return batch
        lacks = batch.column("lacks")
        if self._state is None:  # as that of a server: nothing is filled in, and no repetition differs
            return batch
        if self._reads is None and lacks.null_count < len(lacks):
            raise UntoldRow
        rows = list(self._rows(batch))
        stored = self._stored({row.place for row in rows if row.lacks is not None})
        changed = {
            number: found
            for number, row in enumerate(rows)
            if (found := self._followed(row, stored)) is not None
        }
        return _with(batch, changed) if changed else batch

    def _rows(self, batch: pa.RecordBatch) -> Iterator[_Row]:
        names = batch.schema.names

        def listed(name: str) -> Any:
            return batch.column(name).to_pylist() if name in names else repeat(None)

        columns = ("operation", "entity_type", "key", "body", "before", "flawed", "lacks")
        for word, kind, key, body, before, flawed, lacks in zip(*map(listed, columns), strict=False):
            operation = self._meanings.get(_text(word)) if word is not None else self._encoding.operation
            place = RowPlace(_text(kind) or self._entity_type or "", _bytes(key) or b"")
            told = None if lacks is None else _lacking.decode(lacks)
            yield _Row(operation, place, _bytes(body), _bytes(before), flawed is not None, told)

    def _stored(self, places: Collection[RowPlace]) -> dict[RowPlace, bytes]:
        state = self._state
        if not places or state is None or self._forgotten:
            return {}
        try:
            if not self._waited:
                assert isinstance(self._log, ChangeLog)
                state.wait(self._log.visible, self._timeout)
                self._waited = True
            assert self._reads is not None
            return self._reads.found(places)
        except (StateIncomplete, StateUnusable):
            self._state = None
            return {}

    def _followed(self, row: _Row, stored: dict[RowPlace, bytes]) -> tuple[bytes | None, bytes | None] | None:
        """Notes what a row makes of its entity; returns the body and the before image if values were filled in."""
        body, found = row.body, None
        if row.lacks is not None:
            old = self._now[row.place] if row.place in self._now else self._earlier(row.place, stored)
            try:
                found = _filled(body, old, row.lacks.body), _filled(row.before, old, row.lacks.before)
            except (KeyError, msgspec.MsgspecError):
                self._remember(row.place, None)  # as below
                return None
            body = found[0]
        elif row.flawed or row.operation is None:
            # A bad row, which may have changed what later rows leave untold.
            self._remember(row.place, None)
            return None
        if row.operation is Operation.TRUNCATE:
            self._cleared.add(row.place.entity_type)
            self._now = {
                place: one for place, one in self._now.items() if place.entity_type != row.place.entity_type
            }
        else:
            self._remember(row.place, body)
        return found

    def _earlier(self, place: RowPlace, stored: dict[RowPlace, bytes]) -> bytes | None:
        return None if self._forgotten or place.entity_type in self._cleared else stored.get(place)

    def _remember(self, place: RowPlace, body: bytes | None) -> None:
        self._held += _HELD + len(place.key) + len(body or b"")
        if self._held > self._limit:
            self._now, self._held, self._forgotten = {}, 0, True
        self._now[place] = body


def _filled(image: bytes | None, old: bytes | None, names: Collection[str]) -> bytes | None:
    """Returns an image with the named members of an older one.

    Raises:
        KeyError: If a member is not known.
    """
    if not names or image is None:
        return image
    if old is None:
        raise KeyError
    members, known = _members.decode(image), _members.decode(old)
    for name in names:
        if bytes(known[name]) == b"null":  # of which there is nothing to leave untold
            raise KeyError(name)
        members[name] = known[name]
    return msgspec.json.encode(members)


def _with(batch: pa.RecordBatch, changed: dict[int, tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    for number, name in enumerate(batch.schema.names):
        if name not in ("body", "before", "flawed", "flaw", "lacks"):
            continue
        values = batch.column(name).to_pylist()
        for row, images in changed.items():
            values[row] = {"body": images[0], "before": images[1]}.get(name)
        kind = batch.schema.field(name).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = [_text(one) for one in values]
        batch = batch.set_column(number, batch.schema.field(name), pa.array(values, kind))
    return batch


def _state_of(log: ChangeLog | ServerLog) -> CompactedState | None:
    if not isinstance(log, ChangeLog):
        return None
    try:
        return log.state
    except StateOff:
        return None


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value

"""What changes do to the rows of the compacted state."""

from itertools import count, repeat
from typing import Final

from publishers.blocks.decode import attached_of
from publishers.model.change import Area, Operation
from publishers.state.rows import StoredRow
from publishers.wal import Columns

__all__ = ["RowActions"]

_PUT: Final = frozenset({Area.DATA * 16 + Operation.UPSERT, Area.DATA * 16 + Operation.READ})
_DROP: Final = frozenset({Area.DATA * 16 + Operation.REMOVE, Area.DATA * 16 + Operation.EXPIRE})
_CLEAR: Final = Area.DATA * 16 + Operation.TRUNCATE
_ROW: Final = 64  # bytes of a row beside those of its texts, roughly


class RowActions:
    """What some frames in their order do to rows: of each key the last change counts.

    A key change is a REMOVE and an UPSERT, and is no more than these here. A field-level change does nothing: the change of the
    entity that it belongs to comes right before it, with the whole body.

    Attributes:
        cleared: Entity types all rows of which go, before anything else is done.
        rows: By entity type and key the row that is there then; None if there is none.
        nbytes: Bytes of these rows, roughly; what was replaced is counted too.
    """

    __slots__ = ("cleared", "nbytes", "rows")

    def __init__(self) -> None:
        self.cleared: set[str] = set()
        self.rows: dict[tuple[str, bytes], StoredRow | None] = {}
        self.nbytes: int = 0

    def add(self, columns: Columns, version: int, first_index: int, committed_at: int) -> None:
        """Adds what the changes of a frame do.

        Args:
            columns: The changes.
            version: Of their transaction.
            first_index: The index of the first of them.
            committed_at: When that was committed, in microseconds since the Unix epoch.
        """
        rows, nbytes = self.rows, self.nbytes
        names, ids, bodies, metas = columns.entity_types, columns.type_ids, columns.body, columns.meta
        types = repeat(names[0]) if ids is None else map(names.__getitem__, ids)
        parts = zip(
            count(first_index),
            columns.kinds.tobytes(),
            types,
            columns.key,
            repeat(None) if bodies is None else bodies,
            repeat(None) if metas is None else metas,
            strict=False,
        )
        for index, kind, name, key, body, meta in parts:
            if meta is not None and b'"field"' in meta and attached_of(meta).field is not None:
                continue
            place = (name, key or b"")
            if kind in _PUT:
                rows[place] = StoredRow(*place, body, meta, version, index, committed_at)
                nbytes += _ROW + len(place[1]) + (len(body) if body else 0) + (len(meta) if meta else 0)
            elif kind in _DROP:
                rows[place] = None
                nbytes += _ROW
            elif kind == _CLEAR:
                self.cleared.add(name)
                self.rows = rows = {place: row for place, row in rows.items() if place[0] != name}
        self.nbytes = nbytes

"""What changes do to the rows of the compacted state."""

from itertools import count, repeat
from typing import Final

from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of
from publishers.model.change import Area, Operation
from publishers.state.rows import StoredRow

__all__ = ["RowDeeds"]

_PUT: Final = frozenset({Area.DATA * 16 + Operation.UPSERT, Area.DATA * 16 + Operation.READ})
_DROP: Final = frozenset({Area.DATA * 16 + Operation.REMOVE, Area.DATA * 16 + Operation.EXPIRE})
_CLEAR: Final = Area.DATA * 16 + Operation.TRUNCATE


class RowDeeds:
    """What some blocks in their order do to rows: of each key the last change counts.

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
        self.nbytes = 0

    def add(self, block: Block) -> None:
        """Adds what the changes of a block do."""
        columns, rows = block.columns, self.rows
        names, ids = columns.entity_types, columns.type_ids
        types = repeat(names[0]) if ids is None else map(names.__getitem__, ids)
        version, committed_at = block.version, block.committed_at
        parts = zip(
            count(block.first_index),
            columns.kinds.tobytes(),
            types,
            columns.key,
            repeat(None) if columns.body is None else columns.body,
            repeat(None) if columns.meta is None else columns.meta,
            strict=False,
        )
        for index, kind, name, key, body, meta in parts:
            if meta is not None and b'"field"' in meta and attached_of(meta).field is not None:
                continue
            if kind in _PUT:
                place = (name, key or b"")
                row = rows[place] = StoredRow(*place, body, meta, version, index, committed_at)
                self.nbytes += row.size
            elif kind in _DROP:
                rows[name, key or b""] = None
                self.nbytes += 64
            elif kind == _CLEAR:
                self.cleared.add(name)
                self.rows = rows = {place: row for place, row in rows.items() if place[0] != name}

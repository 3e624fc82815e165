"""Rows of a page as changes: those that criteria ask for, as a view shows them."""

from array import array
from collections.abc import Iterator
from typing import Final

import msgspec

from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of, spliced
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.model.change import Area, Change, Operation, time_of
from publishers.model.position import Position
from publishers.snapshots.change import SnapshotChange
from publishers.snapshots.cursor import SnapshotCursor
from publishers.state.rows import RowPlace, StoredRow
from publishers.views.view import View
from publishers.wal import Column, Columns

__all__ = ["RowReader", "in_snapshot"]

_READ: Final = bytes([Area.DATA * 16 + Operation.READ])
_OF_NO_ENTITY: Final = frozenset({Operation.TRANSACTION, Operation.TRUNCATE})
_NAMES: Final = Change.__struct_fields__


class RowReader:
    """Makes changes of rows.

    What concerns a change rather than an entity does not apply to rows: of a criterion ``operations``, ``changed`` and
    ``transitions`` are left out. One that asks for TRANSACTION events or TRUNCATE alone, or for no changes of entities, asks for no rows.

    Args:
        criteria: Which rows are wanted.
        view: How they are seen.

    Attributes:
        types: The entity types of which rows are wanted, sorted; None for all.
        wanted: Whether any row is.
    """

    def __init__(self, criteria: Criteria, view: View) -> None:
        asked = [_of_rows(one) for one in criteria.criterions if _asks(one)]
        self.wanted = bool(asked)
        self.types: tuple[str, ...] | None = None
        if all(one.entity_types for one in asked):
            self.types = tuple(sorted({name for one in asked for name in one.entity_types}))
        self._predicate = Predicate(Criteria.of(*asked)) if asked else None
        self._view = view

    def changes(self, rows: list[StoredRow], position: Position) -> Iterator[tuple[RowPlace, Change]]:
        """The rows that are wanted as changes of operation READ at a position, with their places."""
        if not rows or self._predicate is None:
            return
        block = _block(rows, position.version)
        indices = self._predicate.select(block)
        for index, change in zip(indices, block.changes(indices, self._view), strict=True):
            row = rows[index - 1]
            yield (
                row.place,
                msgspec.structs.replace(
                    change, index=0, count=0, timestamp=time_of(row.committed_at), linked=None
                ),
            )


def in_snapshot(change: Change, cursor: SnapshotCursor) -> SnapshotChange:
    """A change that is given before the end of a snapshot."""
    fields = dict(zip(_NAMES, msgspec.structs.astuple(change), strict=True))
    return SnapshotChange(**fields, cursor=cursor)


def _asks(one: Criterion) -> bool:
    areas = not one.areas or Area.DATA in one.areas
    return areas and (not one.operations or not one.operations <= _OF_NO_ENTITY)


def _of_rows(one: Criterion) -> Criterion:
    return Criterion(
        areas={Area.DATA},
        entity_types=one.entity_types,
        keys=one.keys,
        key_globs=one.key_globs,
        key_patterns=one.key_patterns,
        where=one.where,
    )


def _block(rows: list[StoredRow], version: int) -> Block:
    """Rows as if they were the changes of a transaction, from index 1 on."""
    names = {name: number for number, name in enumerate(dict.fromkeys(row.entity_type for row in rows))}
    ids = None
    if len(names) > 1:
        ids = memoryview(array("H", [names[row.entity_type] for row in rows]))
    columns = Columns(
        memoryview(_READ * len(rows)),
        tuple(names),
        ids,
        Column.of([row.key for row in rows]),
        Column.of([row.body for row in rows]),
        meta=Column.of([_meta(row) for row in rows]),
    )
    return Block(
        columns,
        version=version,
        first_index=1,
        leads=False,
        ends=True,
        transaction_count=len(rows) + 1,
        transaction_bytes=columns.nbytes,
        committed_at=0,
    )


def _meta(row: StoredRow) -> bytes:
    """What was attached, with the entry version, which is that of the change unless it was given."""
    given = attached_of(row.meta)
    if given.entry_version is not None or given.error is not None:
        assert row.meta is not None
        return row.meta
    return spliced(row.meta, b'"entry_version":%d' % row.version)

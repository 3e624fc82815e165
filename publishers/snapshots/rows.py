"""Rows of a page as changes: those that criteria ask for, as a view shows them."""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of, spliced
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.entities import KeyReach
from publishers.criteria.intersection import both
from publishers.criteria.predicate import Predicate
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.signals import SnapshotChange
from publishers.state.rows import StoredRow
from publishers.views.view import View
from publishers.wal import Column, Columns

__all__ = ["RowReader", "in_snapshot", "read_row"]

_READ: Final = bytes([Area.DATA * 16 + Operation.READ])
_OF_NO_ENTITY: Final = frozenset({Operation.TRANSACTION, Operation.TRUNCATE})
_MAKE: Final[Callable[..., SnapshotChange]] = SnapshotChange
_ENTRY_VERSION: Final = Change.__struct_fields__.index("entry_version")
_LINKED: Final = Change.__struct_fields__.index("linked")


class RowReader:
    """Makes changes of rows.

    What concerns a change rather than an entity does not apply to rows: of a criterion ``operations``, ``changed``,
    ``transitions`` and ``annotations`` are left out. One that asks for TRANSACTION events or TRUNCATE alone, or for no changes of entities, asks for no rows.

    Args:
        criteria: Which rows are wanted.
        view: How they are seen.
        only: Further criteria, which must be fulfilled too; None for none.

    Attributes:
        types: The entity types of which rows are wanted, sorted; None for all.
        plain: Whether the criteria ask for every change of a row that they ask for.
        reach: The keys that such rows may have; None for any.
    """

    def __init__(self, criteria: Criteria, view: View, only: Criteria | None = None) -> None:
        self.types: tuple[str, ...] | None = None
        self.plain: bool = all(_plain(one) for one in criteria.criterions)
        self._predicates: list[Predicate] = []
        self.reach: KeyReach | None = None
        for each_criteria in (criteria,) if only is None else (criteria, only):
            asked = [
                criterion for one in each_criteria.criterions if _asks(one) for criterion in _of_rows(one)
            ]
            reach = KeyReach(asked)
            if reach.narrow and self.reach is None:
                self.reach = reach
            # ``of`` nothing would be everything.
            self._predicates.append(Predicate(Criteria.of(*asked) if asked else Criteria(frozenset())))
            if all(one.entity_types for one in asked):
                names = {name for one in asked for name in one.entity_types}
                self.types = tuple(sorted(names if self.types is None else names & set(self.types)))
        self._view = view

    def wanted(self, rows: list[StoredRow], position: Position) -> list[tuple[StoredRow, Change]]:
        """The rows that are wanted, each with what is shown of it, as ``read_row`` takes it."""
        if not rows:
            return []
        block = _block(rows, position.version)
        indices = self._predicates[0].select(block)
        for further in self._predicates[1:]:
            also = set(further.select(block))
            indices = [index for index in indices if index in also]
        changes = block.changes(indices, self._view)
        return [(rows[index - 1], change) for index, change in zip(indices, changes, strict=True)]


def in_snapshot(change: Change, cursor: SnapshotCursor) -> SnapshotChange:
    """A change that is given before the end of a snapshot."""
    return _MAKE(*msgspec.structs.astuple(change), cursor=cursor)


def read_row(row: StoredRow, shown: Change, cursor: SnapshotCursor, timestamp: datetime) -> SnapshotChange:
    """A row as a change of operation READ, with index 0 and count 0, committed at a time."""
    fields = msgspec.structs.astuple(shown)
    # Made once, as there may be millions: the fields by their places.
    return _MAKE(
        fields[0],
        0,
        0,
        timestamp,
        *fields[4:_ENTRY_VERSION],
        row.version if row.meta is None else fields[_ENTRY_VERSION],
        *fields[_ENTRY_VERSION + 1 : _LINKED],
        None,
        *fields[_LINKED + 1 :],
        cursor=cursor,
    )


def _plain(one: Criterion) -> bool:
    return not (one.operations or one.changed or one.transitions or one.annotations) and all(
        map(_plain, one.also)
    )


def _asks(one: Criterion) -> bool:
    areas = not one.areas or Area.DATA in one.areas
    operations = not one.operations or not one.operations <= _OF_NO_ENTITY
    return areas and operations and (not one.also or any(map(_asks, one.also)))


def _of_rows(one: Criterion) -> Iterable[Criterion]:
    of_row = Criterion(
        areas={Area.DATA},
        entity_types=one.entity_types,
        keys=one.keys,
        key_globs=one.key_globs,
        key_patterns=one.key_patterns,
        where=one.where,
    )
    if not one.also:
        return (of_row,)
    also = [criterion for further in one.also if _asks(further) for criterion in _of_rows(further)]
    if of_row.asks:
        return (replace(of_row, also=frozenset(also)),)
    return both(
        Criteria.of(of_row), Criteria.of(*also)
    ).criterions  # what it asked for does not apply to rows


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
        meta=Column.of([_meta(row) for row in rows]) if any(row.meta for row in rows) else None,
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

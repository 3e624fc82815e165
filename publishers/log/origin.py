"""The log in which changes were first made: a log with the option ``origin`` writes it into each change that has none."""

import msgspec

from publishers.blocks.decode import attached_of, spliced
from publishers.mutations.rows import Mutation
from publishers.schemas.stamping import with_meta
from publishers.wal import Column, Columns

__all__ = ["Origin"]


class Origin:
    """Stamps changes with the origin of the log that stores them; changes copied from another log keep theirs.

    Args:
        name: The origin.
    """

    def __init__(self, name: str) -> None:
        self._member = b'"origin":' + msgspec.json.encode(name)

    def columns(self, columns: Columns) -> Columns:
        """Returns the changes, each with an origin."""
        metas: list[bytes | None] = [None] * columns.count if columns.meta is None else list(columns.meta)
        # Changes that a stream stamps share a few values of meta.
        stamps = {meta: self._stamp(meta) for meta in set(metas)}
        return with_meta(columns, Column.of([stamps[meta] for meta in metas]))

    def row(self, row: Mutation) -> Mutation:
        """Returns the change with an origin."""
        return msgspec.structs.replace(row, meta=self._stamp(row.meta))

    def _stamp(self, meta: bytes | None) -> bytes | None:
        attached = attached_of(meta)
        stamped = attached.origin is not None or attached.error is not None
        return meta if stamped else spliced(meta, self._member)

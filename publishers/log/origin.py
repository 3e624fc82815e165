"""Where changes were first made: a log that has a name for that writes it into every change that tells no other."""

import msgspec

from publishers.blocks.decode import attached_of, spliced
from publishers.mutations.rows import Mutation
from publishers.schemas.stamping import with_meta
from publishers.wal import Column, Columns

__all__ = ["Origin"]


class Origin:
    """Stamps changes with the origin of the log that they are written to; what was copied from elsewhere keeps its own.

    Args:
        name: The origin.
    """

    def __init__(self, name: str) -> None:
        self._member = b'"origin":' + msgspec.json.encode(name)

    def columns(self, columns: Columns) -> Columns:
        """The same changes, each with an origin."""
        metas: list[bytes | None] = [None] * columns.count if columns.meta is None else list(columns.meta)
        # A stream that is stamped has the same few in every change.
        stamps = {meta: self._stamp(meta) for meta in set(metas)}
        return with_meta(columns, Column.of([stamps[meta] for meta in metas]))

    def row(self, row: Mutation) -> Mutation:
        """The same change with an origin."""
        return msgspec.structs.replace(row, meta=self._stamp(row.meta))

    def _stamp(self, meta: bytes | None) -> bytes | None:
        attached = attached_of(meta)
        told = attached.origin is not None or attached.error is not None
        return meta if told else spliced(meta, self._member)

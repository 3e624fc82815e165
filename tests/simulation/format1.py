"""Logs as format 1 wrote them, made by the present code with what has changed since put back."""

import contextlib
from collections.abc import Iterator
from struct import Struct
from unittest import mock

from publishers.wal import withholding
from publishers.wal.append import writer
from publishers.wal.files.segment import SegmentHeader
from publishers.wal.format.control import ControlTables, Epoch
from publishers.wal.recover import recovery

__all__ = ["written"]

_COUNTS = Struct("<IIII")
_PRODUCER = Struct("<16sQQq")
_EPOCH = Struct("<QQ")
_OPENED = Struct("<IIQQ")
_PACK = SegmentHeader.pack


def _tables(tables: ControlTables) -> bytes:
    return b"".join(
        (
            _COUNTS.pack(1, 0, len(tables.producers), len(tables.epochs)),
            *(_PRODUCER.pack(producer, *state) for producer, state in tables.producers.items()),
            *(_EPOCH.pack(*epoch[:2]) for epoch in tables.epochs),
        )
    )


def _epoch(epoch: Epoch) -> bytes:
    return _OPENED.pack(2, 0, *epoch[:2])


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Whatever is written meanwhile is of format 1."""
    with contextlib.ExitStack() as stack:
        for where, name, older in (
            (recovery, "draw_random", lambda _: 0),
            (withholding, "draw_random", lambda _: 0),
            (writer, "encode_epoch", _epoch),
            (writer, "FORMAT", 1),
            (ControlTables, "encode", _tables),
            (SegmentHeader, "pack", lambda header: _PACK(header._replace(form=1))),
        ):
            stack.enter_context(mock.patch.object(where, name, older))
        yield

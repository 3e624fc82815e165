"""Writes changes as JSON lines to standard output or another byte stream."""

import sys
from typing import BinaryIO, ClassVar

import msgspec

from publishers.model.position import Position
from publishers.views.view import Images
from transports.codec.events import encode_change
from transports.sinks.errors import TargetRefused
from transports.sinks.sink import SinkBatch, SinkContext

__all__ = ["StreamSink", "lines_of"]


def lines_of(batch: SinkBatch, context: SinkContext) -> bytes:
    """Encodes the changes of a batch as events of ``penstock.v1+json``, each with its cursor, one a line, preceded by the gap."""
    gap = b"" if batch.gap is None else msgspec.json.encode({"gap": batch.gap._asdict()}) + b"\n"
    return gap + b"".join(
        encode_change(change, context.token(change.after), context.view.integers) + b"\n"
        for change in batch.changes
    )


class StreamSink:
    """Writes each change as a line of JSON, as ``penstock tail`` does; a gap is a line ``{"gap": {"first", "next"}}``.

    Args:
        stream: The stream; standard output by default. It is not closed.
    """

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    images: ClassVar[Images | None] = None

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout.buffer
        self._context: SinkContext | None = None

    def __repr__(self) -> str:
        return f"<StreamSink {str(getattr(self._stream, 'name', 'a stream')).strip('<>')}>"

    def open(self, context: SinkContext) -> None:
        """See `Sink.open`."""
        self._context = context

    def write(self, batch: SinkBatch) -> None:
        """See `Sink.write`.

        Raises:
            TargetRefused: If the reader has closed the stream.
        """
        assert self._context is not None
        try:
            self._stream.write(lines_of(batch, self._context))
            self._stream.flush()
        except (BrokenPipeError, ValueError) as error:
            raise TargetRefused(f"the reader of the stream has gone: {error}") from None

    def flush(self) -> None:
        """Does nothing: each batch is flushed at once."""

    def move(self, position: Position) -> None:
        """Does nothing: the target stores no position."""

    def close(self) -> None:
        """See `Sink.close`."""
        self._context = None

    def alive(self) -> bool:
        """See `Sink.alive`."""
        return not self._stream.closed

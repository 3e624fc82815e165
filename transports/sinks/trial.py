"""Tries a target out: one example is sent where that harms nothing, and what the target says is told."""

from datetime import UTC, datetime
from typing import Final

from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from transports.sinks.errors import TargetUnavailable
from transports.sinks.sink import Sink, SinkBatch, SinkContext

__all__ = ["EXAMPLE", "try_out"]

EXAMPLE: Final = SinkBatch(
    (
        Change(
            version=1,
            index=1,
            count=2,
            timestamp=datetime(2025, 1, 1, tzinfo=UTC),
            area=Area.DATA,
            operation=Operation.UPSERT,
            entity_type="penstock-example",
            key="example",
            body_bytes=b'{"example":true}',
        ),
    ),
    Position(2),
)
"""What is sent."""


def try_out(sink: Sink, context: SinkContext | None) -> str:
    """What a target says; of a sink that has ``try_out`` of an example that it sends, else whether it answers.

    Args:
        sink: The sink.
        context: With what it is opened, and closed again; None if it is open.

    Raises:
        TargetUnavailable, TargetRefused, OSError: What is wrong.
    """
    if context is None:
        return _asked(sink)
    try:
        sink.open(context)
        return _asked(sink)
    finally:
        sink.close()


def _asked(sink: Sink) -> str:
    sending = getattr(sink, "try_out", None)
    if sending is not None:
        return str(sending())
    if not sink.alive():
        raise TargetUnavailable("it does not answer")
    return "it answers"

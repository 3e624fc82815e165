"""Tests a target: sends an example if that is harmless, and returns the answer."""

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
            version=0,
            index=0,
            count=1,
            timestamp=datetime(2025, 1, 1, tzinfo=UTC),
            area=Area.DATA,
            operation=Operation.UPSERT,
            entity_type="penstock-example",
            key="example",
            body_bytes=b'{"example":true}',
        ),
    ),
    Position(1),
)
"""The example. No log has its position, so receivers that recognise repeats by ids or positions still accept the first real batch."""


def try_out(sink: Sink, context: SinkContext | None) -> str:
    """Returns the answer of a target to an example, if the sink has ``try_out``; else checks that the target answers.

    Args:
        sink: The sink.
        context: The context to open the sink with, and close it again; None if it is open.

    Raises:
        TargetUnavailable, TargetRefused, OSError: If the target does not accept the example, or does not answer.
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
        raise TargetUnavailable("the target does not answer")
    return "the target answers"

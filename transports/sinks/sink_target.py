"""The sink of a runner, open or closed; and the test of a target."""

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from publishers.errors import HistoryPruned
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from transports.sinks.errors import TargetUnavailable, shown_error
from transports.sinks.sink import Sink, SinkBatch, SinkContext

__all__ = ["EXAMPLE", "SinkTarget", "try_out"]


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


_LOG: Final = logging.getLogger("penstock.sinks")
_SILENT: Final = "the target does not answer; the last attempt failed: "


class SinkTarget:
    """The calls of a runner to its sink, except ``write``; used by the thread that steps the runner.

    Args:
        sink: The sink.
        context: The context to open it with.

    Attributes:
        opened: Whether the sink is open.
    """

    def __init__(self, sink: Sink, context: SinkContext) -> None:
        self._sink, self._context = sink, context
        self.opened: bool = False

    @property
    def stores_position(self) -> bool:
        """Whether the target stores a position with the data."""
        return self._sink.stores_position

    @property
    def knows_history(self) -> bool:
        """Whether the target stores to which history its content belongs, so that `open` refuses another one."""
        return self.stores_position or getattr(self._sink, "marks_history", False)

    def open(self, generation: int, *, rows: bool = False) -> Position | None:
        """Opens the sink for an opening of the slot.

        Args:
            generation: The generation of the slot.
            rows: Whether rows follow, so that it does not matter if the changes behind the position are no longer kept.

        Returns:
            The position that the target stores.
        """
        self._context = replace(self._context, generation=generation)
        place = None
        try:
            place = self._sink.open(self._context)
        except HistoryPruned:
            if not rows:
                raise
        self.opened = True
        return place

    def check(self, last_error: str | None) -> None:
        """Raises ``TargetUnavailable`` if the target does not answer, with the error that may tell why."""
        if not self._sink.alive():
            raise TargetUnavailable(_SILENT + (last_error or "").removeprefix(_SILENT))

    def flush(self) -> None:
        """See `Sink.flush`."""
        self._sink.flush()

    def move(self, position: Position) -> None:
        """Replaces the position that the target stores, if it stores one."""
        if self.knows_history:
            self._sink.move(position)

    def finish(self) -> None:
        """Calls ``finish`` of a sink that has it, because no change follows."""
        finish = getattr(self._sink, "finish", None)
        if finish is not None:
            finish()

    def try_out(self) -> str:
        """Returns the answer of the target to an example."""
        return try_out(self._sink, None if self.opened else self._context)

    def close(self) -> None:
        """Closes the sink; logs an error, because nothing is left to do about it."""
        self.opened = False
        try:
            self._sink.close()
        except BaseException as error:  # noqa: BLE001 - any error of a sink
            _LOG.warning("sink %s: its target is not closed: %s", self._context.name, shown_error(error))

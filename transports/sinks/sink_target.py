"""The sink of one runner as the runner has it: open, or not."""

import logging
from dataclasses import replace
from typing import Final

from publishers.model.position import Position
from transports.sinks.errors import TargetUnavailable, shown_error
from transports.sinks.sink import Sink, SinkContext
from transports.sinks.trial import try_out

__all__ = ["SinkTarget"]

_LOG: Final = logging.getLogger("penstock.sinks")


class SinkTarget:
    """What a runner does with its sink beside ``write``; by the thread that steps it.

    Args:
        sink: The sink.
        context: With what it is opened.

    Attributes:
        opened: Whether it is open.
    """

    def __init__(self, sink: Sink, context: SinkContext) -> None:
        self._sink, self._context = sink, context
        self.opened = False

    @property
    def stores_position(self) -> bool:
        """Whether the target stores a position with the data."""
        return self._sink.stores_position

    def open(self, generation: int) -> Position | None:
        """Opens it for one opening of the slot; answers the position that the target stores."""
        self._context = replace(self._context, generation=generation)
        place = self._sink.open(self._context)
        self.opened = True
        return place

    def check(self) -> None:
        """Raises ``TargetUnavailable`` if the target does not answer."""
        if not self._sink.alive():
            raise TargetUnavailable("it does not answer")

    def flush(self) -> None:
        """See `Sink.flush`."""
        self._sink.flush()

    def move(self, position: Position) -> None:
        """Replaces the position that the target stores, if it stores one."""
        if self.stores_position:
            if not self.opened:
                self.open(self._context.generation)
            self._sink.move(position)

    def finish(self) -> None:
        """Tells a sink that has ``finish`` that nothing is to come any more."""
        finish = getattr(self._sink, "finish", None)
        if finish is not None:
            finish()

    def try_out(self) -> str:
        """What the target says to an example."""
        return try_out(self._sink, None if self.opened else self._context)

    def close(self) -> None:
        """Closes it; what goes wrong is logged, as there is nothing left to do with it."""
        self.opened = False
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - a sink's
            _LOG.warning("sink %s: its target is not closed: %s", self._context.name, shown_error(error))

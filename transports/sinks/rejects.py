"""What happens to changes that a target refuses for good."""

import os
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from publishers.model.change import Change
from transports.codec.events import encode_change
from transports.sinks.directory import sync_directory
from transports.sinks.sink import SinkContext

__all__ = ["DeadLetterFile", "DeadLetterStore", "OnReject"]

OnReject = Literal["pause", "dead_letter", "drop"]
"""Pause the sink; or leave the change out, after writing it to the dead letters, or only counting it."""


class DeadLetterStore(Protocol):
    """Keeps the changes that a target refused."""

    def keep(self, context: SinkContext, change: Change, error: str) -> None:
        """Stores a change, durably when it returns; raises ``OSError`` if that fails."""
        ...


class DeadLetterFile:
    """Dead letters as JSON lines: ``time, sink, id, error, change``, each synced before the sink continues.

    A change may be there twice, if the process died before its position was stored.

    Args:
        path: The file; created with the first line.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def keep(self, context: SinkContext, change: Change, error: str) -> None:
        """See `DeadLetterStore.keep`."""
        line = msgspec.json.encode(
            {
                "time": context.clock.now_us(),
                "sink": context.name,
                "id": context.change_id(change),
                "error": error,
                "change": msgspec.Raw(
                    encode_change(change, context.token(change.after), context.view.integers)
                ),
            }
        )
        fresh = not self.path.exists()
        with self.path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if fresh:
            sync_directory(self.path.parent)

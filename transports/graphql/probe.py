"""Which fields of a change an operation selects, asked of graphql-core itself."""

from datetime import UTC, datetime
from typing import Any, Final

from publishers.change import Area, Change, Content, Operation
from transports.graphql.types import ChangeEvent

__all__ = ["Probe"]

_SAMPLE: Final = ChangeEvent.of(
    Change(1, 0, 1, datetime(1970, 1, 1, tzinfo=UTC), Area.INFRASTRUCTURE, Operation.TRANSACTION), ""
)


class Probe:
    """Stands for a change in one trial execution, and remembers what it is asked for.

    So aliases, fragments and directives are resolved as they will be for real events, by the same code.

    Attributes:
        asked: Names of the fields.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(_SAMPLE, name)

    @property
    def content(self) -> Content:
        """BODY exactly if a body or an image was asked for."""
        return Content.BODY if self.asked & {"body", "before"} else Content.HEADER

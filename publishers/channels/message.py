"""Messages of channels."""

from dataclasses import dataclass

__all__ = ["Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. It is not stored, and has no position: it cannot be requested again.

    Attributes:
        channel: The channel on which it was published.
        content: The published object itself; all subscribers share it.
        missed: Messages that this subscriber lost between the previous message and this one.
    """

    channel: str
    content: object
    missed: int = 0

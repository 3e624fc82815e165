"""What is passed on."""

from dataclasses import dataclass

__all__ = ["Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. It is not stored, and has no position: it cannot be asked for again.

    Attributes:
        channel: Where it was published.
        content: What was published; the object itself, which all who get it share.
        missed: Messages that this subscriber, and it alone, lost between the message before and this one.
    """

    channel: str
    content: object
    missed: int = 0

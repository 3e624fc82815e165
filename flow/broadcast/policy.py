"""What a subscriber of a `flow.Broadcast` chooses, and what a writer is answered."""

from enum import Enum
from typing import Any

__all__ = ["BroadcastStart", "Lag", "OfferResult"]


class Lag(Enum):
    """What happens to one subscriber that is a whole ring behind. Where elements are lost, the name says which."""

    BLOCK = "BLOCK"
    """The writer waits for it, and so do all others: nothing is lost, and the slowest sets the pace."""

    DROP_OLDEST = "DROP_OLDEST"
    """The one that has waited longest goes: the subscriber goes on at the oldest element that is kept."""

    DROP_LATEST = "DROP_LATEST"
    """The incoming one goes, for this subscriber alone; what waits for it is kept."""

    LATEST = "LATEST"
    """Only the newest waits, whatever the capacity."""

    ERROR = "ERROR"
    """This subscriber, and no other, ends with `flow.Lagged`."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(f"lag: {value!r}; a member of flow.Lag is expected: {', '.join(cls.__members__)}")


class BroadcastStart(Enum):
    """Where in the ring a new subscriber begins."""

    LATEST = "LATEST"
    """With what is written from now on."""

    REPLAY = "REPLAY"
    """With the last elements that were written, as many as the broadcast replays."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(
            f"from_: {value!r}; a member of flow.BroadcastStart is expected: {', '.join(cls.__members__)}"
        )


class OfferResult(Enum):
    """What became of an element that was offered."""

    OK = "OK"
    """It was taken, to be delivered or replayed."""

    FULL = "FULL"
    """It was not taken, since a BLOCK subscriber is a whole ring behind."""

    NO_SUBSCRIBERS = "NO_SUBSCRIBERS"
    """It went nowhere: there are no subscribers, and nothing is replayed."""

    CLOSED = "CLOSED"
    """It was not taken: the broadcast has ended."""

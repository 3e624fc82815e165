"""The lag policies and start positions of subscribers of a `flow.Broadcast`, and the results of an offer."""

from enum import Enum
from typing import Any

__all__ = ["BroadcastStart", "Lag", "OfferResult"]


class Lag(Enum):
    """The policy for one subscriber that is a whole ring behind. If elements are lost, the name says which."""

    BLOCK = "BLOCK"
    """The writer waits for this subscriber, and so do all subscribers: nothing is lost, and the slowest sets the pace."""

    DROP_OLDEST = "DROP_OLDEST"
    """The oldest waiting element is dropped: the subscriber continues with the oldest element in the ring."""

    DROP_LATEST = "DROP_LATEST"
    """The new element is dropped, for this subscriber alone; its waiting elements are kept."""

    LATEST = "LATEST"
    """Only the newest element waits, whatever the capacity."""

    ERROR = "ERROR"
    """This subscriber alone ends with `flow.Lagged`."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(f"lag: {value!r}; a member of flow.Lag is expected: {', '.join(cls.__members__)}")


class BroadcastStart(Enum):
    """The start position of a new subscriber in the ring."""

    LATEST = "LATEST"
    """Begin with the next element that is written."""

    REPLAY = "REPLAY"
    """Begin with the newest elements of the ring, at most as many as the broadcast replays."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(
            f"from_: {value!r}; a member of flow.BroadcastStart is expected: {', '.join(cls.__members__)}"
        )


class OfferResult(Enum):
    """The result of an offer."""

    OK = "OK"
    """The element was accepted, to be delivered or replayed."""

    FULL = "FULL"
    """The element was refused, since a BLOCK subscriber is a whole ring behind."""

    NO_SUBSCRIBERS = "NO_SUBSCRIBERS"
    """The element was dropped: there are no subscribers, and nothing is replayed."""

    CLOSED = "CLOSED"
    """The element was refused: the broadcast has ended."""

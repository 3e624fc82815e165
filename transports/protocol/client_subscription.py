"""A subscription on the client, over all connections: its demand and its progress."""

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from publishers.snapshots import SnapshotCursor
from transports.errors import CloseCode, Violation
from transports.protocol.client_slots import ClientSlot
from transports.protocol.connection import WireEntry

__all__ = ["ClientSubscription"]


class ClientSubscription(WireEntry):
    """One subscription, over all connections.

    Attributes:
        wanted: The total demand so far. Only the drain adds to it; the machine owns every other field.
        cursor: The position behind the last event that arrived; None until it is known.
        attempts: The number of retries since the subscription last made progress.
        slot: The slot that it opens; None without one.
        takes_rows: Whether more rows may be requested.
        subscribed: Whether the server has confirmed it on this connection.
    """

    kind: ClassVar[str] = "subscribe"
    """The type of the message that begins it."""

    __slots__ = (
        "_again",
        "_again_sent",
        "_announced",
        "_came",
        "_numbers",
        "_payload",
        "attempts",
        "cursor",
        "slot",
        "subscribed",
        "takes_rows",
        "wanted",
    )

    def __init__(self, name: str, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> None:
        super().__init__(name, b"")
        self._payload = payload
        self.slot: ClientSlot | None = slot
        self.cursor: str | None = payload.get("since")
        self.wanted: int = 0
        self.attempts: int = 0
        self.subscribed: bool = False
        stated = payload.get("start") == "state" or SnapshotCursor.is_text(self.cursor)
        self.takes_rows: bool = payload.get("snapshot") in (
            (None, "initial", "on_gap") if stated else ("initial", "on_gap")
        )
        self._numbers = itertools.count(1)
        self._again: dict[int, Mapping[str, Any]] = {}  # requests for rows that have not begun
        self._again_sent: list[int] = []  # the numbers of those that were sent on this connection, in order
        self._announced = 0  # the part of ``wanted`` that was requested on this connection,
        self._came = 0  # and the events that have arrived

    def payload(self) -> dict[str, Any]:
        """Returns the payload for subscribing, the first time or again."""
        self._again_sent, self.subscribed = [], False
        payload = {**self._payload, "credits": self.credits()}
        if self.slot is not None:
            payload["slot"] = self.slot.payload()
        if self.cursor is not None:
            payload["since"] = self.cursor
            if self.cursor != self._payload.get("since"):
                payload.pop("whole", None)  # events that have arrived must not arrive again
            payload.pop("start", None)
            if self.takes_rows and not SnapshotCursor.is_text(self.cursor):
                # Makes requests for rows possible although the subscription no longer begins with them.
                payload["snapshot"] = "on_gap" if payload.get("snapshot") == "on_gap" else "initial"
        return payload

    def ask_again(self, payload: Mapping[str, Any]) -> int:
        """Records a request for more rows and returns its number; from any thread."""
        number = next(self._numbers)
        self._again[number] = payload
        return number

    def unasked(self) -> list[Mapping[str, Any]]:
        """Returns the requests for rows that are not sent on this connection yet; they count as sent."""
        if not self.subscribed:
            return []
        found = {
            number: payload for number, payload in list(self._again.items()) if number not in self._again_sent
        }
        self._again_sent += found
        return list(found.values())

    def begun(self, asked: int | None) -> int | None:
        """Handles the beginning of rows: ``asked`` counts the requests on this connection. Returns the number of the request.

        Raises:
            Violation: If there is no such request.
        """
        if asked is None:
            return None
        if not 1 <= asked <= len(self._again_sent):
            raise Violation(CloseCode.BAD_REQUEST, f"rows began that were asked for as number {asked}")
        number = self._again_sent[asked - 1]
        self._again.pop(number, None)
        return number

    def credits(self) -> int:
        """Returns the credits for ``subscribe``: the outstanding demand, which counts as requested from now on."""
        self._announced = self.wanted
        return self._announced - self._came

    @property
    def ends_with_rows(self) -> bool:
        """Whether the subscription ends behind the rows of a snapshot."""
        return self._payload.get("snapshot") == "initial_only"

    def unannounced(self) -> int:
        """Returns the demand that is not requested yet; it counts as requested from now on."""
        before, self._announced = self._announced, self.wanted
        return self._announced - before

    def take(self, count: int) -> None:
        """Counts events that have arrived.

        Raises:
            Violation: If more events arrive than were requested.
        """
        requested = self._announced - self._came
        if count > requested:
            raise Violation(CloseCode.FLOOD, f"{count} events came, but {requested} were requested")
        self._came += count

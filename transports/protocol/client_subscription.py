"""What a client knows of a subscription, over all connections: how much was requested of it, and how far it is."""

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
        wanted: How many events were requested of it so far. Only what drains it adds to this; all else is the machine's.
        cursor: Behind everything that has come; None before that is known.
        attempts: How often it was subscribed again since it last went on.
        slot: The slot that it opens; None for none.
    """

    kind: ClassVar[str] = "subscribe"
    """The message that begins it."""

    __slots__ = ("_announced", "_came", "_payload", "attempts", "cursor", "slot", "wanted")

    def __init__(self, name: str, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> None:
        super().__init__(name, b"")
        self._payload = payload
        self.slot = slot
        self.cursor: str | None = payload.get("since")
        self.wanted = 0
        self.attempts = 0
        self._announced = 0  # how much of that the server was told on this connection,
        self._came = 0  # and how much it has sent

    def wish(self) -> dict[str, Any]:
        """The payload with which to subscribe, the first time or again."""
        payload = {**self._payload, "credits": self.credits()}
        if self.slot is not None:
            payload["slot"] = self.slot.wish()
        if self.cursor is not None:
            payload["since"] = self.cursor
            if self.cursor != self._payload.get("since"):
                payload.pop("whole", None)  # what has come is not to come again
            payload.pop("start", None)
            if not SnapshotCursor.is_text(self.cursor):
                payload.pop("snapshot", None)
        return payload

    def credits(self) -> int:
        """How many events to ask for with that; what was requested counts as requested from now on."""
        self._announced = self.wanted
        return self._announced - self._came

    @property
    def ends_with_rows(self) -> bool:
        """Whether nothing is wanted behind the rows of a snapshot."""
        return self._payload.get("snapshot") == "initial_only"

    def unannounced(self) -> int:
        """How many events to request; counted as requested from now on."""
        before, self._announced = self._announced, self.wanted
        return self._announced - before

    def take(self, count: int) -> None:
        """Counts events that have come.

        Raises:
            Violation: If they are more than were requested.
        """
        requested = self._announced - self._came
        if count > requested:
            raise Violation(CloseCode.FLOOD, f"{count} events came, but {requested} were requested")
        self._came += count

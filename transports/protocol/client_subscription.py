"""What a client knows of a subscription, over all connections: how much was requested of it, and how far it is."""

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
        wanted: How many events were requested of it so far. Only what drains it adds to this; all else is the machine's.
        cursor: Behind everything that has come; None before that is known.
        attempts: How often it was subscribed again since it last went on.
        slot: The slot that it opens; None for none.
        takes_rows: Whether rows may be asked for once more.
        subscribed: Whether the server has answered, on this connection.
    """

    kind: ClassVar[str] = "subscribe"
    """The message that begins it."""

    __slots__ = (
        "_again",
        "_announced",
        "_came",
        "_numbers",
        "_payload",
        "_told",
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
        self.slot = slot
        self.cursor: str | None = payload.get("since")
        self.wanted = 0
        self.attempts = 0
        self.subscribed = False
        stated = payload.get("start") == "state" or SnapshotCursor.is_text(self.cursor)
        self.takes_rows = payload.get("snapshot") in (
            (None, "initial", "on_gap") if stated else ("initial", "on_gap")
        )
        self._numbers = itertools.count(1)
        self._again: dict[int, Mapping[str, Any]] = {}  # rows that were asked for and have not begun
        self._told: list[int] = []  # those of which the server was told on this connection, in this order
        self._announced = 0  # how much of that the server was told on this connection,
        self._came = 0  # and how much it has sent

    def wish(self) -> dict[str, Any]:
        """The payload with which to subscribe, the first time or again."""
        self._told, self.subscribed = [], False
        payload = {**self._payload, "credits": self.credits()}
        if self.slot is not None:
            payload["slot"] = self.slot.wish()
        if self.cursor is not None:
            payload["since"] = self.cursor
            if self.cursor != self._payload.get("since"):
                payload.pop("whole", None)  # what has come is not to come again
            payload.pop("start", None)
            if self.takes_rows and not SnapshotCursor.is_text(self.cursor):
                # So that rows can be asked for, now that it does not begin with them.
                payload["snapshot"] = "on_gap" if payload.get("snapshot") == "on_gap" else "initial"
        return payload

    def ask_again(self, payload: Mapping[str, Any]) -> int:
        """Notes that rows are asked for once more, and answers their number; from any thread."""
        number = next(self._numbers)
        self._again[number] = payload
        return number

    def unasked(self) -> list[Mapping[str, Any]]:
        """Payloads of what is to be asked for on this connection; counted as asked for from now on."""
        if not self.subscribed:
            return []
        found = {number: payload for number, payload in list(self._again.items()) if number not in self._told}
        self._told += found
        return list(found.values())

    def begun(self, asked: int | None) -> int | None:
        """Rows begin that were the ``asked``-th on this connection; answers their number.

        Raises:
            Violation: If so many were not asked for.
        """
        if asked is None:
            return None
        if not 1 <= asked <= len(self._told):
            raise Violation(CloseCode.BAD_REQUEST, f"rows began that were asked for as number {asked}")
        number = self._told[asked - 1]
        self._again.pop(number, None)
        return number

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

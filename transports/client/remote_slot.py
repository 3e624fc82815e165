"""A slot of a remote log: a place that its server keeps for one consumer."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, Self
from uuid import uuid4

from flow.executors import loop_executor
from publishers.errors import InvalidOption
from publishers.model.position import Position, PositionToken
from publishers.options import check_switches
from publishers.slots.errors import AckAhead, SlotBusy
from publishers.slots.slots import check_slot_name
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, Integers, View
from transports.client.remote_feed import FeedConnection, RemoteFeed, RemoteSubscription
from transports.codec.messages import view_json
from transports.codec.replies import RemoteChange
from transports.errors import ConnectionLost, RemoteError
from transports.limits import CREDITS_MAX
from transports.protocol.client_slots import ClientSlot
from transports.protocol.client_subscription import ClientSubscription

__all__ = ["RemoteSlot", "SlotConnection"]

_PAUSE: Final = 0.2
"""Seconds between two acknowledgements of one slot that are sent by themselves: a server stores them no oftener."""


class SlotConnection(FeedConnection, Protocol):
    """What slots need of the `RemoteLog` whose connection they share, beside what feeds do."""

    def acknowledge(self, entry: ClientSubscription) -> None:
        """Sends what was acknowledged and not sent; on the loop of the connection."""
        ...


class RemoteSlot:
    """A slot of a remote log, for one consumer; made by ``RemoteLog.slot``, and an async context manager that closes.

    Subscribing to ``changes()`` opens it, with a generation of its own, and the end of that subscription gives it back. A
    connection that is lost, with ``reconnect``, ends neither: the consumer goes on behind what has come, if no other has opened
    the slot meanwhile.

    Attributes:
        name: Of the slot.
    """

    def __init__(
        self, log: SlotConnection, name: str, *, take_over: bool, owner: str | None, of: str | None
    ) -> None:
        check_slot_name(name)
        check_switches(take_over=take_over)
        if owner is not None and (not isinstance(owner, str) or not owner):
            raise InvalidOption("owner", owner, "a text, or None")
        self.name = name
        self._log = log
        self._take_over = take_over
        self._owner = owner
        self._of = of
        self._lock = threading.Lock()
        self._subscription: _SlotSubscription | None = None

    def changes(
        self,
        *,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Collection[str] | None = None,
        mask: Mapping[str, Rule | str] | None = None,
        integers: Integers = Integers.NUMBER,
        window: int = 256,
        batch_events: int | None = None,
        linger_ms: int = 0,
        heartbeat_ms: int | None = None,
    ) -> RemoteFeed:
        """The changes from the slot's place on, as a publisher; one subscriber at a time.

        Its subscriber gets ``on_error`` with ``RemoteError``: its code is ``SLOT_BUSY`` if another consumer has the slot open,
        ``FENCED`` if another one has taken it over, ``SLOT_LOST`` if its history is gone, ``SLOT_NOT_FOUND``, ``FORBIDDEN``.

        Args:
            content: As for ``RemoteLog.changes``, and so are the others.
            images: Which images.
            fields: Which fields.
            mask: What is shown in place of values.
            integers: How large whole numbers are given.
            window: Most events under way or buffered.
            batch_events: Most events in one message.
            linger_ms: How long the server may wait to put more events into one message.
            heartbeat_ms: Longest silence until the server tells the cursor; 0 for never.

        Raises:
            InvalidOption: If ``window`` is out of its range, or ``fields`` or ``mask`` has no paths.
        """
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= CREDITS_MAX:
            raise InvalidOption("window", window, f"a whole number from 1 to {CREDITS_MAX}")
        payload: dict[str, Any] = {
            "log": self._of,
            **view_json(View.of(content, images, fields=fields, mask=mask, integers=integers)),
            "batch": {"maxEvents": batch_events, "lingerMs": linger_ms},
            "heartbeatMs": heartbeat_ms,
        }
        wish = {name: value for name, value in payload.items() if value is not None}
        return _SlotFeed(self, self._log, wish, window=window)

    @property
    def generation(self) -> int | None:
        """Of its opening, as the server last told; None while there is none."""
        return None if self._subscription is None else self._subscription.slot.generation

    @property
    def cursor(self) -> str | None:
        """The next change that is not acknowledged, as the server last told; None while that is not known."""
        return None if self._subscription is None else self._subscription.slot.cursor

    def ack(self, place: RemoteChange | str) -> None:
        """Acknowledges everything up to and with a change, or before a cursor; from any thread.

        It is sent at once, or with those that follow within 0.2 s. What lies before something that was acknowledged is ignored.

        Raises:
            InvalidOption: If it is neither a change nor a text.
            AckAhead: If that was not delivered.
            PositionMalformed: If it is no cursor.
            ConnectionLost, RemoteError: If the slot is not open any more.
            LogForked: In a child of ``fork``.
        """
        subscription = self._open()
        if subscription.note(place, durable=False)[1]:
            loop_executor(self._log.loop).submit(subscription.send)

    async def ack_durably(self, place: RemoteChange | str) -> None:
        """``ack`` that returns when a crash of the server cannot take it; on the loop of the connection.

        Raises:
            RemoteError: If it cannot be stored, such as with ``SLOTS_UNWRITTEN``, which is retryable.
            InvalidOption, AckAhead, PositionMalformed, ConnectionLost, LogForked: As ``ack``.
        """
        subscription = self._open()
        number, unpaced = subscription.note(place, durable=True)
        await subscription.stored(number, unpaced=unpaced)

    async def close(self) -> None:
        """Sends what was acknowledged, and gives the slot back. Idempotent."""
        if self._subscription is not None:
            self._subscription.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _open(self) -> "_SlotSubscription":
        if self._log.inherited is not None:
            raise self._log.inherited
        subscription = self._subscription
        if subscription is None:
            raise ConnectionLost(self._log.url, f"slot {self.name!r} is not open", retryable=False)
        if subscription.over is not None:
            raise subscription.over
        return subscription

    def begin(self, payload: dict[str, Any], window: int) -> RemoteSubscription:
        """Makes the subscription that opens it; for its feeds.

        Raises:
            SlotBusy: If there is one.
        """
        with self._lock:
            if self._subscription is not None and not self._subscription.ended:
                raise SlotBusy(self.name, "a subscription of the same slot")
            opening = uuid4().hex
            slot = ClientSlot(self.name, opening=opening, take_over=self._take_over, owner=self._owner)
            self._subscription = made = _SlotSubscription(self._log, payload, slot, window)
            return made


class _SlotFeed(RemoteFeed):
    """The changes of a slot."""

    def __init__(
        self, slot: RemoteSlot, log: SlotConnection, payload: dict[str, Any], *, window: int
    ) -> None:
        super().__init__(log, payload, window=window, on_gap="fail")
        self._slot = slot

    def _make(self) -> RemoteSubscription:
        return self._slot.begin(self._payload, self._window)


class _SlotSubscription(RemoteSubscription):
    """One opening of a slot.

    Attributes:
        slot: What the machine knows of it.
        over: Why nothing can be acknowledged any more; None while it can.
    """

    def __init__(self, log: SlotConnection, payload: dict[str, Any], slot: ClientSlot, window: int) -> None:
        super().__init__(log, log.entry(payload, slot), window, "fail")
        self.slot = slot
        self.over: Exception | None = None
        self._slots: SlotConnection = log
        self._noting = threading.Lock()
        self._acked: Position | None = None
        self._paced = False  # whether what is noted will be sent without being asked
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def note(self, place: RemoteChange | str, *, durable: bool) -> tuple[int, bool]:
        """Notes an acknowledgement; answers its number, and whether somebody has to send it.

        Raises:
            InvalidOption: If it is neither a change nor a text.
            AckAhead: If that was not delivered.
        """
        if not isinstance(place, (RemoteChange, str)):
            raise InvalidOption("place", place, "a change that came from this slot, or a cursor as text")
        cursor = place if isinstance(place, str) else place.cursor
        position = PositionToken.parse(cursor).position
        delivered = Position(1) if self.cursor is None else PositionToken.parse(self.cursor).position
        if position > delivered:
            raise AckAhead(self.slot.name, position, delivered)
        with self._noting:
            if self._acked is None or position > self._acked:
                self._acked = position
                number = self.slot.acknowledge(cursor, durable=durable)
            elif durable:
                number = self.slot.acknowledge(None, durable=True)
            else:
                return self.slot.last, False
            unpaced, self._paced = not self._paced, True
        return number, unpaced

    def send(self) -> None:
        """Sends what was noted, and as long as more is noted; on the loop."""
        with self._noting:
            self._paced = self.slot.unsent and not self.ended
        if self._paced:
            self._slots.acknowledge(self.entry)
            self._log.loop.call_later(_PAUSE, self.send)

    async def stored(self, number: int, *, unpaced: bool) -> None:
        """Sends an acknowledgement, and waits until it is durable; on the loop."""
        waiting = self._waiting[number] = self._log.loop.create_future()
        if unpaced:
            self.send()
        else:
            self._slots.acknowledge(self.entry)
        try:
            await waiting
        finally:
            self._waiting.pop(number, None)

    def acked(self, n: int, error: RemoteError | None) -> None:
        """Acknowledgements up to a number were answered."""
        if error is not None and not n:  # nobody waits for this one: the next one is told
            self.over = self.over or error
        for number, waiting in self._waiting.items():
            if number <= n and not waiting.done():
                if error is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(error)

    def end(self, error: Exception | None) -> None:
        """The last message has come."""
        self._finish(error)
        super().end(error)

    def release(self) -> None:
        """Leaves the connection."""
        super().release()
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        why = error or ConnectionLost(self._log.url, f"slot {self.slot.name!r} is not open", retryable=False)
        self.over = self.over or why
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(why)

"""The slots of a remote log: create, inspect, move, pause and drop them; and a slot, a position that the server keeps for one consumer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol, Self
from uuid import uuid4

from flow.executors import loop_executor
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.log.start import Since
from publishers.model.position import Position, PositionToken
from publishers.options import check_switches
from publishers.slots.errors import AckAhead, SlotBusy
from publishers.slots.record import Granularity
from publishers.slots.slots import check_slot_name
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, Integers, View
from transports.client.remote_feed import FeedConnection, RemoteFeed, RemoteSubscription
from transports.codec.messages import milliseconds, view_json
from transports.codec.replies import RemoteChange
from transports.codec.slots import SlotInfo
from transports.codec.starts import start_json
from transports.errors import ConnectionLost, RemoteError
from transports.limits import CREDITS_MAX
from transports.operations import slots
from transports.operations.operation import LogOperation
from transports.protocol.client_slots import ClientSlot
from transports.protocol.client_subscription import ClientSubscription

__all__ = ["RemoteSlot", "RemoteSlots"]


_PAUSE: Final = 0.2
"""Seconds between two automatic acknowledgements of one slot; a server does not store them more often."""


class SlotConnection(FeedConnection, Protocol):
    """What slots use of the `RemoteLink` that they share, besides what feeds use."""

    def acknowledge(self, entry: ClientSubscription) -> None:
        """Sends the acknowledgements that are not sent yet; on the loop of the connection."""
        ...


class RemoteSlot:
    """A slot of a remote log, for one consumer; made by ``RemoteLog.slot``, and an async context manager that closes it.

    Subscribing to ``changes()`` opens the slot with a new generation; the end of that subscription closes it. With ``reconnect``, a
    lost connection ends neither: the subscription resumes after the last change that arrived, unless another consumer has opened the
    slot meanwhile.

    Attributes:
        name: The name of the slot.
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
        linger: float = 0.0,
        heartbeat: float | None = None,
    ) -> RemoteFeed:
        """The changes from the position of the slot on, as a publisher; for one subscriber at a time.

        The subscriber gets ``on_error`` with ``RemoteError``, whose code is ``SLOT_BUSY`` if another consumer has the slot open,
        ``FENCED`` if another consumer has taken it over, ``SLOT_LOST`` if its history is gone, ``SLOT_NOT_FOUND`` or ``FORBIDDEN``.

        Args:
            content: How much of a change is sent; as for ``RemoteLog.changes``, like all arguments here.
            images: The images of the entity.
            fields: The paths of the fields; None for all.
            mask: The rule for each masked path.
            integers: How integers beyond 53 bits are represented.
            window: The most events in flight or buffered.
            batch_events: The most events in one message.
            linger: Seconds that the server may wait to fill a message.
            heartbeat: The longest silence in seconds before the server sends a heartbeat with the cursor; 0 for none.

        Raises:
            InvalidOption: If ``window`` is out of its range, or ``fields`` or ``mask`` has no paths.
        """
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= CREDITS_MAX:
            raise InvalidOption("window", window, f"a whole number from 1 to {CREDITS_MAX}")
        payload: dict[str, Any] = {
            "log": self._of,
            **view_json(View.of(content, images, fields=fields, mask=mask, integers=integers)),
            "batch": {"maxEvents": batch_events, "lingerMs": milliseconds("linger", linger)},
            "heartbeatMs": None if heartbeat is None else milliseconds("heartbeat", heartbeat),
        }
        request = {name: value for name, value in payload.items() if value is not None}
        return _SlotFeed(self, self._log, request, window=window)

    @property
    def generation(self) -> int | None:
        """The generation of the opening, as the server last reported; None before."""
        return None if self._subscription is None else self._subscription.slot.generation

    @property
    def cursor(self) -> str | None:
        """The cursor of the next change that is not acknowledged, as the server last reported; None before."""
        return None if self._subscription is None else self._subscription.slot.cursor

    def ack(self, position: RemoteChange | str) -> None:
        """Acknowledges every change up to and including ``position``, or every change before a cursor; from any thread.

        The acknowledgement is sent at once, or together with later ones within 0.2 s. One before an earlier acknowledgement has no effect.

        Raises:
            InvalidOption: If ``position`` is neither a change nor a text.
            AckAhead: If the change was not delivered.
            PositionMalformed: If the text is no cursor.
            ConnectionLost, RemoteError: If the slot is no longer open.
            LogForked: In a child of ``fork``.
        """
        subscription = self._open()
        if subscription.note(position, durable=False)[1]:
            loop_executor(self._log.loop).submit(subscription.send)

    async def ack_durably(self, position: RemoteChange | str) -> None:
        """Acknowledges as ``ack`` does, and returns when the acknowledgement survives a crash of the server; on the loop of the connection.

        Raises:
            RemoteError: If it cannot be stored, for example with the retryable code ``SLOTS_UNWRITTEN``.
            InvalidOption, AckAhead, PositionMalformed, ConnectionLost, LogForked: As ``ack``.
        """
        subscription = self._open()
        number, unpaced = subscription.note(position, durable=True)
        await subscription.stored(number, unpaced=unpaced)

    async def close(self) -> None:
        """Sends the acknowledgements that are not sent yet, and closes the slot. Idempotent."""
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
        """Makes the subscription that opens the slot; for its feeds.

        Raises:
            SlotBusy: If a subscription has the slot open already.
        """
        with self._lock:
            if self._subscription is not None and not self._subscription.ended:
                raise SlotBusy(self.name, "a subscription of the same slot")
            opening = uuid4().hex
            slot = ClientSlot(self.name, opening=opening, take_over=self._take_over, owner=self._owner)
            self._subscription = made = _SlotSubscription(self._log, payload, slot, window)
            return made


class _SlotFeed(RemoteFeed):
    """The publisher of the changes of a slot."""

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
        slot: The state of the opening in the protocol machine.
        over: The error of a later acknowledgement; None while the slot is open.
    """

    def __init__(self, log: SlotConnection, payload: dict[str, Any], slot: ClientSlot, window: int) -> None:
        super().__init__(log, log.entry(payload, slot), window, "fail")
        self.slot = slot
        self.over: Exception | None = None
        self._slots: SlotConnection = log
        self._noting = threading.Lock()
        self._acked: Position | None = None
        self._paced = False  # whether a call of `send` is due, which sends what is noted until then
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def note(self, given: RemoteChange | str, *, durable: bool) -> tuple[int, bool]:
        """Notes an acknowledgement; returns its number, and whether the caller must call `send`.

        Raises:
            InvalidOption: If ``given`` is neither a change nor a text.
            AckAhead: If the change was not delivered.
        """
        if not isinstance(given, (RemoteChange, str)):
            raise InvalidOption("position", given, "a change that came from this slot, or a cursor as text")
        cursor = given if isinstance(given, str) else given.cursor
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
        """Sends the noted acknowledgements, and again after each pause while there are more; on the loop."""
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
        """Wakes the callers that wait for acknowledgements up to number ``n``; ``error`` is None if those are durable."""
        if error is not None and not n:  # no caller waits for it: the next acknowledgement raises it
            self.over = self.over or error
        for number, waiting in self._waiting.items():
            if number <= n and not waiting.done():
                if error is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(error)

    def end(self, error: Exception | None) -> None:
        """Ends the subscription with its last message, and the waiting callers."""
        self._finish(error)
        super().end(error)

    def release(self) -> None:
        """Leaves the connection, and ends the waiting callers."""
        super().release()
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        why = error or ConnectionLost(self._log.url, f"slot {self.slot.name!r} is not open", retryable=False)
        self.over = self.over or why
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(why)


_Slots = list[SlotInfo]
_Ask = Callable[[LogOperation[_Slots]], Awaitable[_Slots]]


class RemoteSlots:
    """The slots of a remote log that the client may use; ``RemoteLog.slots``. To be called on the loop of the connection.

    The server refuses with ``RemoteError``, whose code is ``SLOT_NOT_FOUND``, ``SLOT_EXISTS``, ``SLOT_BUSY`` if a consumer has the
    slot open and the operation needs it closed, or ``FORBIDDEN`` if the grant does not name the slot. A server that follows the log
    answers `list` and `info` as its owner has stored the slots (``SlotInfo.stored``), and refuses the rest with ``LOG_READ_ONLY``. With ``reconnect``, requests
    that a lost connection left unanswered are sent again: a repeated ``create`` or ``drop`` may then find the slot created or dropped
    by the first.

    Args:
        ask: Sends a request and returns the reply of the server.
        log: The name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteSlots":
        """Returns the slots of another log of the server."""
        return RemoteSlots(self._ask, log)

    async def list(self) -> list[SlotInfo]:
        """Returns the state of all slots that the grant names, in the order of their names."""
        return await self._ask(slots.ListSlots(log=self._log))

    async def info(self, name: str) -> SlotInfo:
        """Returns the state of a slot: its position, its lag, and whether its history is retained."""
        return await self._one(slots.ShowSlot(log=self._log, name=name))

    async def create(
        self,
        name: str,
        *criteria: Criterion | Criteria,
        since: Since = None,
        copy_from: str | None = None,
        granularity: Granularity = "transaction",
        paused: bool = False,
    ) -> SlotInfo:
        """Creates a slot; durable when it returns.

        Args:
            name: The name of the slot.
            *criteria: The changes that the slot delivers; without, all of them, or with ``copy_from`` those of that slot.
            since: The first position, as for ``RemoteLog.changes``; the next version by default.
            copy_from: A slot whose position is copied instead.
            granularity: ``"change"`` keeps positions inside a transaction; ``"transaction"`` does not.
            paused: Whether the slot delivers nothing until `resume`.

        Raises:
            InvalidOption: If an argument is malformed; the server checks the rest.
        """
        return await self._one(
            slots.CreateSlot(
                log=self._log,
                name=name,
                criteria=Criteria.of(*criteria).to_json() if criteria else None,
                granularity=granularity,
                copy_from=copy_from,
                paused=paused,
                **start_json(since),
            )
        )

    async def seek(self, name: str, since: Since) -> SlotInfo:
        """Moves a slot that no consumer has open, also a lost one; durable when it returns.

        Args:
            name: The name of the slot.
            since: The new position, as for ``RemoteLog.changes``.
        """
        return await self._one(slots.SeekSlot(log=self._log, name=name, **start_json(since)))

    async def pause(self, name: str) -> SlotInfo:
        """Pauses the deliveries of a slot until `resume`, also across restarts of the server."""
        return await self._one(slots.PauseSlot(log=self._log, name=name))

    async def resume(self, name: str) -> SlotInfo:
        """Resumes the deliveries of a paused slot."""
        return await self._one(slots.ResumeSlot(log=self._log, name=name))

    async def drop(self, name: str) -> None:
        """Drops a slot that no consumer has open; the log no longer retains history for it."""
        await self._ask(slots.DropSlot(log=self._log, name=name))

    async def _one(self, operation: LogOperation[_Slots]) -> SlotInfo:
        (answer,) = await self._ask(operation)
        return answer

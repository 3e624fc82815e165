"""Drives the protocol machine of one connection: binds it to subscriptions, a link and a clock, for every protocol."""

import asyncio
import logging
import math
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Generic, Required, TypedDict, TypeVar, Unpack

from publishers.criteria.cost import Cost
from publishers.errors import PenstockError
from publishers.fanout.batch import Batch
from publishers.log.feed import ChangeFeed
from publishers.model.position import Position
from publishers.slots.slot import Slot
from publishers.views.view import View
from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.principal import ANONYMOUS, Credentials, Principal
from transports.appends import payer_of
from transports.errors import CloseCode, Forbidden, TooManySnapshots, Unauthenticated
from transports.limits import INLINE_WEIGHT, Limits
from transports.protocol.connection import (
    Authenticate,
    Cancel,
    Close,
    Demand,
    Effect,
    Send,
    ServerConnection,
    WireEntry,
)
from transports.protocol.states import ConnectionPhase
from transports.quotas.pool import Pools
from transports.quotas.weight import ConnectionWeight, ServerWeight
from transports.server.disk_jobs import DiskJobs
from transports.server.link import SocketLink
from transports.server.outbound import Outbound
from transports.server.subscriber import WireSubscriber
from transports.tcp.shares import SHARES
from transports.telemetry.latency import Latencies

__all__ = ["Driver", "DriverOptions"]

_LOG: Final = logging.getLogger("penstock.transports")

_AGAIN: Final = 0.1  # seconds until a client is looked at again that the server does not read
_CHANGED: Final = "subscribed to again: what may be read of it is not what it was"

_Session = TypeVar("_Session", bound=ServerConnection[Any])
_Subscriber = TypeVar("_Subscriber", bound=WireSubscriber[Any, Any])


class DriverOptions(TypedDict, total=False):
    """The arguments that drivers of all protocols share.

    Attributes:
        limits: Bounds of the connection.
        loop: The event loop, whose clock is the connection's.
        pools: The threads for disk reads; by default its own.
        client: The client to which the pools charge the threads; by default the connection itself.
        weight: The weight of the whole server; None for a server with this connection alone.
        access: Which clients are admitted and what each may do; by default every client may do everything but write.
        credentials: The credentials of the upgrade request.
        on_lost: Called once when the connection is gone.
        latencies: Records how long changes take until they are sent; by default its own.
        errors: Counts the errors sent to the client, by code; by default its own.
        delivered: Called with each batch that is written and the name of its log; None for no callback.
    """

    limits: Required[Limits]
    loop: Required[asyncio.AbstractEventLoop]
    pools: Pools
    client: Hashable
    weight: ServerWeight | None
    access: Access
    credentials: Credentials
    on_lost: Callable[[Any], None]
    latencies: Latencies
    errors: Counter[str]
    delivered: Callable[[Batch, str], None] | None


class Driver(ABC, Generic[_Session, _Subscriber]):
    """One connection, on the event loop of its link.

    Args:
        session: The protocol machine.
        link: The accepted WebSocket.
        blocked: Whether something other than the link holds deliveries back.
        **serving: See ``DriverOptions``.

    Attributes:
        protocol: The name of its sub-protocol.
    """

    protocol: ClassVar[str]

    def __init__(
        self,
        session: _Session,
        link: SocketLink,
        *,
        blocked: Callable[[], bool] | None = None,
        **serving: Unpack[DriverOptions],
    ) -> None:
        limits, loop = serving["limits"], serving["loop"]
        server = serving.get("weight") or ServerWeight(limits.criteria_weight)
        client = serving.get("client")
        self._session = session
        self._link = link
        self._limits = limits
        self._loop = loop
        self._access = serving.get("access") or Access()
        self._credentials = serving.get("credentials") or Credentials()
        self._principal: Principal = ANONYMOUS
        self._judging: asyncio.Task[None] | None = None
        self._revision = 0
        self._on_lost = serving.get("on_lost")
        self._latencies = serving.get("latencies") or Latencies()
        self._delivered = serving.get("delivered")
        session.errors = serving.get("errors", session.errors)
        self._outbound = Outbound(loop, link, limits, blocked)
        self._weight = ConnectionWeight(limits.connection_weight, server)
        self._pools = serving.get("pools") or Pools(limits)
        self._client = self if client is None else client
        self._jobs = DiskJobs(loop, self._client, lambda: link.payer)
        self._subscribers: dict[WireEntry, _Subscriber] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._arm(session.due)

    # What a protocol adds.

    @abstractmethod
    def _do(self, effect: Effect) -> None:
        """Performs an effect that only this protocol has."""

    @abstractmethod
    def _tick(self, now: float) -> None:
        """Does the work that is due, and arms the timer again."""

    @abstractmethod
    def opened(self, subscriber: _Subscriber) -> None:
        """Handles the start of a subscription: it is registered."""

    @abstractmethod
    def deliver(self, subscriber: _Subscriber, batch: Batch) -> None:
        """Writes a batch of events, within the demand."""

    @abstractmethod
    def ended(self, subscriber: _Subscriber, error: Exception | None) -> None:
        """Writes the terminal message: an error, or completion."""

    @abstractmethod
    def goaway(self, deadline: float, reason: str) -> None:
        """Announces the shutdown; ``stop`` follows within ``deadline`` seconds."""

    @abstractmethod
    def stop(self) -> None:
        """Closes with 1012, because the server is stopping."""

    # Questions of the server.

    @property
    def limits(self) -> Limits:
        """Bounds of the connection."""
        return self._limits

    @property
    def unsent(self) -> int:
        """Bytes that were written to the link and that the operating system has not accepted yet."""
        return self._link.unsent

    @property
    def weight(self) -> int:
        """The weight of the criteria of its subscriptions."""
        return self._weight.weight

    @property
    def principal(self) -> str:
        """The name of the client's principal."""
        return self._principal.name

    @property
    def ending(self) -> str | None:
        """Why the server closed the connection; see ``SocketLink.ending``."""
        return self._link.ending

    # Events of the link.

    def received(self, text: bytes | str) -> None:
        """Handles one message of the client."""
        try:
            self._perform(self._session.receive(text, self._loop.time()))
        except Exception:  # noqa: BLE001 - the connection fails with an error id, and the server continues
            self._break()
        self._link.flush()

    def drained(self) -> None:
        """Resumes deliveries, because the link is writable again."""
        self._outbound.run()
        self._arm(self._session.due)

    def lost(self) -> None:
        """Ends everything that runs on the connection, which is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._judging is not None:
            self._judging.cancel()
        self._perform(self._session.lost())
        self._outbound.close()
        self._jobs.close()
        if self._on_lost is not None:
            self._on_lost(self)

    def _note(self, batch: Batch, log: str) -> None:
        """Calls the ``delivered`` callback; a callback that raises is not called again for this connection."""
        try:
            if self._delivered is not None:
                self._delivered(batch, log)
        except Exception:  # noqa: BLE001 - the client is not at fault
            self._delivered = None
            _LOG.exception("the delivery observer failed, and gets no more deliveries of this connection")

    # Effects of the machine.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._link.write(data)
                case Demand(entry, n):
                    self._request(entry, n)
                case Cancel(entry):
                    self._cancel(entry)
                case Authenticate(payload):
                    self._greeted(payload)
                case Close(code, reason):
                    self._link.close(code, reason)
                case _:
                    self._do(effect)

    def _request(self, entry: WireEntry, n: int) -> None:
        if (subscriber := self._subscribers.get(entry)) is not None:
            subscriber.request(n)

    def _cancel(self, entry: WireEntry) -> None:
        self._jobs.forget(entry)
        self._weight.give(entry)
        subscriber = self._subscribers.pop(entry, None)
        if subscriber is not None:
            subscriber.cancel()

    # Authentication.

    def _greeted(self, payload: Mapping[str, Any]) -> None:
        if self._access.open:  # an open server has no principal that an authoriser could judge
            self._perform(self._session.acknowledge())
            return
        token = payload.get("token")
        given = replace(
            self._credentials,
            token=token if isinstance(token, str) else self._credentials.token,
            first_message=payload,
        )
        self._credentials = given
        self._judging = self._loop.create_task(self._judge(given))

    async def _judge(self, given: Credentials) -> None:
        # Read before the call, so that a change during the call is not missed.
        self._revision = self._access.revision
        try:
            self._principal = await self._access.principal(given)
        except Unauthenticated as error:
            effects = self._session.refuse(str(error))
        except PenstockError as error:  # the client is not at fault and may retry
            effects = self._session.close(CloseCode.OVERLOAD, str(error))
        except Exception:  # noqa: BLE001 - the application's authenticator may raise anything
            self._break()
            effects = []
        else:
            self._link.payer = payer_of(self._principal, self._client)
            effects = self._session.acknowledge()
        self._perform(effects)
        self._link.flush()
        self._arm(self._session.due)

    async def judge_again(self) -> None:
        """Authenticates the client again if the source of the credentials has changed; closes with 4403 if it is refused.

        If authentication fails for another reason, the client keeps its principal, and the next review tries again.
        """
        revision = self._access.revision
        if self._access.open or self._revision == revision or self._session.phase.early:
            return
        try:
            self._principal = await self._access.principal(self._credentials)
        except Unauthenticated as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - the application's authenticator may raise anything
            _LOG.warning(
                "the permissions of a principal could not be checked again: %s", type(error).__name__
            )
            return
        self._revision = revision

    def review(self, granted: Callable[[Principal, str, LogAction], Grant | None]) -> None:
        """Ends the connection if its principal has expired, and each subscription that the client may no longer run.

        Args:
            granted: Returns the current grant of a principal for an action on a log; None if the action is not allowed.
        """
        if self._session.phase.early:
            return
        if self._access.expired(self._principal):
            self._refuse(str(Unauthenticated()))
            return
        for subscriber in list(self._subscribers.values()):
            action = LogAction.READ if subscriber.slot is None else LogAction.CONSUME
            now = granted(self._principal, subscriber.name, action)
            if now is None or not now.covers(subscriber.grant, subscriber.slot):
                self.ended(subscriber, Forbidden("log", _CHANGED))
        self._link.flush()

    def _refuse(self, why: str) -> None:
        self._perform(self._session.refuse(why))
        self._link.flush()

    def _break(self) -> None:
        """Closes the connection with 4500 for the exception that is being handled."""
        error_id = uuid.uuid4().hex[:12]
        _LOG.exception("connection failed, id %s", error_id)
        self._perform(self._session.close(CloseCode.INTERNAL, f"internal error {error_id}"))

    # Subscriptions.

    def _subscribe(
        self, subscriber: _Subscriber, cost: Cost, make: Callable[[bool], ChangeFeed], *, scans: bool
    ) -> None:
        """Makes a feed and subscribes to it.

        Args:
            subscriber: The subscriber.
            cost: The cost of its criteria.
            make: Makes the feed; its argument says whether to prepare expensive criteria at once.
            scans: Whether making the feed reads the disk. It runs on a thread if it does, or if the criteria are expensive.
        """
        heavy = cost.weight > INLINE_WEIGHT
        work, found = partial(make, heavy), partial(self._found, subscriber)
        if heavy or scans:
            pool = self._pools.scanning if scans else self._pools.preparing
            self._jobs.send(pool, subscriber.entry, work, found)
        else:
            found(work)

    def _found(self, subscriber: _Subscriber, result: Callable[[], ChangeFeed]) -> None:
        """Subscribes to the feed that was made, or ends the subscription with the error."""
        try:
            feed = result()
            if not subscriber.entry.ended:
                feed.subscribe(
                    subscriber,
                    executor=subscriber.lane,
                    batch_events=subscriber.batch_events,
                    batch_bytes=subscriber.lane.batch_bytes,
                )
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self.ended(subscriber, error)
        self._link.flush()

    def _consume(
        self, subscriber: _Subscriber, slot: Slot, cost: Cost, view: View, since: Position | None = None
    ) -> None:
        """Subscribes to a slot; on a thread if the criteria are expensive.

        Args:
            subscriber: The subscriber.
            slot: The slot.
            cost: The cost of its criteria.
            view: The view in which the subscriber sees changes.
            since: As for ``Slot.changes``.
        """
        begin = partial(
            slot.changes(view=view, since=since).subscribe,
            subscriber,
            executor=subscriber.lane,
            batch_events=subscriber.batch_events,
            batch_bytes=subscriber.lane.batch_bytes,
        )
        if cost.weight > INLINE_WEIGHT:  # subscribing compiles the criteria
            self._jobs.send(self._pools.preparing, subscriber.entry, begin, partial(self._begun, subscriber))
        else:
            begin()

    def _begun(self, subscriber: _Subscriber, result: Callable[[], None]) -> None:
        try:
            result()
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self.ended(subscriber, error)
            self._link.flush()

    def _crowded(self) -> TooManySnapshots | None:
        """Returns an error if the connection already runs as many snapshots as it may; None otherwise."""
        given = sum(one.stated for one in self._subscribers.values())
        return TooManySnapshots(self._limits.snapshots) if given >= self._limits.snapshots else None

    def charge(self, work: Callable[[], object]) -> None:
        """Does work for this client alone, which it pays for."""
        SHARES.charged(self._link.payer, work)

    def _is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._session.phase is ConnectionPhase.CLOSED

    # Timers.

    def _arm(self, due: float) -> None:
        """Sets the one timer, unless it fires earlier anyway."""
        if due >= self._timer_at or self._session.phase is ConnectionPhase.CLOSED:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = max(due, self._loop.time())
        self._timer = self._loop.call_at(self._timer_at, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._session.phase.early and self._link.held:  # what it waits for may have come
            self._arm(self._loop.time() + _AGAIN)
            return
        try:
            self._tick(self._loop.time())
        except Exception:  # noqa: BLE001 - without its timer the connection would fall silent
            self._break()

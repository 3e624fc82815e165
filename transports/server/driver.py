"""Binds the machine of one connection to subscriptions, a link and a clock, whatever its protocol."""

import asyncio
import logging
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from flow.contracts import UNBOUNDED
from publishers.fanout.batch import Batch
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.change import Change
from transports.access.tokens import Authenticator
from transports.errors import CloseCode
from transports.limits import Limits
from transports.protocol.connection import (
    Authenticate,
    Cancel,
    Close,
    Demand,
    Effect,
    Entry,
    Send,
    ServerConnection,
)
from transports.protocol.states import Phase
from transports.quotas.pool import Pools
from transports.quotas.weight import ConnectionWeight, ServerWeight
from transports.server.disk_jobs import DiskJobs
from transports.server.link import Link
from transports.server.outbound import Outbound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flow.contracts import Subscription

__all__ = ["Driver", "WireSubscriber"]

_LOG: Final = logging.getLogger("penstock.transports")


_Entry = TypeVar("_Entry", bound=Entry)


class WireSubscriber(ABC, Generic[_Entry]):
    """The subscriber behind one entry of a connection: takes batches, and never makes objects of them.

    Attributes:
        entry: The entry of the session.
        subscription: Its subscription, once there is one.
        credits: What the client requested before there was a subscription.
    """

    __slots__ = ("credits", "entry", "subscription")

    def __init__(self, entry: _Entry, demand: int | None) -> None:
        self.entry = entry
        self.subscription: ChangeSubscription | None = None
        self.credits = UNBOUNDED if demand is None else demand

    def request(self, n: int) -> None:
        """Passes the client's demand on."""
        if self.subscription is None:
            self.credits += n
        else:
            self.subscription.request(n)

    def cancel(self) -> None:
        """Ends the subscription."""
        if self.subscription is not None:
            self.subscription.cancel()

    # What a protocol makes of the signals.

    def _opened(self) -> None:
        """The subscription is registered."""

    @abstractmethod
    def _deliver(self, batch: Batch) -> None:
        """Some events, within the demand."""

    @abstractmethod
    def _ended(self, error: Exception | None) -> None:
        """The last signal: an error, or the end."""

    # Signals, on the lane.

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        """The subscription is registered, or is about to be refused; the client may have left meanwhile."""
        if self.entry.ended:
            subscription.cancel()
            return
        if isinstance(subscription, ChangeSubscription):
            self.subscription = subscription
            self._opened()
        if self.credits:
            subscription.request(self.credits)

    def on_next(self, change: Change, /) -> None:
        """Never called: this subscriber takes batches."""
        raise TypeError(f"an subscriber takes batches, not {change!r}")

    def on_next_batch(self, batch: "Sequence[Change]", /) -> None:
        """Some events."""
        if not isinstance(batch, Batch):
            raise TypeError(f"an subscriber takes what a log delivers, not {type(batch).__name__}")
        self._deliver(batch)

    def on_error(self, error: Exception, /) -> None:
        """The subscription failed."""
        self._ended(error)

    def on_complete(self) -> None:
        """The subscription came to its end."""
        self._ended(None)


_Session = TypeVar("_Session", bound=ServerConnection[Any])
_Subscriber = TypeVar("_Subscriber", bound=WireSubscriber[Any])


class Driver(ABC, Generic[_Session, _Subscriber]):
    """One connection, on the event loop of its link.

    Args:
        session: Its machine.
        link: The accepted WebSocket.
        pools: Threads for what reads the disk.
        client: Whose share of the threads it takes; None for one of its own.
        gate: The link as deliveries see it, where something else holds them back as well.
        limits: Bounds of the connection.
        weight: That of the whole server; None for a server of this connection alone.
        loop: The event loop, whose clock is the connection's.
        authenticate: Judges the client's token; None lets everybody in.
        token: The token that came with the upgrade.
        on_lost: Called once when the connection is gone.
    """

    def __init__(
        self,
        session: _Session,
        link: Link,
        *,
        pools: Pools,
        client: Hashable = None,
        gate: Link | None = None,
        limits: Limits,
        weight: ServerWeight | None,
        loop: asyncio.AbstractEventLoop,
        authenticate: Authenticator | None,
        token: str | None,
        on_lost: Callable[[Any], None],
    ) -> None:
        self._session = session
        self._link = link
        self._limits = limits
        self._loop = loop
        self._authenticate = authenticate
        self._token = token
        self._on_lost = on_lost
        self._outbound = Outbound(loop, gate or link, limits)
        self._weight = ConnectionWeight(
            limits.connection_weight, weight or ServerWeight(limits.criteria_weight)
        )
        self._pools = pools
        self._client = self if client is None else client
        self._jobs = DiskJobs(loop, self._client)
        self._subscribers: dict[Entry, _Subscriber] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._arm(session.due)

    # What a protocol adds.

    @abstractmethod
    def _do(self, effect: Effect) -> None:
        """Does what only this protocol asks for."""

    @abstractmethod
    def _tick(self, now: float) -> None:
        """Does what is due, and arms the timer again."""

    @property
    def weight(self) -> int:
        """What the criteria of its subscriptions weigh now."""
        return self._weight.weight

    @property
    def ending(self) -> str | None:
        """Why the server has ended it; see ``Link.ending``."""
        return self._link.ending

    # What the link tells.

    def received(self, text: bytes | str) -> None:
        """One message from the client."""
        try:
            self._perform(self._session.receive(text, self._loop.time()))
        except Exception:  # noqa: BLE001 - one connection fails, with an id, and the server goes on
            self._break()
        self._link.flush()

    def drained(self) -> None:
        """The link is writable again."""
        self._outbound.run()
        self._arm(self._session.due)

    def lost(self) -> None:
        """The connection is gone: everything that runs on it ends here."""
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self._session.lost())
        self._outbound.close()
        self._jobs.close()
        self._on_lost(self)

    @abstractmethod
    def goaway(self, deadline: float, reason: str) -> None:
        """Announces the end; ``stop`` will follow within ``deadline`` seconds."""

    @abstractmethod
    def stop(self) -> None:
        """The server is stopping: closes with 1012."""

    # What the machine wants done.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._link.write(data)
                case Demand(entry, n):
                    if (subscriber := self._subscribers.get(entry)) is not None:
                        subscriber.request(n)
                case Cancel(entry):
                    self._cancel(entry)
                case Authenticate(payload):
                    self._judge(payload.get("token"))
                case Close(code, reason):
                    self._link.close(code, reason)
                case _:
                    self._do(effect)

    def _cancel(self, entry: Entry) -> None:
        self._jobs.forget(entry)
        self._weight.give(entry)
        subscriber = self._subscribers.pop(entry, None)
        if subscriber is not None:
            subscriber.cancel()

    def _judge(self, token: object) -> None:
        given = token if isinstance(token, str) else self._token
        if self._authenticate is None:
            self._token = None  # what nobody has judged tells no policy anything
            self._perform(self._session.acknowledge())
        elif self._authenticate(given):
            self._token = given
            self._perform(self._session.acknowledge())
        else:
            self._perform(self._session.refuse("the token is missing or wrong"))

    def _break(self) -> None:
        """Closes the connection with 4500, for the exception that is being handled."""
        error_id = uuid.uuid4().hex[:12]
        _LOG.exception("connection failed, id %s", error_id)
        self._perform(self._session.close(CloseCode.INTERNAL, f"internal error {error_id}"))

    # What the time brings.

    def _arm(self, due: float) -> None:
        """Sets the one timer, unless it goes off earlier anyhow."""
        if due >= self._timer_at or self._session.phase is Phase.CLOSED:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = max(due, self._loop.time())
        self._timer = self._loop.call_at(self._timer_at, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        try:
            self._tick(self._loop.time())
        except Exception:  # noqa: BLE001 - without its timer the connection would go silent
            self._break()

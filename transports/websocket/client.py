"""The Python client: a remote log, whose feeds are publishers."""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import urlsplit

from flow.executors import loop_executor
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.position import PositionToken
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, View
from transports.codec import replies
from transports.codec.messages import encode, view_json
from transports.codec.replies import Ack, Checkpoint, Done, Failure, Ping, Reply, read
from transports.errors import CloseCode, ConnectionLost, ExtraMissing, RemoteError, Violation
from transports.limits import CREDITS_MAX
from transports.websocket.backoff import Backoff
from transports.websocket.remote import RemoteFeed, RemoteSubscription

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["RemoteLog", "connect"]

_LOG: Final = logging.getLogger("penstock.transports")
_SUBPROTOCOL: Final = "penstock.v1+json"
_KEEPALIVE: Final = 12.0
# Ends that a reconnecting client takes for interruptions: it subscribes again where it was.
_RESUMED: Final = frozenset({"GOING_AWAY", "LOG_CLOSED", "CURSOR_AHEAD", "SLOW_CONSUMER"})


class RemoteLog:
    """A connection to a server, for use on one event loop, made by ``connect``: entering connects, leaving ends all."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        reconnect: Backoff | None,
        open_timeout: float,
        headers: Mapping[str, str],
    ) -> None:
        self.url = url
        self._token = token
        self._reconnect = reconnect
        self._open_timeout = open_timeout
        self._headers = dict(headers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ids = itertools.count(1)
        self._subscriptions: dict[str, RemoteSubscription] = {}
        self._outgoing: deque[str] = deque()
        self._wake = asyncio.Event()
        self._ready = False
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._lost: ConnectionLost | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection.

        Raises:
            ConnectionLost: If it was not opened.
        """
        if self._loop is None:
            raise ConnectionLost(self.url, "it was not opened; use 'async with'", retryable=False)
        return self._loop

    def changes(
        self,
        *criteria: Criterion | Criteria | None,
        since: PositionToken | str | None = None,
        start: Literal["latest", "earliest"] | int | None = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Collection[str] | None = None,
        mask: Mapping[str, Rule | str] | None = None,
        log: str | None = None,
        window: int = 256,
        batch_events: int | None = None,
        linger_ms: int = 0,
        on_lag: Literal["resync", "fail"] = "resync",
        on_gap: Literal["fail", "jump"] = "fail",
        whole: bool = False,
        heartbeat_ms: int | None = None,
    ) -> RemoteFeed:
        """A publisher of remote changes.

        Args:
            criteria: Which changes; nothing at all for everything.
            since: Cursor to start at, as a change, a subscription or a log gave it.
            start: Without a cursor: the next version (the default), the oldest kept, or this version.
            until: Last version, after which the subscriber is completed.
            content: HEADER or BODY.
            images: Which images there are with BODY.
            fields: Paths that are shown; None for all.
            mask: Of each path what is shown in place of its value.
            log: Name of the log; may be left out if the server has one.
            window: Most events under way or buffered for one subscriber.
            batch_events: Most events in one message.
            linger_ms: How long the server may wait to put more events into one message.
            on_lag: What to do when the log has moved on: read on from its history, or end with ``LAGGED``.
            on_gap: End where history is missing, or go on behind it, and tell the subscriber's ``on_gap(begin, end)``.
            whole: Whether a start inside a transaction sends it again from its beginning.
            heartbeat_ms: Longest silence until the server tells the cursor; 0 for never.

        Raises:
            InvalidOption: If ``window`` is out of its range, or ``fields`` or ``mask`` has no paths. The server judges the rest.
        """
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= CREDITS_MAX:
            raise InvalidOption("window", window, f"a whole number from 1 to {CREDITS_MAX}")
        payload: dict[str, Any] = {
            "log": log,
            "criteria": Criteria.of(*criteria).to_json() or [{}],
            **view_json(View.of(content, images, fields=fields, mask=mask)),
            "since": None if since is None else str(since),
            "start": {"version": start} if isinstance(start, int) else start,
            "until": until,
            "batch": {"maxEvents": batch_events, "lingerMs": linger_ms},
            "onLag": on_lag,
            "onGap": on_gap,
            "whole": whole or None,
            "heartbeatMs": heartbeat_ms,
        }
        wish = {name: value for name, value in payload.items() if value is not None}
        return RemoteFeed(self, wish, window=window)

    async def open(self) -> Self:
        """Connects; returns when the server has acknowledged.

        Raises:
            ConnectionLost: If that fails; the first attempt is never repeated.
            ExtraMissing: If websockets is not installed.
        """
        try:
            import websockets.asyncio.client  # noqa: F401, PLC0415 - an optional dependency
        except ImportError as error:
            raise ExtraMissing("a client", error.name or "websockets", "server") from None
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._task = self._loop.create_task(self._run())
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Closes the connection; subscriptions that still run end with ``ConnectionLost``. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._give_up(ConnectionLost(self.url, "it was closed here", retryable=False))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # What subscriptions want; from any thread.

    def enlist(self, subscription: RemoteSubscription) -> None:
        """Subscribes at the server."""
        subscription.id = str(next(self._ids))
        loop_executor(self.loop).submit(lambda: self._enlist(subscription))

    def demand(self, subscription: RemoteSubscription) -> None:
        """Requests what the subscription wants."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            loop_executor(self.loop).submit(lambda: self._demand(subscription))

    def forget(self, subscription: RemoteSubscription) -> None:
        """Ends the subscription at the server."""
        with contextlib.suppress(RuntimeError):
            loop_executor(self.loop).submit(lambda: self._forget(subscription))

    def _enlist(self, subscription: RemoteSubscription) -> None:
        if self._lost is not None:
            subscription.end(self._lost)
        elif not subscription.ended:
            self._subscriptions[subscription.id] = subscription
            self._subscribe(subscription)

    def _subscribe(self, subscription: RemoteSubscription) -> None:
        if self._ready and self._subscriptions.get(subscription.id) is subscription:
            self._say({"type": "subscribe", "id": subscription.id, "payload": subscription.wish()})

    def _demand(self, subscription: RemoteSubscription) -> None:
        # Not ready: the subscribe message will carry it.
        if self._ready and self._subscriptions.get(subscription.id) is subscription:
            more = subscription.unannounced()
            if more > 0:
                self._say({"type": "request", "id": subscription.id, "n": more})

    def _forget(self, subscription: RemoteSubscription) -> None:
        if self._subscriptions.pop(subscription.id, None) is not None and self._ready:
            self._say({"type": "complete", "id": subscription.id})

    def _say(self, message: Mapping[str, Any]) -> None:
        self._outgoing.append(encode(message).decode())
        self._wake.set()

    # The connection.

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                lost, served = await self._serve()
            except Exception as error:  # noqa: BLE001 - whoever waits for this connection would wait for ever
                _LOG.exception("the connection to %s failed", self.url)
                lost, served = ConnectionLost(self.url, repr(error), retryable=False), False
            attempt = 0 if served else attempt
            first = self._opened is not None and not self._opened.done()
            delay = (
                self._reconnect.delay(attempt) if self._reconnect and lost.retryable and not first else None
            )
            if delay is None:
                self._give_up(lost)
                return
            attempt += 1
            await asyncio.sleep(delay)

    def _give_up(self, lost: ConnectionLost) -> None:
        self._lost = self._lost or lost
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(lost)
            self._opened.exception()
        for subscription in list(self._subscriptions.values()):
            subscription.end(lost)
        self._subscriptions.clear()

    async def _serve(self) -> tuple[ConnectionLost, bool]:
        """Connects and serves until the connection is lost; answers why, and whether it had been acknowledged."""
        from websockets.asyncio.client import connect as dial  # noqa: PLC0415 - an optional dependency
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI  # noqa: PLC0415 - likewise

        acknowledged = False
        try:
            loopback = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        except ValueError as error:
            return ConnectionLost(self.url, str(error), retryable=False), acknowledged
        try:
            async with dial(
                self.url,
                subprotocols=[_SUBPROTOCOL],  # type: ignore[list-item]  # a NewType of str
                additional_headers=self._headers,
                compression=None,
                proxy=None if loopback else True,
                open_timeout=self._open_timeout,
                ping_interval=_KEEPALIVE,
                ping_timeout=_KEEPALIVE,
                close_timeout=1.0,
                max_size=None,
            ) as socket:
                await self._greet(socket)
                acknowledged = True
                await self._exchange(socket)
        except ConnectionClosed as error:
            return self._closed(
                error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else ""
            ), acknowledged
        except (InvalidURI, ImportError) as error:  # a proxy of the environment may need a package
            return ConnectionLost(self.url, str(error), retryable=False), acknowledged
        except InvalidHandshake as error:
            return ConnectionLost(self.url, f"the server refused the upgrade: {error}"), acknowledged
        except Violation as error:
            return ConnectionLost(
                self.url, str(error), close_code=error.close_code, retryable=False
            ), acknowledged
        except TimeoutError:
            return ConnectionLost(self.url, f"no answer within {self._open_timeout:g} s"), acknowledged
        except (OSError, EOFError, ValueError) as error:
            return ConnectionLost(self.url, str(error) or type(error).__name__), acknowledged
        finally:
            self._ready = False
            self._outgoing.clear()
        return self._closed(1000, "closed by the server"), acknowledged

    def _closed(self, code: int | None, reason: str) -> ConnectionLost:
        why = (
            "no close frame came"
            if code is None
            else f"closed with {code}" + (f" ({reason})" if reason else "")
        )
        known = code in CloseCode.__members__.values()
        retryable = CloseCode(code).retryable if known and code is not None else True
        return ConnectionLost(self.url, why, close_code=code, retryable=retryable)

    async def _greet(self, socket: "ClientConnection") -> None:
        payload = {"client": "penstock-python/1.0"}
        if self._token is not None:
            payload["token"] = self._token
        await socket.send(encode({"type": "connection_init", "payload": payload}).decode())
        async with asyncio.timeout(self._open_timeout):
            reply = read(await socket.recv())
        if not isinstance(reply, Ack):
            raise Violation(CloseCode.BAD_REQUEST, f"connection_ack was expected, not {type(reply).__name__}")
        self._ready = True
        for subscription in list(self._subscriptions.values()):
            self._subscribe(subscription)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    async def _exchange(self, socket: "ClientConnection") -> None:
        writer = asyncio.create_task(self._write(socket))
        try:
            while True:
                self._handle(read(await socket.recv(decode=False)))
        except Violation as error:
            await socket.close(error.close_code, error.reason)
            raise
        finally:
            writer.cancel()
            await asyncio.wait([writer])

    async def _write(self, socket: "ClientConnection") -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an optional dependency

        with contextlib.suppress(ConnectionClosed):  # the reader meets it too, and says so
            while True:
                while self._outgoing:
                    await socket.send(self._outgoing.popleft())
                self._wake.clear()
                await self._wake.wait()

    def _handle(self, reply: Reply) -> None:
        match reply:
            case replies.Next() | replies.Subscribed() | replies.Missing():
                if (subscription := self._subscriptions.get(reply.id)) is not None:
                    subscription.take(reply)
            case Checkpoint():
                for item in reply.items:
                    if (subscription := self._subscriptions.get(item.id)) is not None:
                        subscription.moved(item.cursor, item.head, item.state)
            case Failure():
                self._failed(reply)
            case Done():
                if (subscription := self._subscriptions.pop(reply.id, None)) is not None:
                    subscription.end(None)
            case Ping():
                self._outgoing.append(reply.answer())
                self._wake.set()
            case _:
                return

    def _failed(self, reply: Failure) -> None:
        subscription = self._subscriptions.get(reply.id)
        if subscription is None:
            return
        data = dict(reply.payload)
        code, message = str(data.pop("code", "INTERNAL")), str(data.pop("message", ""))
        retryable = data.pop("retryable", False) is True
        delay = self._reconnect.delay(0) if self._reconnect and retryable and code in _RESUMED else None
        if delay is None:
            del self._subscriptions[reply.id]
            subscription.end(RemoteError(code, message, retryable=retryable, data=data))
        elif code != "GOING_AWAY":  # after that the connection ends: it is resumed on the next one
            self.loop.call_later(delay, self._subscribe, subscription)


def connect(
    url: str,
    *,
    token: str | None = None,
    reconnect: Backoff | bool = False,
    open_timeout: float = 10.0,
    headers: Mapping[str, str] | None = None,
) -> RemoteLog:
    """A remote log; connects on entering ``async with``.

    Args:
        url: ``ws://host:port/ws``, as ``Server.url`` tells it.
        token: Told to the server in ``connection_init``.
        reconnect: Whether, and how patiently, a lost connection is made again; then subscriptions go on behind the last
            change that came, and their subscribers notice nothing.
        open_timeout: Seconds until an attempt to connect has failed.
        headers: Additional headers of the upgrade, such as ``Authorization``.
    """
    return RemoteLog(
        url,
        token=token,
        reconnect=Backoff() if reconnect is True else reconnect or None,
        open_timeout=open_timeout,
        headers=headers or {},
    )

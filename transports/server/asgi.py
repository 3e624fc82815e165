"""The ASGI application.

Paths: ``/ws`` speaks ``penstock.v1+json``; ``/graphql`` serves GraphQL if it is installed; ``/changes`` accepts
transactions; ``/`` is a page with links, or a page that the program supplies; ``/health``, ``/ready``, ``/metrics``,
``/statistics`` and ``/schemas`` report the state of the server.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from flow.misuse import names_arguments
from publishers.errors import InvalidOption
from publishers.store.store import ChangeStore
from transports.access.access import Access, Authenticator, Authoriser
from transports.access.grant import Grant
from transports.access.host_names import HostNames
from transports.access.once import Once
from transports.access.web_origins import WebOrigins
from transports.appends import Appending
from transports.browser.pages import Page, find_own
from transports.errors import CloseCode, ExtraMissing, Unauthenticated
from transports.http.asgi import ASGIApplication, ASGISend, Receive, Scope, add_slash, answer, respond
from transports.http.bodies import Bodies
from transports.http.caller import Caller
from transports.http.changes import ChangesEndpoint
from transports.http.cors import Cors
from transports.http.scope import client_of, credentials_of, headers_of, path_below
from transports.limits import Limits, bounds_of
from transports.problems import describe
from transports.quotas.pool import Pools
from transports.quotas.weight import ServerWeight
from transports.server import access_log
from transports.server.access_log import AccessEntry
from transports.server.asgi_link import FOREIGN, AsgiLink
from transports.server.change_driver import ChangeDriver
from transports.server.driver import Driver, DriverOptions
from transports.server.link import LINK, Offer
from transports.server.logs import logs_by_name
from transports.server.member_leases import MemberLeases
from transports.server.revocation import Revocation
from transports.server.slot_leases import SlotLeases
from transports.server.status import Status, StatusAnswer
from transports.server.version import version
from transports.tcp.accepting import figures_of_process, warn_if_few
from transports.telemetry.latency import Latencies
from transports.telemetry.queries import SparkQueries

if TYPE_CHECKING:
    from publishers.fanout.batch import Batch
    from publishers.log.changelog import ChangeLog
    from transports.server.graphql_endpoint import GraphQLEndpoint

__all__ = ["SUBPROTOCOL", "Application"]

SUBPROTOCOL: Final = "penstock.v1+json"
"""The sub-protocol token. A client that offers no token gets this protocol; a client that offers only others is refused."""

_TURN: Final = 256  # connections that one turn of the loop inspects
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_SERVER: Final = f"penstock/{version()}"


class Application:
    """Serves change logs to remote subscribers.

    Run it with ``transports.serve`` or under any ASGI server, alone or mounted in another application at any prefix. Only
    our own protocol class (``uvicorn --ws penstock_cdc:LinkProtocol``) aborts stalled clients and bounds the unsent bytes;
    under another host both depend on that host, and the application logs one warning. A mounted application receives no
    lifespan events when the server stops: its host must call ``stop``, await ``idle``, and then close the logs.

    Args:
        logs: One log, several logs by name, or a store. A store serves all its logs as they appear and disappear, and the
            system log under ``$system``.
        limits: Bounds of each connection.
        origins: ``Origin`` header values of web pages that may connect and may read HTTP responses (CORS), in addition to
            pages served from this machine; ``"*"`` allows all. Clients that are not browsers send no ``Origin`` and are
            always allowed.
        hosts: Accepted values of the ``Host`` header, in addition to the names of this machine; None, or ``"*"`` in the
            collection, accepts all. If clients reach the server only under the names of this machine, pass an empty list: it
            keeps foreign web pages from reading the server through a local browser (DNS rebinding).
        authenticate: Maps the ``Credentials`` of a client, such as the token of ``Authorization: Bearer`` or of
            ``connection_init``, to a ``Principal``, or to None if the client is refused. Without it every client is
            admitted.
        authorise: What each principal may do with a log: one ``Grant`` for all, or a function from principal, log name and
            ``LogAction`` to a ``Grant``. Without it every client may read everything and no client may write.
        pages: Files for browsers by URL path below the application, in addition to the built-in ones; a page at ``/``
            replaces the page with links. They are public: no token is needed.
        spark_queries: Returns the state of this process's streaming queries, as ``ProgressListener.statistics`` does; called
            on the event loop at most five times a second, for ``/statistics`` and ``/metrics``.

    Attributes:
        delivered: Called with each batch that is written to a client and the name of its log, for connections that open
            after it is set; None for no callback.
        redis_port: Returns the figures of a Redis protocol port (``RespServer.figures``), which are reported with those of
            the server; None without such a port.
        sinks: Returns the state of the sinks that run in this process, by log name, as ``LogSinks.told`` does; called on a
            thread at most five times a second. None without sinks.

    Raises:
        InvalidOption: If the path of a page is already taken or does not begin with ``/``.
        LogForked: In a child of ``fork``, if a log was opened in its parent.
    """

    @names_arguments()
    def __init__(
        self,
        logs: "ChangeLog | ChangeStore | Mapping[str, ChangeLog]",
        *,
        limits: Limits | None = None,
        origins: Collection[str] = (),
        hosts: Collection[str] | None = None,
        authenticate: Authenticator | None = None,
        authorise: Authoriser | Grant | None = None,
        pages: Mapping[str, Page] | None = None,
        spark_queries: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._logs = logs_by_name(logs)
        self._limits = warn_if_few(limits or Limits())
        self._origins = WebOrigins(origins)
        self._cors = Cors(self._http, self._origins)
        self._hosts = HostNames(hosts)
        self._pages = _checked(pages or {})
        self._weight = ServerWeight(self._limits.criteria_weight)
        self._pools = Pools(self._limits)
        self._access = Access(
            authenticate,
            authorise,
            timeout=self._limits.authenticate_timeout,
            fresh=self._limits.revocation,
            run=self._pools.judging.run,
        )
        self.delivered: Callable[[Batch, str], None] | None = None
        self.redis_port: Callable[[], Mapping[str, Any]] | None = None
        self.sinks: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None
        self._spark_queries = SparkQueries(spark_queries)
        self._latencies = Latencies()
        self._errors: Counter[str] = Counter()
        self._protocols: Counter[str] = Counter()
        self._appending = Appending(self._logs, self._access, self._limits)
        self._leases = SlotLeases(self._limits, self._pools, alone=self._access.open)
        self._members = MemberLeases(self._limits, self._pools, alone=self._access.open)
        self._bodies = Bodies(self._limits)
        self._changes = ChangesEndpoint(
            self._appending, self._access, self._bodies, self._pools, self._limits.transaction_bytes
        )
        self._status = Status(
            self._logs,
            self._access,
            server=_SERVER,
            connections=lambda: self.connections,
            loads=self._loads,
            costs=self._costs,
            pools=self._pools,
            latencies={
                "sendLatency": self._latencies,
                "appendLatency": self._appending.figures.durable,
                "appendAnswerLatency": self._appending.figures.answered,
            },
            errors=self._errors,
            draining=lambda: self._stopping,
            sinks=lambda: {} if self.sinks is None else self.sinks(),
            commit_age=self._limits.commit_age,
        )
        self._connections: set[Driver[Any, Any]] = set()
        self._revocation = Revocation(self._access, lambda: self._connections, self._limits.revocation)
        self._ended: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self._once = Once()
        self._stopping = False
        self._mounted: dict[str, ASGIApplication] = {}
        self._graphql: GraphQLEndpoint | None = None
        self._making: Future[GraphQLEndpoint] | None = None

    def mount(self, name: str, make: Callable[..., ASGIApplication]) -> None:
        """Serves the paths below ``/name`` with another ASGI application.

        Args:
            name: The first path segment.
            make: Makes the application; called with ``access``, ``bodies`` and ``pools``.
        """
        self._mounted[name] = make(access=self._access, bodies=self._bodies, pools=self._pools)

    @property
    def open_to_all(self) -> bool:
        """Whether every client is admitted."""
        return self._access.open

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def _loads(self) -> list[tuple[int, int]]:
        """Returns the unsent bytes and the weight of each connection.

        It inspects at most ``_TURN`` connections in one turn of the loop.
        """
        found, connections = [], list(self._connections)
        while connections:
            found += [(connection.unsent, connection.weight) for connection in connections[-_TURN:]]
            del connections[-_TURN:]
            await asyncio.sleep(0)
        return found

    def _costs(self) -> dict[str, Any]:
        """The figures of what clients cost."""
        return {
            "graphql": _UNASKED if self._graphql is None else self._graphql.engine.statistics(),
            **figures_of_process(),
            "criteriaWeight": self._weight.weight,
            "bodyBytes": self._bodies.held.taken,
            "appendingBytes": self._appending.unanswered.taken,
            "spooledBytes": self._appending.spooled.taken,
            "appends": {
                "unanswered": self._appending.figures.unanswered,
                "transactions": self._appending.transactions,
                "outcomes": dict(self._appending.figures.outcomes),
                "bytes": self._appending.figures.nbytes,
                "expectScanned": self._appending.scanned.spent,
            },
            "slotLeases": self._leases.figures(),
            "groupMembers": self._members.figures(),
            "protocols": dict(self._protocols),
            "ended": dict(self._ended),
            "errors": dict(self._errors),
            "limits": bounds_of(self._limits),
            "threads": self._pools.statistics(),
            **self._spark_queries.statistics(),
            **({} if self.redis_port is None else {"resp": dict(self.redis_port())}),
        }

    async def figures(self) -> Mapping[str, Any]:
        """The statistics of the server and its logs, in the form that the metrics table reads; call it on the event loop."""
        return await self._status.figures()

    def goaway(self, deadline: float, reason: str = "restart") -> None:
        """Announces the shutdown to every connection and refuses new ones; call it on the event loop."""
        self._stopping = True
        for connection in list(self._connections):
            connection.goaway(deadline, reason)

    def stop(self) -> None:
        """Ends every subscription with ``GOING_AWAY``, closes with 1012, and refuses new connections.

        Call it on the event loop. Queries that read the log end at their next step.
        """
        self._stopping = True
        self._pools.close()
        for connection in list(self._connections):
            connection.stop()
        self._leases.close()
        self._members.close()

    async def idle(self) -> None:
        """Waits until no connection is left."""
        await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """The ASGI callable."""
        match scope["type"]:
            case "websocket":
                await self._websocket({**scope, "path": path_below(scope)}, receive, send)
            case "http":
                scope = {**scope, "path": path_below(scope)}
                if access_log.is_wanted():
                    await AccessEntry(scope).follow(self._cors, scope, receive, send)
                else:
                    await self._cors(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case _:
                raise ValueError(
                    f"scope type {scope['type']!r} is not served; only websocket, http and lifespan are"
                )

    async def _websocket(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        offer: Offer | None = (scope.get("extensions") or {}).get(LINK)
        if offer is None:
            self._once.warn(FOREIGN)
            offer = AsgiLink(receive, send, self._limits)
        entry = AccessEntry(scope) if access_log.is_wanted() else None

        def refuse(status: HTTPStatus, why: str) -> None:
            scope["penstock.status"] = int(status)
            offer.refuse(status, why)

        origin = headers_of(scope).get("origin")
        offered = scope.get("subprotocols") or []
        graphql = await self._load_graphql() if scope["path"] == "/graphql" else None
        speaks = graphql.subprotocol if graphql is not None else SUBPROTOCOL
        # The response must not name a protocol that was not offered (RFC 6455 §4.2.2).
        speech = speaks if offered else None
        if (why := self._hosts.refusal(scope["headers"])) is not None:
            refuse(HTTPStatus.MISDIRECTED_REQUEST, why)
        elif scope["path"] != "/ws" and graphql is None:
            refuse(HTTPStatus.NOT_FOUND, self._elsewhere(scope["path"], "the WebSocket is at /ws"))
        elif (why := self._origins.refusal(origin)) is not None:
            refuse(HTTPStatus.FORBIDDEN, why)
        elif offered and speaks not in offered:
            refuse(HTTPStatus.BAD_REQUEST, f"offer the sub-protocol {speaks}, or none")
        elif self._stopping:
            self._turn_away(offer, speech, CloseCode.RESTART, "the server is stopping")
        elif len(self._connections) >= self._limits.connections:
            full = "the server has all the connections that it takes; try later"
            self._turn_away(offer, speech, CloseCode.OVERLOAD, full)
        else:
            self._connect(offer, scope, graphql, speech)
        try:
            await offer.closed()
        except BaseException:  # the host has cancelled the application, and the connection with it
            offer.abort()
            raise
        finally:
            if entry is not None:
                entry.write_ended(offer.ending)

    def _connect(
        self, offer: Offer, scope: Scope, graphql: "GraphQLEndpoint | None", subprotocol: str | None
    ) -> None:
        serving = DriverOptions(
            limits=self._limits,
            loop=asyncio.get_running_loop(),
            pools=self._pools,
            client=client_of(scope),
            weight=self._weight,
            access=self._access,
            credentials=credentials_of(scope),
            on_lost=self._lost,
            latencies=self._latencies,
            errors=self._errors,
            delivered=self.delivered,
        )
        connection: Driver[Any, Any]
        if graphql is not None:
            connection = graphql.connection(offer, **serving)
        else:
            connection = ChangeDriver(
                self._logs,
                offer,
                server=_SERVER,
                appending=self._appending,
                leases=self._leases,
                members=self._members,
                **serving,
            )
        scope["penstock.connection"] = connection
        self._connections.add(connection)
        self._revocation.start()
        self._protocols[connection.protocol] += 1
        self._idle.clear()
        offer.attach(connection, subprotocol)

    def count_ended(self, why: str) -> None:
        """Counts a connection that the server closed; ``/statistics`` reports the counts by reason."""
        self._ended[why] += 1

    def _lost(self, connection: Driver[Any, Any]) -> None:
        if connection.ending is not None:
            self.count_ended(connection.ending)
        self._connections.discard(connection)
        self._protocols[connection.protocol] -= 1
        if not self._connections:
            self._idle.set()

    async def _load_graphql(self) -> "GraphQLEndpoint | None":
        """Returns the endpoint for ``/graphql``, made on first use; None if GraphQL is not installed."""
        if self._graphql is None:
            making = self._making
            if making is None or (making.done() and making.exception()):  # it may succeed now
                thread = ThreadPoolExecutor(1, "penstock-graphql")
                making = self._making = thread.submit(self._make_graphql)
                thread.shutdown(wait=False)
            with contextlib.suppress(ImportError):
                self._graphql = await asyncio.shield(asyncio.wrap_future(making))
        return self._graphql

    def _make_graphql(self) -> "GraphQLEndpoint":
        """Makes the endpoint; on a thread, because the import takes long."""
        from transports.server.graphql_endpoint import GraphQLEndpoint  # noqa: PLC0415 - an optional dependency

        return GraphQLEndpoint(
            self._logs,
            self._limits,
            self._access,
            self._pools,
            self._appending,
            self._leases,
            self._members,
            self._bodies,
        )

    @staticmethod
    def _elsewhere(path: str, what: str) -> str:
        """The error text for a path that is not served."""
        return str(_NO_GRAPHQL) if path.startswith("/graphql") else f"{path} is not served; {what}"

    @staticmethod
    def _turn_away(offer: Offer, subprotocol: str | None, code: CloseCode, why: str) -> None:
        """Accepts the upgrade and closes at once, because a refused upgrade carries no close code."""
        offer.attach(None, subprotocol)
        offer.close(code, why)

    async def _http(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        path, method, headers = scope["path"], scope["method"], headers_of(scope)
        page, body = self._pages.get(path) or find_own(path), method == "GET"
        if (why := self._hosts.refusal(scope["headers"])) is not None:
            await answer(send, HTTPStatus.MISDIRECTED_REQUEST, {"error": why}, body=method != "HEAD")
        elif not path:
            await add_slash(send, scope)
        elif not path.startswith("/"):
            why = f"the target is {path[:100]!r}, but a target begins with /"
            await answer(send, HTTPStatus.BAD_REQUEST, {"error": why})
        elif method not in _SAFE and (why := self._origins.refusal(headers.get("origin"))) is not None:
            # A page may send without reading the answer, so CORS alone does not keep it from doing something.
            refused = {
                "error": why,
                "code": "INVALID_REQUEST",
                "retryable": False,
            }
            await answer(send, HTTPStatus.FORBIDDEN, refused)
        elif path.startswith("/graphql") and (graphql := await self._load_graphql()) is not None:
            await graphql.http(scope, receive, send)
        elif path == "/changes":
            await self._changes(scope, receive, send)
        elif (mounted := self._mounted.get(path.split("/")[1])) is not None:
            await mounted(scope, receive, send)
        elif page is None and path not in Status.paths:
            why = self._elsewhere(
                path, "try /, /changes, /graphql, /health, /metrics, /ready, /schemas, /statistics or /ws"
            )
            await answer(send, HTTPStatus.NOT_FOUND, {"error": why})
        elif method not in ("GET", "HEAD"):
            await answer(send, HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"use GET, not {method}"})
        elif page is not None:
            await _show(send, page, headers.get("if-none-match", ""), body=body)
        else:
            await answer(send, *await self._answer_status(scope), body=body)

    async def _answer_status(self, scope: Scope) -> StatusAnswer:
        """Answers a status path."""
        path, principal = scope["path"], None
        try:
            principal = (await Caller.of(self._access, scope)).principal
        except Unauthenticated:
            pass
        except Exception as error:  # noqa: BLE001 - the application's authenticator may raise anything
            problem = describe(error)
            # These two report the server's health to every client, identified or not.
            if path not in ("/health", "/ready"):
                return StatusAnswer(
                    HTTPStatus.SERVICE_UNAVAILABLE if problem.retryable else HTTPStatus.INTERNAL_SERVER_ERROR,
                    {"error": problem.message, "code": problem.code, "retryable": problem.retryable},
                )
        query = scope.get("query_string", b"")
        return await self._status.answer(path, query, principal, client_of(scope))

    async def _lifespan(self, receive: Receive, send: ASGISend) -> None:
        while True:
            match (await receive())["type"]:
                case "lifespan.startup" if self._stopping:
                    why = "this transports.Application was stopped with its lifespan; make another one for the next"
                    await send({"type": "lifespan.startup.failed", "message": why})
                    return
                case "lifespan.startup":
                    await send({"type": "lifespan.startup.complete"})
                case _:
                    self.stop()
                    await send({"type": "lifespan.shutdown.complete"})
                    return


_TAKEN: Final = ("/changes", "/graphql", *sorted(Status.paths), "/ws")
_UNASKED: Final = {"documents": 0, "documentBytes": 0, "refused": 0}
"""The figures of GraphQL before the first request of it."""
_NO_GRAPHQL: Final = ExtraMissing("GraphQL", "strawberry", "graphql")


def _checked(pages: Mapping[str, Page]) -> dict[str, Page]:
    """Checks and copies the pages of the program."""
    for path in pages:
        if not path.startswith("/") or path in _TAKEN or path.startswith("/graphql"):
            raise InvalidOption(
                "pages", path, f"a path that begins with / and is none of {', '.join(_TAKEN)}"
            )
    return dict(pages)


async def _show(send: ASGISend, page: Page, if_none_match: str, *, body: bool) -> None:
    """Sends a page, or 304 if the browser has the current version."""
    if page.matches(if_none_match):
        await respond(send, HTTPStatus.NOT_MODIFIED, page.headers)
        return
    content = [(b"content-type", page.kind.encode()), (b"content-length", b"%d" % len(page.data))]
    await respond(send, HTTPStatus.OK, [*page.headers, *content], page.data if body else b"")

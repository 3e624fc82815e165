"""``/sinks``: lists, declares, orders, tests and drops the sinks of a served log over HTTP."""

from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any, Final

import msgspec

from publishers.errors import InvalidCriteria, InvalidOption, PenstockError
from publishers.model.errors import HIDDEN
from transports.access.access import Access
from transports.access.grant import LogAction
from transports.access.principal import Principal
from transports.errors import InvalidRequest
from transports.http.asgi import ASGISend, Receive, Scope, respond
from transports.http.bodies import Bodies, Left, Refused
from transports.http.caller import Caller
from transports.http.scope import headers_of
from transports.problems import describe
from transports.quotas.pool import Pools
from transports.quotas.shared_bytes import Charge
from transports.sinks.declared import StoredSinks
from transports.sinks.errors import NoSuchSink, SinkError
from transports.sinks.log_sinks import LogSinks, order_of

__all__ = ["SinksEndpoint"]

_BODY: Final = 65536
_ORDERS: Final = ("again", "off", "on", "pause", "resume", "seek", "test")
_STATUS: Final = {
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "GOING_AWAY": HTTPStatus.SERVICE_UNAVAILABLE,
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
}

_Work = Callable[[], tuple[HTTPStatus, Any]]


class SinksEndpoint:
    """An ASGI application below ``/sinks``, for one log.

    ``GET /sinks`` lists the sinks and ``GET /sinks/NAME`` shows one, for clients that may operate or manage the log. The rest needs
    ``LogAction.MANAGE``: ``POST /sinks`` with the keys of a file of sinks as JSON declares a sink, which survives a restart;
    ``DELETE /sinks/NAME`` drops such a sink with its slot; ``POST /sinks/NAME/ORDER`` orders ``pause``, ``resume``, ``seek``,
    ``off``, ``on``, ``again`` or ``test``.

    Args:
        sinks: The sinks of the log.
        stored: The store of declarations.
        kinds: The kinds that may be declared.
        access: Authenticates and authorises clients.
        bodies: Reads bodies.
        pools: The thread pools, for work that waits for a sink.
    """

    def __init__(
        self,
        sinks: LogSinks,
        stored: StoredSinks,
        kinds: Collection[str],
        *,
        access: Access,
        bodies: Bodies,
        pools: Pools,
    ) -> None:
        self._sinks, self._stored, self._kinds = sinks, stored, kinds
        self._access, self._bodies, self._pools = access, bodies, pools

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Answers one request."""
        try:
            status, answer = await self._answer(scope, receive)
        except Left:
            return
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except PenstockError as error:
            status, answer = _refusal(error)
        except TimeoutError:
            status, answer = (
                HTTPStatus.ACCEPTED,
                {"error": "the sink is busy, and does it when its target lets it"},
            )
        body = msgspec.json.encode(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await respond(send, status, headers, body)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[HTTPStatus, Any]:
        caller = await Caller.of(self._access, scope)
        parts = [part for part in scope["path"].split("/") if part][1:]
        method = scope["method"]
        fields: dict[str, Any] = {}
        if method == "POST":
            self._check(caller.principal, LogAction.MANAGE)
            fields = await self._read(scope, receive, caller)
        work = self._work(method, parts, fields, await caller.still())
        return await self._pools.scanning.run(caller.client, work, payer=caller.payer)

    async def _read(self, scope: Scope, receive: Receive, caller: Caller) -> dict[str, Any]:
        """Reads a JSON object of at most 64 KiB; an empty body is an empty object."""
        headers = headers_of(scope)
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise InvalidRequest("content-type", kind, "application/json")
        with Charge(self._bodies.held, caller.payer) as charge:
            body = await self._bodies.whole(headers, receive, charge, _BODY)
        try:
            return msgspec.json.decode(body or b"{}", type=dict[str, Any])
        except msgspec.MsgspecError:
            raise InvalidOption("body", HIDDEN, "an object of JSON") from None

    def _work(self, method: str, parts: list[str], fields: dict[str, Any], principal: Principal) -> _Work:
        match method, parts:
            case "GET" | "HEAD", [] | [_]:
                self._check(principal, LogAction.OPERATE, LogAction.MANAGE)
                return lambda: self._shown(*parts)
            case "POST", []:
                self._check(principal, LogAction.MANAGE)
                return lambda: self._declare(fields)
            case "DELETE", [name]:
                self._check(principal, LogAction.MANAGE)
                return lambda: self._drop(name)
            case "POST", [name, order] if order in _ORDERS:
                self._check(principal, LogAction.MANAGE)
                return lambda: self._order(name, order, fields)
            case _:
                what = f"GET or POST /sinks, GET or DELETE /sinks/NAME, POST /sinks/NAME/{'|'.join(_ORDERS)}"
                raise InvalidRequest("path", f"{method} /{'/'.join(['sinks', *parts])}", what)

    def _check(self, principal: Principal, *actions: LogAction) -> None:
        """Raises ``Forbidden`` unless one of the actions is allowed."""
        log = self._sinks.log_name
        if any(self._access.allows(principal, log, action) is not None for action in actions[:-1]):
            return
        self._access.grant(principal, log, actions[-1])

    def _shown(self, name: str | None = None) -> tuple[HTTPStatus, Any]:
        answer = self._sinks.told()
        if name is None:
            return HTTPStatus.OK, {"log": self._sinks.log_name, "sinks": answer}
        if name not in answer:
            raise NoSuchSink(name, answer)
        return HTTPStatus.OK, answer[name]

    def _declare(self, declaration: dict[str, Any]) -> tuple[HTTPStatus, Any]:
        name = declaration.get("name")
        if name in self._sinks:
            raise InvalidOption("name", name, "another name for each sink of a log")
        made = self._stored.put(declaration, self._kinds)
        try:
            self._sinks.add(made.name, made.sink, made.options)
        except PenstockError:
            self._stored.drop(made.name)
            raise
        return HTTPStatus.CREATED, self._sinks.told()[made.name]

    def _drop(self, name: str) -> tuple[HTTPStatus, Any]:
        if name in self._sinks:
            self._stored.check_kept(name)
        self._sinks.drop(name)
        self._stored.drop(name)
        return HTTPStatus.OK, {"dropped": name}

    def _order(self, name: str, order: str, fields: dict[str, Any]) -> tuple[HTTPStatus, Any]:
        if order == "test":
            return HTTPStatus.OK, {"said": self._sinks.try_out(name)}
        self._sinks.order(name, order, **order_of(fields))
        return HTTPStatus.OK, self._sinks.told()[name]


def _refusal(error: PenstockError) -> tuple[HTTPStatus, Any]:
    if isinstance(error, NoSuchSink):
        return HTTPStatus.NOT_FOUND, {"error": str(error)}
    if isinstance(error, InvalidOption | InvalidCriteria | InvalidRequest):
        return HTTPStatus.BAD_REQUEST, {"error": str(error)}
    if isinstance(error, SinkError):
        return HTTPStatus.CONFLICT, {"error": str(error)}
    problem = describe(error)
    return _STATUS.get(problem.code, HTTPStatus.CONFLICT), {
        "error": problem.payload().get("message", str(error))
    }

"""GraphQL over HTTP: queries by GET and POST, and the GraphiQL page for browsers.

Under the media type ``application/graphql-response+json`` the status says whether the request was executed (200) or not
(400); under ``application/json`` both are 200, as older clients expect.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from http import HTTPStatus
from importlib import resources
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import parse_qsl

import msgspec

from transports.access.access import Access
from transports.access.principal import ANONYMOUS, Principal
from transports.appends import payer_of
from transports.codec.graphql_ws import graphql_error, is_persisted
from transports.errors import Unauthenticated
from transports.graphql.cost import is_light
from transports.graphql.errors import RequestRefused
from transports.graphql.execution import Engine
from transports.http.asgi import ASGISend, Receive, Scope, respond
from transports.http.bodies import Bodies, Left, Refused
from transports.http.caller import Caller
from transports.http.scope import client_of, headers_of
from transports.problems import describe
from transports.quotas.pool import Pool, Pools, Turn
from transports.quotas.shared_bytes import Charge

__all__ = ["HttpEndpoint"]

_RESPONSE: Final = "application/graphql-response+json"
_JSON: Final = "application/json"
_OFFERED: Final = (_RESPONSE, _JSON, "text/html")
_PARAMETERS: Final = ("query", "operationName", "variables", "extensions")
_T = TypeVar("_T")
_STATIC: Final[Mapping[str, tuple[str, str]]] = {
    "graphiql.js": ("graphiql.js.gz", "text/javascript; charset=utf-8"),
    "graphiql.css": ("graphiql.css.gz", "text/css; charset=utf-8"),
    "LICENSES.txt": ("LICENSES.txt", "text/plain; charset=utf-8"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _Request(NamedTuple):
    query: str | None
    operation_name: str | None
    variables: dict[str, Any] | None


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    media_type: str = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpEndpoint:
    """The endpoint ``/graphql`` beside the WebSocket.

    Args:
        engine: Executes the queries.
        bodies: Reads bodies.
        access: Authenticates clients and authorises queries. The page is public.
        pools: The threads for disk reads.
    """

    def __init__(self, engine: Engine, bodies: Bodies, access: Access, pools: Pools) -> None:
        self._engine = engine
        self._pools = pools
        self._bodies = bodies
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Answers one HTTP request."""
        headers = headers_of(scope)
        media_type = _negotiate(headers.get("accept", "*/*"))
        async with _Asker(client_of(scope), receive) as asker:
            answer = await self._try(scope, asker, headers, media_type)
            if answer is not None:
                await _write(send, answer, body=scope["method"] != "HEAD")

    async def _try(
        self, scope: Scope, asker: "_Asker", headers: Mapping[str, str], media_type: str | None
    ) -> _Answer | None:
        """Returns the response; None if the client has disconnected."""
        try:
            answer = await self._answer(scope, asker, headers, media_type)
        except Refused as refused:
            answer = _refusal(refused, _RESPONSE if media_type == _RESPONSE else _JSON)
        except Left:
            return None
        except Exception as error:  # noqa: BLE001 - one request fails, with an id, and the server continues
            problem = describe(error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            if problem.retryable:  # the server is stopping, or too much work waits
                status = HTTPStatus.SERVICE_UNAVAILABLE
            body = msgspec.json.encode({"errors": [graphql_error(problem)]})
            answer = _Answer(status, body, _RESPONSE if media_type == _RESPONSE else _JSON)
        return answer

    async def _answer(
        self, scope: Scope, asker: "_Asker", headers: Mapping[str, str], media_type: str | None
    ) -> _Answer:
        _, _, name = scope["path"].partition("/graphql")
        method = scope["method"]
        if name.strip("/"):
            return _static(name.strip("/"), headers.get("accept-encoding"))
        pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if method in ("GET", "HEAD") and media_type == "text/html":
            return _page() if not name else _ELSEWHERE
        if media_type is None or media_type == "text/html":
            raise Refused(HTTPStatus.NOT_ACCEPTABLE, f"accept {_RESPONSE} or {_JSON}")
        caller = await self._judge(scope)
        if method == "GET":
            return await self._execute(
                asker, _from_query(dict(pairs)), media_type, caller.principal, queries_only=True
            )
        if method != "POST":
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"use GET or POST, not {method}", (b"allow", b"GET, POST")
            )
        _check_kind(headers)
        with Charge(self._bodies.held, caller.payer) as charge:
            request = _from_body(await self._bodies.whole(headers, asker.receive, charge))
            principal = await self._still(caller)
            return await self._execute(asker, request, media_type, principal, queries_only=False)

    async def _judge(self, scope: Scope) -> Caller:
        with _told():
            return await Caller.of(self._access, scope)

    async def _still(self, caller: Caller) -> Principal:
        with _told():
            return await caller.still()

    async def _execute(
        self,
        asker: "_Asker",
        request: _Request,
        media_type: str,
        principal: Principal,
        *,
        queries_only: bool,
    ) -> _Answer:
        strict, asker.principal = media_type == _RESPONSE, principal
        prepare = partial(self._engine.prepare, *request, principal=principal)
        try:
            operation = (
                prepare()
                if is_light(request.query or "", request.variables)
                else await asker.ask(self._pools.preparing, lambda _: prepare())
            )
        except RequestRefused as refused:
            status = HTTPStatus.BAD_REQUEST if strict else HTTPStatus.OK
            return _Answer(status, msgspec.json.encode({"errors": refused.errors}), media_type)
        if operation.kind == "subscription":
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED if queries_only else HTTPStatus.BAD_REQUEST,
                "subscriptions are served over a WebSocket at this path (graphql-transport-ws)",
                *(((b"allow", b"POST"),) if queries_only else ()),
            )
        writes = operation.kind == "mutation"
        if writes and queries_only:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "use POST for a mutation", (b"allow", b"POST"))
        pool = self._pools.appending if writes else self._pools.scanning
        body = await asker.ask(pool, lambda turn: operation.answer(turn.check), writes=writes, held=True)
        return _Answer(HTTPStatus.OK, body, media_type)


class _Asker:
    """The client of one request: charges threads to it, and detects that it disconnects.

    A share that is held ends with the request, once the client has accepted the response.

    Attributes:
        principal: Who pays for the processor time of the threads, unless it is anonymous: then the address.
    """

    def __init__(self, client: Hashable, receive: Receive) -> None:
        self._client = self if client is None else client
        self.receive = receive
        self.principal: Principal = ANONYMOUS
        self._turns: list[Turn[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for turn in self._turns:
            turn.cancel()
            turn.release()

    async def ask(
        self,
        pool: Pool,
        work: Callable[[Turn[_T]], _T],
        *,
        writes: bool = False,
        held: bool = False,
    ) -> _T:
        """Runs work on a thread, unless the client disconnects first.

        Args:
            pool: The threads.
            work: The work.
            writes: Whether the payer takes the thread in place of the address, as for every append.
            held: Whether the share is kept until the request ends.

        Raises:
            Left: If the client has disconnected.
            TooCostly: If too much work waits.
        """
        payer = payer_of(self.principal, self._client)
        turn = pool.submit(payer if writes else self._client, work, payer=payer, held=held)
        self._turns.append(turn)
        done = asyncio.wrap_future(turn.result)
        left = asyncio.ensure_future(self._left())
        try:
            await asyncio.wait((done, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
        if not done.done():
            done.add_done_callback(_looked_at)
            raise Left
        return done.result()

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


@contextmanager
def _told() -> Iterator[None]:
    """Answers 401 to a client that is refused."""
    try:
        yield
    except Unauthenticated as error:
        why = (b"www-authenticate", b"Bearer")
        raise Refused(HTTPStatus.UNAUTHORIZED, str(error), why, code=error.code) from None


def _refusal(refused: Refused, media_type: str) -> _Answer:
    """Returns the response: a GraphQL response with errors and without data."""
    error = {"message": str(refused), "extensions": {"code": refused.code, "retryable": False}}
    return _Answer(refused.status, msgspec.json.encode({"errors": [error]}), media_type, refused.headers)


def _check_kind(headers: Mapping[str, str]) -> None:
    kind = [part.strip().lower() for part in headers.get("content-type", "").split(";")]
    charsets = [part[8:].strip('"') for part in kind[1:] if part.startswith("charset=")]
    if kind[0] != _JSON or any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send content of type {_JSON}, in UTF-8")


def _looked_at(done: "asyncio.Future[Any]") -> None:
    """Retrieves an error that no caller awaits any more, so that asyncio does not report it."""
    if not done.cancelled():
        done.exception()


def _negotiate(accept: str) -> str | None:
    """Returns the media type that the client prefers among those offered; None if it accepts none.

    A client without preference gets ``application/json``, which every client can read.
    """
    best, chosen = 0.0, None
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        found = kind if kind in _OFFERED else _JSON if kind in ("*/*", "application/*") else None
        weight = _weight(parameters)
        if found is not None and weight > best:
            best, chosen = weight, found
    return chosen


def _takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` header allows gzip."""
    offered = ([part.strip().lower() for part in each.split(";")] for each in accepted.split(","))
    return any(name in ("gzip", "x-gzip", "*") and _weight(rest) > 0 for name, *rest in offered)


def _weight(parameters: Iterable[str]) -> float:
    """Returns the quality of one entry of an ``Accept`` or ``Accept-Encoding`` header (RFC 9110 §12.4.2)."""
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _from_query(found: Mapping[str, str]) -> _Request:
    plain: dict[str, Any] = {name: found[name] for name in _PARAMETERS if name in found}
    for name in ("variables", "extensions"):
        if name in plain:
            try:
                plain[name] = msgspec.json.decode(plain[name])
            except (msgspec.DecodeError, RecursionError):
                raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be a JSON object") from None
    if plain.get("operationName") == "":
        del plain["operationName"]
    return _checked(plain)


def _from_body(body: bytes) -> _Request:
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body must be a JSON object: {error}") from None
    if not isinstance(plain, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON object; batches are not served")
    return _checked(plain)


def _checked(plain: Mapping[str, Any]) -> _Request:
    if not isinstance(plain.get("operationName"), str | None):
        raise Refused(HTTPStatus.BAD_REQUEST, "operationName must be text")
    for name in ("variables", "extensions"):
        if not isinstance(plain.get(name), dict | None):
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be an object")
    query = plain.get("query")
    if not isinstance(query, str) and (query is not None or not is_persisted(plain.get("extensions"))):
        raise Refused(HTTPStatus.BAD_REQUEST, "query must be text: the document")
    return _Request(query, plain.get("operationName"), plain.get("variables"))


@cache
def _read(name: str) -> bytes:
    return resources.files("transports.graphql").joinpath("static", name).read_bytes()


# URLs in the page are relative, so its own path must not end with a slash.
_ELSEWHERE: Final = _Answer(
    HTTPStatus.TEMPORARY_REDIRECT, b"", "text/html; charset=utf-8", ((b"location", b"../graphql"),)
)


def _page() -> _Answer:
    headers = ((b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff"))
    return _Answer(HTTPStatus.OK, _read("index.html"), "text/html; charset=utf-8", headers)


def _static(name: str, accepted: str | None) -> _Answer:
    """Returns a file as it is stored in the package; a compressed one only to clients that accept gzip (RFC 9110 §12.5.3)."""
    found = _STATIC.get(name)
    if found is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"/graphql/{name[:100]} is not served")
    stored, media_type = found
    data = _read(stored)
    headers: tuple[tuple[bytes, bytes], ...] = (
        (b"cache-control", b"max-age=3600"),
        (b"vary", b"accept-encoding"),
    )
    if stored.endswith(".gz"):
        if accepted is not None and not _takes_gzip(accepted):
            raise Refused(
                HTTPStatus.NOT_ACCEPTABLE, "accept the encoding gzip", (b"vary", b"accept-encoding")
            )
        headers += ((b"content-encoding", b"gzip"),)
    return _Answer(HTTPStatus.OK, data, media_type, headers)


async def _write(send: ASGISend, answer: _Answer, *, body: bool) -> None:
    media_type = answer.media_type
    if media_type in (_JSON, _RESPONSE):
        media_type += "; charset=utf-8"
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", b"%d" % len(answer.body)),
        *answer.headers,
    ]
    if not any(name == b"cache-control" for name, _ in headers):
        headers.append((b"cache-control", b"no-store"))
    await respond(send, answer.status, headers, answer.body if body else b"")

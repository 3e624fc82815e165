"""``POST /changes``: one transaction per request, as JSON, as streamed lines of JSON, or as MessagePack.

A page of another origin cannot post here with a form or a simple request: the content types require a preflight (Fetch
standard §3.2), and an ``Origin`` that is not allowed is refused.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from publishers.commits.group_commit import Commit
from publishers.errors import InvalidChange
from publishers.model.position import Position
from publishers.mutations.mutation import columns_of
from publishers.mutations.rows import Mutation
from transports.access.access import Access
from transports.access.principal import Principal
from transports.access.web_origins import WebOrigins
from transports.appends import Appending, Repetitions, cursor_behind, outcome_of
from transports.codec.appends import AppendPayload, AppendRequest, outcome
from transports.codec.changes import read_array, read_lines, read_objects
from transports.errors import InvalidRequest
from transports.http.asgi import ASGISend, Receive, Scope, respond
from transports.http.scope import client_of, credentials_of, headers_of
from transports.limits import Limits
from transports.problems import describe
from transports.quotas.pool import Pools

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from publishers.wal import Columns

__all__ = ["ChangesEndpoint"]

_JSON: Final = "application/json"
_LINES: Final = frozenset({"application/x-ndjson", "application/jsonl", "application/ndjson"})
_PACKED: Final = frozenset({"application/msgpack", "application/vnd.msgpack", "application/x-msgpack"})
_PARAMETERS: Final = ("log", "producer", "sequence", "expect", "wait")
_PIECE: Final = 256 * 1024
_ROWS: Final = 4096
_DRAINED: Final = 4 * 2**20  # bytes of a refused body that are read before the answer
_STATUS: Final = {
    "CURSOR_AHEAD": HTTPStatus.CONFLICT,
    "CURSOR_FOREIGN": HTTPStatus.CONFLICT,
    "CURSOR_FORKED": HTTPStatus.CONFLICT,
    "EXPECTATION_FAILED": HTTPStatus.CONFLICT,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "LOG_DROPPED": HTTPStatus.NOT_FOUND,
    "LOG_FAILED": HTTPStatus.INTERNAL_SERVER_ERROR,
    "LOG_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "LOG_READ_ONLY": HTTPStatus.FORBIDDEN,
    "TOO_MANY_PRODUCERS": HTTPStatus.TOO_MANY_REQUESTS,
    "TRANSACTION_REMOVED": HTTPStatus.CONFLICT,
    "TRANSACTION_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
}


class _Refused(Exception):
    """The request is refused with a status and a text."""

    def __init__(self, status: HTTPStatus, why: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers


class _Left(Exception):
    """The client has disconnected, so there is no response."""


class ChangesEndpoint:
    """The endpoint ``/changes``.

    Args:
        appending: The server's shared state for appends.
        access: Authenticates clients and authorises appends.
        origins: The pages that may send.
        pools: The threads of the server.
        limits: The bounds: ``message_bytes`` for a body that is read as a whole, ``transaction_bytes`` for one that is
            streamed.
    """

    def __init__(
        self, appending: Appending, access: Access, origins: WebOrigins, pools: Pools, limits: Limits
    ) -> None:
        self._appending = appending
        self._access = access
        self._origins = origins
        self._pools = pools
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Answers one HTTP request."""
        headers: list[tuple[bytes, bytes]] = []
        token: Callable[[Position], str] = str
        try:
            request, append = await self._request(scope, receive)
            token = request.token
            commit, cursor = await append
            status = HTTPStatus.OK if commit.duplicate else HTTPStatus.CREATED
            reply = outcome(commit, cursor)
        except _Left:
            return
        except _Refused as refused:
            status, headers = refused.status, list(refused.headers)
            reply = {"error": str(refused), "code": "INVALID_REQUEST", "retryable": False}
        except Exception as error:  # noqa: BLE001 - one request fails, with an id if the error is unexpected, and the server continues
            problem = describe(error, token)
            self._appending.figures.count(problem.code)
            otherwise = HTTPStatus.SERVICE_UNAVAILABLE if problem.retryable else HTTPStatus.BAD_REQUEST
            if problem.code == "TOO_COSTLY" and not problem.retryable:
                otherwise = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            status = _STATUS.get(problem.code, otherwise)
            if status is HTTPStatus.SERVICE_UNAVAILABLE:
                headers.append((b"retry-after", b"1"))
            if status is HTTPStatus.UNAUTHORIZED:
                headers.append((b"www-authenticate", b"Bearer"))
            reply = {"error": problem.message, "code": problem.code, "retryable": problem.retryable}
            reply |= problem.data
        body = msgspec.json.encode(reply) + b"\n"
        headers += [
            (b"content-type", _JSON.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await respond(send, status, headers, body)

    async def _request(
        self, scope: Scope, receive: Receive
    ) -> "tuple[_Request, Coroutine[None, None, tuple[Commit, str | None]]]":
        """Returns the transaction of a request, and the coroutine that writes it."""
        headers = headers_of(scope)
        if scope["method"] != "POST":
            raise _Refused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"use POST, not {scope['method']}", (b"allow", b"POST")
            )
        origin = headers.get("origin", "")
        if origin and not self._origins.welcomes(origin):
            raise _Refused(HTTPStatus.FORBIDDEN, f"origin {origin[:100]} is not allowed; name it in origins")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON and kind not in _LINES | _PACKED:
            raise _Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"send {_JSON}, application/x-ndjson or application/msgpack",
            )
        principal = await self._access.principal(credentials_of(scope))
        scope["penstock.principal"] = principal.name
        asked = _asked(scope.get("query_string", b""))
        declared = headers.get("content-length", "")
        size = int(declared) if declared.isdigit() and len(declared) < 20 else 0
        request = _Request(
            self, principal, client_of(scope), asked, _pieces(receive, self._limits.request_timeout)
        )
        return request, request.lines(size) if kind in _LINES else request.whole(size, packed=kind in _PACKED)


class _Request:
    """One transaction."""

    def __init__(
        self,
        endpoint: ChangesEndpoint,
        principal: Principal,
        client: Any,
        asked: dict[str, Any],
        pieces: AsyncIterator[bytes],
    ) -> None:
        self._appending = endpoint._appending  # noqa: SLF001 - this class is a part of the endpoint
        self._limits = endpoint._limits  # noqa: SLF001 - likewise
        self._pool = endpoint._pools.appending  # noqa: SLF001 - likewise
        self._principal = principal
        self._client = client
        self._asked = asked
        self._pieces = pieces
        self._log: ChangeLog | None = None
        self._taken = 0

    def token(self, position: Position) -> str:
        """Returns the cursor of a position of its log."""
        return str(position if self._log is None else self._log.token(position))

    async def whole(self, size: int, *, packed: bool) -> tuple[Commit, str | None]:
        """Writes a body that is one document."""
        most = self._limits.message_bytes
        taken = 0
        body = bytearray()
        try:
            if size > most:
                await self._refuse("message_bytes", most)
            async for piece in self._pieces:
                self._appending.unanswered.take(len(piece))
                taken += len(piece)
                body += piece
                self._taken = taken
                if taken > most:
                    await self._refuse("message_bytes", most)
            request, changes = await self._pool.run(
                self._client, partial(_packed if packed else _json, bytes(body), self._asked)
            )
            return await self._commit(request, changes)
        finally:
            self._appending.unanswered.give(taken)

    async def lines(self, size: int) -> tuple[Commit, str | None]:
        """Writes a body of lines, which are spooled: nothing is written before all lines have arrived and are valid."""
        most, run = self._limits.transaction_bytes, partial(self._pool.run, self._client)
        request = AppendRequest.of(self._asked)
        log = self._log = self._appending.target(
            self._principal, request.log
        )  # before anything is stored for the log
        taken = 0
        with tempfile.SpooledTemporaryFile(max_size=_PIECE) as spool:
            try:
                if size > most:
                    await self._refuse("transaction_bytes", most)
                async for piece in self._pieces:
                    self._appending.spooled.take_for(self._principal.name, len(piece))
                    taken += len(piece)
                    self._taken = taken
                    if taken > most:
                        await self._refuse("transaction_bytes", most)
                    if taken <= _PIECE:
                        spool.write(piece)
                    else:
                        await run(partial(spool.write, piece))
                if taken <= _PIECE:
                    return await self._commit(request, await run(lambda: list(read_lines(_rewound(spool)))))
                with self._under_way(log):
                    commit = await run(partial(self._stream, log, request, spool))
                return await self._answered(log, request, commit)
            finally:
                self._appending.spooled.give_for(self._principal.name, taken)

    async def _refuse(self, option: str, most: int) -> None:
        """Refuses a body that is too large.

        Reads up to 4 MiB of the rest first, because many clients read no response while they send.

        Raises:
            _Refused: 413.
        """
        left = _DRAINED
        async for piece in self._pieces:
            left -= len(piece)
            if left < 0:
                break
        choice = "" if option == "transaction_bytes" else "; send lines (application/x-ndjson) for more"
        raise _Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body holds at most {most} bytes ({option}){choice}",
            (b"connection", b"close"),
        )

    async def _commit(self, request: AppendRequest, changes: list[Mutation]) -> tuple[Commit, str | None]:
        log = self._log = self._appending.target(self._principal, request.log)
        work = partial(self._appending.submit, log, self._principal, request, changes)
        with self._under_way(log):
            submission = await self._pool.run(self._client, work)
            commit = await asyncio.wrap_future(submission.future(request.wait))
        return await self._answered(log, request, commit)

    @contextlib.contextmanager
    def _under_way(self, log: "ChangeLog") -> Iterator[None]:
        """Measures the writing of a transaction that has arrived; the answer follows at once."""
        figures = self._appending.figures
        came = figures.come()
        try:
            yield
            figures.reached(log, came)
            figures.replied(log, came)
        finally:
            figures.gone()

    async def _answered(
        self, log: "ChangeLog", request: AppendRequest, commit: Commit
    ) -> tuple[Commit, str | None]:
        self._appending.figures.count(outcome_of(commit), 0 if commit.duplicate else self._taken)
        if commit.duplicate and not commit.version:
            find = partial(Repetitions().version, log, self._principal, request)
            commit = commit._replace(version=await self._pool.run(self._client, find))
        return commit, cursor_behind(log, commit)

    def _stream(self, log: "ChangeLog", request: AppendRequest, spool: IO[bytes]) -> Commit:
        mutations = read_lines(_rewound(spool))
        return self._appending.commit_columns(log, self._principal, request, _batches(mutations))


def _batches(mutations: Iterator[Mutation]) -> "Iterator[Columns]":
    while rows := list(islice(mutations, _ROWS)):
        yield columns_of(rows, keyed=True)


def _rewound(spool: IO[bytes]) -> IO[bytes]:
    spool.seek(0)
    return spool


async def _pieces(receive: Receive, patience: float) -> AsyncIterator[bytes]:
    """Yields the pieces of the body.

    Raises:
        _Refused: If the next piece does not arrive in time.
        _Left: If the client disconnects before the end.
    """
    while True:
        try:
            async with asyncio.timeout(patience):
                message = await receive()
        except TimeoutError:
            waited = f"nothing of the body came within {patience:g} s"
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, waited, (b"connection", b"close")) from None
        if message["type"] == "http.disconnect":
            raise _Left
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


def _asked(query: bytes) -> dict[str, Any]:
    """Parses the query string.

    Raises:
        InvalidRequest: If a parameter is unknown or repeated.
    """
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in _PARAMETERS:
            raise InvalidRequest("parameter", name, "one of: " + ", ".join(_PARAMETERS))
        if name in found:
            raise InvalidRequest(name, value, "given once")
        number = name == "sequence" and value.isascii() and value.isdigit() and len(value) < 20
        found[name] = int(value) if number else value
    return found


def _request_of(fields: Mapping[str, Any], asked: Mapping[str, Any]) -> AppendRequest:
    """Merges the fields of a transaction in its body and in the query string."""
    given = {name: value for name, value in fields.items() if value is not None}
    for name in asked:
        if name in given:
            raise InvalidRequest(name, asked[name], "given once, in the body or in the address")
    return AppendRequest.of({**given, **asked})


_payload: Final = msgspec.json.Decoder(AppendPayload)


def _json(body: bytes, asked: Mapping[str, Any]) -> tuple[AppendRequest, list[Mutation]]:
    try:
        payload = _payload.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidChange("the body", body[:100], f'JSON such as {{"changes": [...]}} ({error})') from None
    return _request_of(payload.fields(), asked), read_array(payload.changes)


def _packed(body: bytes, asked: Mapping[str, Any]) -> tuple[AppendRequest, list[Mutation]]:
    try:
        document = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidChange("the body", body[:40], f"MessagePack ({error})") from None
    changes = document.pop("changes", None) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(changes, list):
        raise InvalidChange("changes", changes, "an array of changes in a map")
    return _request_of(document, asked), read_objects(changes)

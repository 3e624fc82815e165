"""``POST /changes``: one transaction per request, as JSON, as streamed lines of JSON, or as MessagePack.

A page of another origin cannot post here with a form or a simple request, because the content types require a preflight (Fetch
standard §3.2). Nothing of a body is kept for a client that may not append.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from publishers.commits.group_commit import Commit
from publishers.errors import InvalidChange, PenstockError, TransactionTooLarge
from publishers.model.position import Position
from publishers.mutations.rows import Mutation
from transports.access.access import Access
from transports.access.principal import Principal
from transports.appends import Appending, Repetitions, batches, cursor_behind, outcome_of
from transports.codec.appends import AppendPayload, AppendRequest, outcome
from transports.codec.changes import read_array, read_lines, read_objects
from transports.errors import InvalidRequest
from transports.http.asgi import ASGISend, Receive, Scope, respond
from transports.http.bodies import Bodies, Left, Refused
from transports.http.caller import Caller
from transports.http.scope import headers_of
from transports.problems import describe
from transports.quotas.charged_file import ChargedFile
from transports.quotas.pool import Pools
from transports.quotas.shared_bytes import Charge

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ChangesEndpoint"]

_T = TypeVar("_T")
_JSON: Final = "application/json"
_LINES: Final = frozenset({"application/x-ndjson", "application/jsonl", "application/ndjson"})
_PACKED: Final = frozenset({"application/msgpack", "application/vnd.msgpack", "application/x-msgpack"})
_AROUND: Final = 64 * 1024  # bytes of a line around what is stored of its change
_PARAMETERS: Final = ("log", "producer", "sequence", "expect", "wait")
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
    "PRODUCER_CONFLICT": HTTPStatus.CONFLICT,
    "TOO_MANY_PRODUCERS": HTTPStatus.TOO_MANY_REQUESTS,
    "TRANSACTION_REMOVED": HTTPStatus.CONFLICT,
    "TRANSACTION_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
}


class ChangesEndpoint:
    """The endpoint ``/changes``.

    Args:
        appending: The server's shared state for appends.
        access: Authenticates clients and authorises appends.
        bodies: Reads bodies.
        pools: The threads of the server.
        most: Option ``transaction_bytes``, for a body of lines.
    """

    def __init__(self, appending: Appending, access: Access, bodies: Bodies, pools: Pools, most: int) -> None:
        self._appending = appending
        self._access = access
        self._bodies = bodies
        self._pools = pools
        self._most = most

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
        except Left:
            return
        except Refused as refused:
            status, headers = refused.status, list(refused.headers)
            reply = {"error": str(refused), "code": refused.code, "retryable": False}
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
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"use POST, not {scope['method']}", (b"allow", b"POST")
            )
        caller = await Caller.of(self._access, scope)
        asked = _asked(scope.get("query_string", b""))
        run = partial(self._pools.appending.run, caller.payer, payer=caller.payer)
        await self._appending.check(caller.principal, asked.get("log"), run)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON and kind not in _LINES | _PACKED:
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"send {_JSON}, application/x-ndjson or application/msgpack",
            )
        request = _Request(self, caller, asked, headers, receive)
        return request, request.lines() if kind in _LINES else request.whole(packed=kind in _PACKED)


class _Request:
    """One transaction."""

    def __init__(
        self,
        endpoint: ChangesEndpoint,
        caller: Caller,
        asked: dict[str, Any],
        headers: Mapping[str, str],
        receive: Receive,
    ) -> None:
        self._appending = endpoint._appending  # noqa: SLF001 - this class is a part of the endpoint
        self._bodies = endpoint._bodies  # noqa: SLF001 - likewise
        self._most = endpoint._most  # noqa: SLF001 - likewise
        self._pool = endpoint._pools.appending  # noqa: SLF001 - likewise
        self._caller = caller
        self._asked = asked
        self._headers = headers
        self._receive = receive
        self._log: ChangeLog | None = None
        self._taken = 0

    def token(self, position: Position) -> str:
        """Returns the cursor of a position of its log."""
        return str(position if self._log is None else self._log.token(position))

    async def whole(self, *, packed: bool) -> tuple[Commit, str | None]:
        """Writes a body that is one document."""
        with Charge(self._appending.unanswered, self._caller.payer) as charge:
            more = "; send lines (application/x-ndjson) for more"
            body = await self._bodies.whole(self._headers, self._receive, charge, otherwise=more)
            self._taken = len(body)
            parse = partial(_packed if packed else _json, body, self._asked)
            request, changes = await self._run(parse)
            return await self._commit(request, changes)

    async def lines(self) -> tuple[Commit, str | None]:
        """Writes a body of lines, which are spooled: nothing is written before all lines have arrived and are valid."""
        request = AppendRequest.of(self._asked)
        log = self._log = self._appending.target(self._caller.principal, request.log)
        spool = ChargedFile(self._caller.payer, self._appending.spooled, self._appending.memory)
        try:
            async for piece in self._bodies.pieces(
                self._headers, self._receive, self._most, "transaction_bytes"
            ):
                spool.charge(len(piece))
                if spool.small:
                    spool.write(piece)
                else:
                    await self._run(partial(spool.write, piece))
            self._taken = spool.nbytes
            if spool.small:
                return await self._commit(
                    request, await self._run(lambda: list(read_lines(_lines(spool.file, log))))
                )
            principal = await self._caller.still()
            self._appending.target(principal, request.log)
            with self._under_way(log):
                commit = await self._run(partial(self._stream, log, principal, request, spool.file))
            return await self._answered(log, request, commit)
        finally:
            await self._discard(spool)

    async def _run(self, work: Callable[[], _T]) -> _T:
        payer = self._caller.payer
        return await self._pool.run(payer, work, payer=payer)

    async def _discard(self, spool: ChargedFile) -> None:
        """Deletes a spool; that of a file on a thread, because it may wait for the disk."""
        try:
            if not spool.small:
                with contextlib.suppress(PenstockError):  # the pool is closed, or too much waits
                    await self._run(spool.close)
        finally:
            spool.close()

    async def _commit(self, request: AppendRequest, changes: list[Mutation]) -> tuple[Commit, str | None]:
        principal = await self._caller.still()
        log = self._log = self._appending.target(principal, request.log)
        work = partial(self._appending.submit, log, principal, request, changes)
        with self._under_way(log):
            submission = await self._run(work)
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
            find = partial(Repetitions().version, log, self._caller.principal, request)
            commit = commit._replace(version=await self._run(find))
        return commit, cursor_behind(log, commit)

    def _stream(
        self, log: "ChangeLog", principal: Principal, request: AppendRequest, spool: IO[bytes]
    ) -> Commit:
        found = batches(read_lines(_lines(spool, log)))
        return self._appending.commit_columns(log, principal, request, found)


def _lines(spool: IO[bytes], log: "ChangeLog") -> Iterator[bytes]:
    """Iterates the lines, of which none is kept that holds more than the largest change.

    Raises:
        TransactionTooLarge: At a longer line.
    """
    most = log.options.max_change_bytes
    spool.seek(0)
    while line := spool.readline(most + _AROUND):
        if len(line) == most + _AROUND:
            raise TransactionTooLarge("max_change_bytes", len(line), most)
        yield line


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

"""What a server tells of itself by HTTP GET: ``/health``, ``/statistics`` and ``/schemas``."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from publishers.errors import PenstockError
from publishers.store.roster import SYSTEM
from transports.codec.schemas import SchemaQuestion, schema_json
from transports.errors import InvalidRequest, describe
from transports.policy import Caller, Policy, check_schemas, find_log, welcomes
from transports.pool import Pools
from transports.statistics import statistics

if TYPE_CHECKING:
    from publishers.changelog import ChangeLog

__all__ = ["Fact", "Facts"]

_AGE: Final = 0.2  # seconds for which statistics are given again, however many ask
_STATUS: Final = {
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "GOING_AWAY": HTTPStatus.SERVICE_UNAVAILABLE,
    "TOO_COSTLY": HTTPStatus.SERVICE_UNAVAILABLE,  # too many others ask
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "LOG_CLOSED": HTTPStatus.SERVICE_UNAVAILABLE,
    "LOG_DROPPED": HTTPStatus.NOT_FOUND,
    "LOG_GONE": HTTPStatus.SERVICE_UNAVAILABLE,
    "LOG_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "LOG_REPLACED": HTTPStatus.SERVICE_UNAVAILABLE,
}


class Fact(NamedTuple):
    """An answer: its status, and what is told."""

    status: HTTPStatus
    content: Any


class Facts:
    """Answers what is asked of one server; on its event loop.

    Args:
        logs: The logs of the server, by name.
        policy: What callers may see; None for everything.
        server: Name and version.
        connections: Tells how many connections there are.
        loads: Tells of each connection how many bytes wait for its client, and what its criteria weigh.
        costs: Tells what clients cost, by name.
        pools: Threads for what reads the disk.
    """

    public: Final = frozenset({"/health"})
    """What is told without a token."""
    paths: Final = frozenset({"/health", "/schemas", "/statistics"})

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        policy: Policy | None,
        *,
        server: str,
        connections: Callable[[], int],
        loads: Callable[[], Awaitable[Collection[tuple[int, int]]]],
        costs: Callable[[], Mapping[str, Any]],
        pools: Pools,
    ) -> None:
        self._logs = logs
        self._policy = policy
        self._server = server
        self._connections = connections
        self._loads = loads
        self._costs = costs
        self._statistics: Mapping[str, Any] = {}
        self._statistics_until = 0.0
        self._gathering = asyncio.Lock()
        self._pools = pools

    async def tell(
        self, path: str, query: bytes, token: str | None, client: Hashable, *, judged: bool = True
    ) -> Fact:
        """The answer to one request for one of ``paths``.

        Args:
            path: The path.
            query: What follows the question mark.
            token: What the caller gave as its token, judged already.
            client: Whose share of the threads it takes.
            judged: Whether the caller is let in; who is not is told by ``/health`` whether all is well, and nothing else.
        """
        match path:
            case "/health":
                return self._health(token, welcome=judged)
            case "/statistics":
                return await self._told(token)
            case _:
                return await self._schemas(query, token, client)

    async def _told(self, token: str | None) -> Fact:
        """The statistics of the logs that a caller may know of."""
        try:
            told = await self._gathered()
        except PenstockError as error:
            problem = describe(error)
            return Fact(
                _STATUS.get(problem.code, HTTPStatus.SERVICE_UNAVAILABLE), _refusal(problem.payload())
            )
        logs = {
            name: log for name, log in told["logs"].items() if welcomes(self._policy, Caller(name, token))
        }
        return Fact(HTTPStatus.OK, {**told, "logs": logs})

    async def _gathered(self) -> Mapping[str, Any]:
        """The statistics of all, gathered on a thread, at most a few times a second, and once for all who ask meanwhile."""
        async with self._gathering:
            loop = asyncio.get_running_loop()
            if loop.time() < self._statistics_until:
                return self._statistics
            loads = await self._loads()
            unsent = [waiting for waiting, _ in loads]
            told: dict[str, Any] = {
                "connections": len(loads),
                "unsentBytes": sum(unsent),
                "mostUnsentBytes": max(unsent, default=0),
                "mostConnectionWeight": max((weight for _, weight in loads), default=0),
            }
            found = await self._pools.telling.run(
                None, partial(_encoded, self._logs, discreet=self._policy is not None)
            )
            self._statistics = told | dict(self._costs()) | {"logs": found}
            self._statistics_until = loop.time() + _AGE
            return self._statistics

    def _health(self, token: str | None, *, welcome: bool) -> Fact:
        """``ok`` if every log is served, ``degraded`` if some are, ``failed`` with status 503 if none is."""
        found = tuple(self._logs.items())  # one may be added meanwhile
        lost = [name for name, log in found if log.failure is not None]
        system = self._logs.get(SYSTEM)
        if system is not None and system.failure is not None:
            lost.append(SYSTEM)
        status = "ok" if not lost else "degraded" if len(lost) < len(found) else "failed"
        told: dict[str, Any] = {"status": status}
        if welcome:
            told |= {
                "server": self._server,
                "connections": self._connections(),
                "logs": {
                    name: _state(log) for name, log in found if welcomes(self._policy, Caller(name, token))
                },
            }
        return Fact(HTTPStatus.SERVICE_UNAVAILABLE if status == "failed" else HTTPStatus.OK, told)

    async def _schemas(self, query: bytes, token: str | None, client: Hashable) -> Fact:
        """A schema, or without ``entity_type`` which there are."""
        try:
            asked = _asked(query)
            name, log = find_log(self._logs, asked.get("log"), self._policy, token)
            check_schemas(self._policy, Caller(name, token))
            if "entity_type" not in asked:
                return Fact(
                    HTTPStatus.OK,
                    {"log": name, "schemas": await self._pools.scanning.run(client, log.schemas)},
                )
            question = SchemaQuestion.of(asked)
            found = await self._pools.scanning.run(
                client, partial(log.schema, question.entity_type, question.version)
            )
        except PenstockError as error:
            problem = describe(error)
            return Fact(_STATUS.get(problem.code, HTTPStatus.BAD_REQUEST), _refusal(problem.payload()))
        answer = schema_json(name, found, log.token)
        if answer is None:
            which = "" if question.version is None else f" of version {question.version}"
            return Fact(
                HTTPStatus.NOT_FOUND, {"error": f"no schema{which} of {question.entity_type!r} was told"}
            )
        return Fact(HTTPStatus.OK, answer)


def _state(log: "ChangeLog") -> dict[str, Any]:
    """Where a log is, or the name of the error with which it ended: the rest of that is not for everybody."""
    if log.failure is not None:
        return {"failure": type(log.failure).__name__}
    return {"epoch": log.epoch, "oldest": str(log.token(log.oldest)), "head": str(log.token(log.head))}


def _encoded(logs: "Mapping[str, ChangeLog]", *, discreet: bool) -> dict[str, msgspec.Raw]:
    """The statistics of each log as they travel."""
    told = statistics(logs, discreet=discreet)["logs"]
    return {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in told.items()}


def _asked(query: bytes) -> dict[str, Any]:
    """The parameters of a question about schemas.

    Raises:
        InvalidRequest: If there are others, or one is there twice, or is no number and should be.
    """
    names = ("log", "entity_type", "version")
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in names:
            raise InvalidRequest("parameter", name, "one of: " + ", ".join(names))
        if name in found:
            raise InvalidRequest(name, value, "given once")
        found[name] = value
    version = found.get("version")
    if version is not None and version.isascii() and version.isdigit() and len(version) < 20:
        found["version"] = int(version)
    return found


def _refusal(problem: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "error": problem["message"],
        **{name: told for name, told in problem.items() if name != "message"},
    }

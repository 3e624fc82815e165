"""What a server tells of itself by HTTP GET: ``/health``, ``/statistics`` and ``/schemas``."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from publishers.errors import PenstockError
from transports.codec.schemas import SchemaQuestion, schema_json
from transports.errors import InvalidRequest, describe
from transports.policy import Caller, Policy, check_schemas, find_log, welcomes
from transports.statistics import statistics

if TYPE_CHECKING:
    from publishers.changelog import ChangeLog

__all__ = ["Fact", "Facts"]

_AGE: Final = 0.2  # seconds for which statistics are given again, however many ask
_LOOK_UPS: Final = 4  # at a time, so that they leave threads to others
_STATUS: Final = {
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "LOG_CLOSED": HTTPStatus.SERVICE_UNAVAILABLE,
    "LOG_DROPPED": HTTPStatus.NOT_FOUND,
    "LOG_NOT_FOUND": HTTPStatus.NOT_FOUND,
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
        unsent: Tells of each connection how many bytes wait for its client.
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
        unsent: Callable[[], Collection[int]],
    ) -> None:
        self._logs = logs
        self._policy = policy
        self._server = server
        self._unsent = unsent
        self._statistics: Mapping[str, Any] = {}
        self._statistics_until = 0.0
        self._asking = asyncio.Semaphore(_LOOK_UPS)

    async def tell(self, path: str, query: bytes, token: str | None) -> Fact:
        """The answer to one request for one of ``paths``.

        Args:
            path: The path.
            query: What follows the question mark.
            token: What the caller gave as its token, judged already.
        """
        match path:
            case "/health":
                return Fact(HTTPStatus.OK, self._health())
            case "/statistics":
                return Fact(HTTPStatus.OK, self._told(token))
            case _:
                return await self._schemas(query, token)

    def _told(self, token: str | None) -> Mapping[str, Any]:
        """The statistics of the logs that a caller may know of."""
        told = self._gathered()
        logs = {
            name: log for name, log in told["logs"].items() if welcomes(self._policy, Caller(name, token))
        }
        return {**told, "logs": logs}

    def _gathered(self) -> Mapping[str, Any]:
        """The statistics of all, gathered at most a few times a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._statistics_until:
            unsent = self._unsent()
            told = {
                "connections": len(unsent),
                "unsentBytes": sum(unsent),
                "mostUnsentBytes": max(unsent, default=0),
            }
            self._statistics = told | statistics(self._logs, discreet=self._policy is not None)
            self._statistics_until = now + _AGE
        return self._statistics

    def _health(self) -> dict[str, Any]:
        logs = {
            name: {"epoch": log.epoch, "oldest": str(log.token(log.oldest)), "head": str(log.token(log.head))}
            for name, log in tuple(self._logs.items())  # one may be added meanwhile
        }
        return {"status": "ok", "server": self._server, "connections": len(self._unsent()), "logs": logs}

    async def _schemas(self, query: bytes, token: str | None) -> Fact:
        """A schema, or without ``entity_type`` which there are."""
        try:
            asked = _asked(query)
            name, log = find_log(self._logs, asked.get("log"))
            check_schemas(self._policy, Caller(name, token))
            if "entity_type" not in asked:
                async with self._asking:
                    return Fact(HTTPStatus.OK, {"log": name, "schemas": await asyncio.to_thread(log.schemas)})
            question = SchemaQuestion.of(asked)
            async with self._asking:
                found = await asyncio.to_thread(log.schema, question.entity_type, question.version)
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

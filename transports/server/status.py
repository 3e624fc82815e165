"""The status pages of a server, by HTTP GET: ``/health``, ``/ready``, ``/metrics``, ``/statistics`` and ``/schemas``."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from publishers.errors import PenstockError
from publishers.log.health import HealthStatus, LogHealth
from publishers.store.log_entries import SYSTEM
from transports.access.access import SERVER, Access
from transports.access.grant import Grant, LogAction, schemas_for
from transports.access.principal import Principal
from transports.appends import payer_of
from transports.codec.fields import convert
from transports.codec.figures import place_json
from transports.errors import ExtraMissing, GoingAway, InvalidRequest, Unauthenticated
from transports.operations.operation import Target
from transports.operations.schemas import SchemaLookup
from transports.problems import describe
from transports.quotas.pool import Pools
from transports.server.logs import FollowedName, StoreLogs
from transports.server.statistics import statistics
from transports.telemetry.latency import Latencies
from transports.telemetry.prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["Status", "StatusAnswer"]

_AGE: Final = 0.2  # seconds for which statistics are cached, however many clients ask
_DIRECTORIES: Final = re.compile(r"(?:/[^/'\":;]*)+/")  # the directories of a path in an error text
_ENDS: Final = (
    "status",
    "epoch",
    "oldest",
    "head",
)  # of a log; the time of the last commit is left out because it may reveal hidden changes
_IDLE: Final = frozenset({"PAUSED", "OFF", "LOST", "STOPPED"})  # sink states in which nothing is carried
_STATUS: Final = {
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "GOING_AWAY": HTTPStatus.SERVICE_UNAVAILABLE,
    "TOO_COSTLY": HTTPStatus.SERVICE_UNAVAILABLE,  # too many requests of other clients are in progress
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "LOG_CLOSED": HTTPStatus.SERVICE_UNAVAILABLE,
    "LOG_DROPPED": HTTPStatus.NOT_FOUND,
    "LOG_GONE": HTTPStatus.SERVICE_UNAVAILABLE,
    "LOG_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "LOG_REPLACED": HTTPStatus.SERVICE_UNAVAILABLE,
}


class StatusAnswer(NamedTuple):
    """The response of a status page.

    Attributes:
        status: The HTTP status.
        content: The body: bytes are sent as they are, everything else as JSON.
        kind: The ``Content-Type``.
    """

    status: HTTPStatus
    content: Any
    kind: str = "application/json"


_T = TypeVar("_T")


class _Recent(Generic[_T]):
    """Caches a result for a moment; concurrent callers share one computation.

    Args:
        find: Computes the result.
    """

    def __init__(self, find: Callable[[], Awaitable[_T]]) -> None:
        self._find = find
        self._found: _T | None = None
        self._until = -math.inf
        self._finding = asyncio.Lock()

    async def get(self) -> _T:
        """Returns the cached result, or computes it."""
        async with self._finding:
            loop = asyncio.get_running_loop()
            if self._found is None or loop.time() >= self._until:
                self._found = await self._find()
                self._until = loop.time() + _AGE
            return self._found


class _Gathered(NamedTuple):
    """The statistics of a server.

    Attributes:
        encoded: The statistics for the wire, each log already encoded.
        figures: The same for the metrics table, with the ``/health`` status of each log.
        texts: The metrics text by the set of logs that a principal may operate and whether it may operate the server; filled
            on demand.
    """

    encoded: Mapping[str, Any]
    figures: Mapping[str, Any]
    texts: dict[tuple[frozenset[str], bool], bytes]


class Status:
    """Answers the status requests of one server, on its event loop.

    Args:
        logs: The logs of the server, by name.
        access: What each principal may do.
        server: Name and version.
        connections: Returns the number of connections.
        loads: Returns the unsent bytes and the weight of the criteria of each connection.
        costs: Returns the figures of what clients cost, by name.
        pools: The threads for disk reads.
        latencies: How long changes take until they are sent, and appends until they are answered, by name.
        errors: Counts the errors sent to clients, by code.
        draining: Whether the server refuses new connections because it is about to stop.
        sinks: Returns the sinks that run in this process, by log name and sink name; called on a thread.
        commit_age: The longest time since the newest commit of each log with which the server is healthy, in seconds.
    """

    paths: Final = frozenset({"/health", "/metrics", "/ready", "/schemas", "/statistics"})

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        *,
        server: str,
        connections: Callable[[], int],
        loads: Callable[[], Awaitable[Collection[tuple[int, int]]]],
        costs: Callable[[], Mapping[str, Any]],
        pools: Pools,
        latencies: Mapping[str, Latencies],
        errors: Counter[str],
        draining: Callable[[], bool] = lambda: False,
        sinks: Callable[[], Mapping[str, Mapping[str, Any]]] = dict,
        commit_age: float = math.inf,
    ) -> None:
        self._logs = logs
        self._access = access
        self._server = server
        self._connections = connections
        self._loads = loads
        self._costs = costs
        self._pools = pools
        self._latencies = latencies
        self._errors = errors
        self._draining = draining
        self._sinks = sinks
        self._commit_age = commit_age
        self._statistics = _Recent(self._gather)
        self._healths = _Recent(self._look)
        self._known: dict[tuple[str, Principal, LogAction], Grant | None] = {}
        self._known_until = -math.inf

    async def answer(
        self, path: str, query: bytes, principal: Principal | None, client: Hashable
    ) -> StatusAnswer:
        """Answers a request for one of ``paths``.

        Args:
            path: The path.
            query: The query string.
            principal: The principal of the client; None if it was refused. Then ``/health`` and ``/ready`` still answer,
                with the status alone.
            client: The client to which the pools charge the threads.
        """
        try:
            match path:
                case "/health" | "/ready":
                    return await self._sound(principal, ready=path == "/ready")
                case _ if principal is None:
                    raise Unauthenticated
                case "/statistics":
                    return await self._statistics_answer(principal)
                case "/metrics":
                    return await self._metrics(principal)
                case _:
                    return await self._schemas(query, principal, client)
        except ExtraMissing as error:
            return StatusAnswer(HTTPStatus.NOT_IMPLEMENTED, {"error": str(error)})
        except PenstockError as error:
            problem = describe(error)
            self._errors[problem.code] += 1
            missing = HTTPStatus.BAD_REQUEST if path == "/schemas" else HTTPStatus.SERVICE_UNAVAILABLE
            return StatusAnswer(_STATUS.get(problem.code, missing), _refusal(problem.payload()))

    def _allows(self, principal: Principal, name: str, action: LogAction) -> Grant | None:
        """Returns the grant of a principal for an action; cached for ``_AGE`` seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._known_until:
            self._known.clear()
            self._known_until = now + _AGE
        asked = (name, principal, action)
        if asked not in self._known:
            self._known[asked] = self._access.allows(principal, name, action)
        return self._known[asked]

    async def _statistics_answer(self, principal: Principal) -> StatusAnswer:
        """Returns the statistics of the logs that a principal may operate, and only the ends of those that it may read."""
        statistics = (await self._statistics.get()).encoded
        logs: dict[str, Any] = {}
        for name, log in statistics["logs"].items():
            operates = self._allows(principal, name, LogAction.OPERATE)
            if operates is not None and operates.criteria is None:
                logs[name] = log
            elif self._allows(principal, name, LogAction.READ) is not None and name in self._logs:
                logs[name] = _ends(self._logs[name])
        whole = statistics if self._allows(principal, SERVER, LogAction.OPERATE) is not None else {}
        return StatusAnswer(HTTPStatus.OK, {**whole, "logs": logs})

    async def _metrics(self, principal: Principal) -> StatusAnswer:
        """Returns the metrics of the logs that a principal may operate, and of the server if it may operate that."""
        found = await self._statistics.get()
        seen = {
            name: log
            for name, log in found.figures["logs"].items()
            if (operates := self._allows(principal, name, LogAction.OPERATE)) is not None
            and operates.criteria is None  # figures cannot be narrowed to the criteria of a grant
        }
        whole = self._allows(principal, SERVER, LogAction.OPERATE) is not None
        key = frozenset(seen), whole
        text = found.texts.get(key)
        if text is None:
            make = partial(exposition, {**(found.figures if whole else {}), "logs": seen})
            # On a thread, because a store may have many logs.
            text = await self._pools.gathering.run(None, make)
            found.texts[key] = text
        return StatusAnswer(HTTPStatus.OK, text, CONTENT_TYPE)

    async def figures(self) -> Mapping[str, Any]:
        """The statistics of all logs, in the form that the metrics table reads."""
        return (await self._statistics.get()).figures

    async def _gather(self) -> _Gathered:
        """Gathers the statistics of all logs on a thread."""
        loads = await self._loads()
        unsent = [waiting for waiting, _ in loads]
        found_statistics: dict[str, Any] = {
            "connections": len(loads),
            "unsentBytes": sum(unsent),
            "mostUnsentBytes": max(unsent, default=0),
            "mostConnectionWeight": max((weight for _, weight in loads), default=0),
        }
        found_statistics |= self._costs()
        gather = partial(
            statistics,
            self._logs,
            discreet=not self._access.uniform,
            latencies=self._latencies,
            sinks=self._sinks,
        )
        found: dict[str, dict[str, Any]] = (await self._pools.gathering.run(None, gather))["logs"]
        _, healths = await self._healths.get()
        figures = {
            name: found.get(name, {})
            | {
                "sound": health["status"] == HealthStatus.OK.value,
                "commitAge": health.get("commitAge"),
                "commitAgeLimit": None if math.isinf(self._commit_age) else self._commit_age,
                "writerAlive": health.get("writer", {}).get("alive"),
            }
            for name, health in healths.items()
        }
        return _Gathered(
            found_statistics | {"logs": await self._pools.gathering.run(None, partial(_encoded, found))},
            found_statistics | {"logs": found | figures},
            {},
        )

    async def _look(self) -> "tuple[str, dict[str, dict[str, Any]]]":
        """Returns the overall status and the status of each log, gathered on a thread."""
        return await self._pools.gathering.run(
            None, partial(_healths, self._logs, self._sinks, self._commit_age)
        )

    async def _sound(self, principal: Principal | None, *, ready: bool) -> StatusAnswer:
        """Answers ``/health`` or ``/ready``.

        The status is ``ok`` if every log is sound, ``degraded`` if some are, ``failed`` if none is; ``draining`` before the
        end.

        A healthy server is ``ok``. A ready server need only serve some of its logs: a load balancer that removed it for one
        failed log would cut off the readers of the others.
        """
        try:
            status, logs = ("draining", {}) if self._draining() and ready else await self._healths.get()
        except GoingAway:
            status, logs = "stopping", {}
        answer: dict[str, Any] = {"status": status}
        if principal is not None:
            answer["server"] = self._server
            if self._allows(principal, SERVER, LogAction.OPERATE) is not None:
                answer["connections"] = self._connections()
            answer["logs"] = {
                name: log if grant.criteria is None else {key: log[key] for key in _ENDS if key in log}
                for name, log in logs.items()
                if (grant := self._allows(principal, name, LogAction.READ)) is not None
            }
        good = status == "ok" or (ready and status == "degraded")
        return StatusAnswer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, answer)

    async def _schemas(self, query: bytes, principal: Principal, client: Hashable) -> StatusAnswer:
        """Returns one schema, or the list of schemas if the query has no ``entity_type``."""
        asked = _asked(query)
        name, log, grant = self._access.find(self._logs, asked.get("log"), principal)
        run = partial(self._pools.scanning.run, client, payer=payer_of(principal, client))
        if "entity_type" not in asked:
            return StatusAnswer(
                HTTPStatus.OK,
                {
                    "log": name,
                    "schemas": await run(partial(schemas_for, grant, log)),
                },
            )
        question = convert(SchemaLookup, asked)
        answer = await run(partial(question.run, Target(name, log, grant)))
        if answer is None:
            which = "" if question.version is None else f" of version {question.version}"
            return StatusAnswer(
                HTTPStatus.NOT_FOUND, {"error": f"no schema{which} of {question.entity_type!r} is registered"}
            )
        return StatusAnswer(HTTPStatus.OK, answer)


def _healths(
    logs: "Mapping[str, ChangeLog]",
    sinks: Callable[[], Mapping[str, Mapping[str, Any]]],
    commit_age: float,
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Returns the overall status and the status of each log; for a store also of the logs that could not be opened.

    An idle sink, and a log that is late with its next commit, make the server ``degraded`` but leave the status of the log alone.
    """
    report: dict[str, dict[str, Any]] = {}
    for name, log in tuple(logs.items()):  # a log may be added meanwhile
        health = log.health()
        report[name] = _wrong(health)
        if log.failure is None and not log.closed:
            report[name] |= _places(log, health)
            if health.commit_age is not None and health.commit_age > commit_age:
                report[name]["late"] = True
    refused = logs.refused() if isinstance(logs, StoreLogs | FollowedName) else {}
    report |= {name: _wrong(LogHealth.of(why)) for name, why in refused.items()}
    lost = sum(one["status"] != HealthStatus.OK.value for one in report.values())
    system = logs.get(SYSTEM)  # the system log is not listed
    lost += system is not None and system.health().status is not HealthStatus.OK
    idle = any("late" in one for one in report.values())
    for name, found in sinks().items():
        states = {sink: one["state"] for sink, one in found.items()}
        idle |= not _IDLE.isdisjoint(states.values())
        if name in report:
            report[name]["sinks"] = states
    return "ok" if not lost and not idle else "degraded" if lost < len(
        report
    ) or not lost else "failed", report


def _wrong(health: LogHealth) -> dict[str, Any]:
    """The status of a log. The text of its failure omits the directories of the server."""
    answer: dict[str, Any] = {"status": health.status.value}
    if health.why is not None:
        answer |= {"failure": type(health.why).__name__, "why": _DIRECTORIES.sub("", str(health.why))}
    return answer


def _places(log: "ChangeLog", health: LogHealth) -> dict[str, Any]:
    """The ends of an open log and its writer."""
    alive, pid = health.writer
    return {
        "epoch": log.epoch,
        "oldest": str(log.token(log.oldest)),
        "head": str(log.token(log.head)),
        "commitAge": None if health.commit_age is None else round(health.commit_age, 3),
        "writer": {"alive": alive, "pid": pid},
    }


def _ends(log: "ChangeLog") -> dict[str, Any]:
    """The ends of a log, for principals that may only read it."""
    try:
        return {"epoch": log.epoch, "oldest": place_json(log, log.oldest), "head": place_json(log, log.head)}
    except PenstockError as error:
        return {"failure": type(error).__name__}


def _encoded(logs: Mapping[str, Mapping[str, Any]]) -> dict[str, msgspec.Raw]:
    """Encodes the statistics of each log for the wire."""
    return {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in logs.items()}


def _asked(query: bytes) -> dict[str, Any]:
    """Parses the query string of a schema request.

    Raises:
        InvalidRequest: If a parameter is unknown or repeated.
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
        **{name: value for name, value in problem.items() if name != "message"},
    }

"""Operations: prepared requests, and the payloads of events, shared by all clients with the same operation.

The bytes of a payload are cached in the memo of the event's block, under a key of everything that can change them.
Operations with the same key share them, and they go with the block. A projection, derived from one trial execution, splices
them. Where a projection is not possible, graphql-core's public functions execute the event, with a new executor each time:
an executor that lives as long as a subscription keeps a memo that grows with every event.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from graphql import (
    ExecutionResult,
    GraphQLSchema,
    create_source_event_stream,
    execute_subscription_event,
    execute_sync,
)
from graphql.execution import Executor

from publishers.blocks.block import Block, Shelf
from publishers.blocks.slices import Slice
from publishers.criteria.cost import Cost, weigh
from publishers.errors import TooCostly
from publishers.groups import GroupDelivery
from publishers.model.change import Change
from publishers.views.view import View
from transports.access.access import Access
from transports.access.principal import ANONYMOUS, Principal
from transports.appends import Appending
from transports.graphql.context import Context
from transports.graphql.cost import beyond, check_variables
from transports.graphql.documents import Document, Documents
from transports.graphql.errors import RequestRefused, formatted, not_persisted, resolver_error
from transports.graphql.groups import GivenDelivery
from transports.graphql.openings import NOTHING_OPEN, Openings
from transports.graphql.probe import SelectionProbe
from transports.graphql.projection import PayloadProjection
from transports.graphql.schema import make_schema
from transports.graphql.sources import OperationSource
from transports.graphql.types import ChangeEvent

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from transports.limits import Limits

__all__ = ["Engine", "GraphQLOperation", "encode_response"]

_PAYLOAD_BYTES: Final = 64  # the weight of a cached payload beside its bytes
_NUMBER: Final = 8  # bytes assumed for a number, a boolean or null
_ids: Final = itertools.count(1)
_encoder: Final = msgspec.json.Encoder()


class Engine:
    """Executes the operations of one server.

    Attributes:
        encodings: The number of payloads made; a shared one counts once.
        executions: How many of them graphql-core made.
        refused: The number of requests and answers that exceeded a limit.

    Args:
        logs: The logs of the server, by name.
        limits: The bounds of answers.
        access: What each principal may do; by default everything but writing.
        appending: The server's shared state for appends; by default one for this engine alone.
        openings: Finds the slots and consumers that clients have open; by default none.
    """

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        limits: "Limits",
        access: Access | None = None,
        appending: Appending | None = None,
        openings: Openings = NOTHING_OPEN,
    ) -> None:
        self._access = access or Access()
        self._openings = openings
        self.appending: Appending = appending or Appending(logs, self._access, limits)
        self.encodings = 0
        self.executions = 0
        self.refused: int = 0
        self._logs = logs
        self._limits = limits
        self._schema = make_schema()
        self._documents = Documents(self._schema)
        self._id = next(_ids)

    def prepare(
        self,
        query: str | None,
        operation_name: str | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> "GraphQLOperation":
        """Prepares the operation of a request for execution; from any thread.

        Raises:
            RequestRefused: If there is only the hash of a persisted query, if the document is invalid or has no such operation, if the variables do not fit it, or if it
                exceeds a limit.
        """
        if query is None:
            raise not_persisted()
        try:
            check_variables(variables)
            document = self._documents.read(query)
        except TooCostly as error:
            self.refused += 1
            raise RequestRefused([resolver_error(error)]) from None
        executor = Executor.build(
            self._schema,
            document.node,
            context_value=self.context(principal),
            raw_variable_values=dict(variables or {}),
            operation_name=operation_name,
        )
        if isinstance(executor, list):
            raise RequestRefused(executor)
        kind = executor.operation.operation.value
        key = self.key(document, operation_name, executor.variable_values.coerced)
        given = dict(variables or {})
        return GraphQLOperation(
            self, self._schema, document, executor, operation_name, given, principal, kind, key
        )

    def context(self, principal: Principal) -> Context:
        """Returns the context of the resolvers of one operation."""
        return Context(self._logs, self._limits, self._access, principal, self.appending, self._openings)

    def answer(self, result: ExecutionResult) -> bytes:
        """Returns the JSON of an answer, or of an error if the answer is too large."""
        nbytes, most = _size(result.data, self._limits.answer_bytes), self._limits.answer_bytes
        if nbytes > most:
            self.refused += 1
            cheaper = "ask for smaller pages, or fewer fields"
            error = beyond("answer_bytes", nbytes, most, cheaper, "bytes of the answer")
            result = ExecutionResult(None, [resolver_error(error)])
        return encode_response(result)

    def statistics(self) -> dict[str, int]:
        """Returns the counts of cached documents and of refused requests."""
        return {
            "documents": len(self._documents),
            "documentBytes": self._documents.nbytes,
            "refused": self.refused,
        }

    def key(
        self, document: Document, operation_name: str | None, coerced: Mapping[str, Any]
    ) -> tuple[object, ...]:
        """Returns the key under which the payloads of an operation are shared."""
        variables = {name: value for name, value in coerced.items() if name not in document.transport_only}
        text = json.dumps(variables, sort_keys=True, default=repr)
        return ("graphql", self._id, document.printed, operation_name, text)


class _Payloads(Shelf):
    """The cached payloads of one block for one operation."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, bytes] = {}


@dataclass(slots=True, eq=False, repr=False)
class GraphQLOperation:
    """One operation of a request.

    Attributes:
        kind: ``query``, ``mutation`` or ``subscription``.
        key: The key under which the payloads of its events are shared; includes the view after ``open``.
        source: The source of its events, after ``open``.
        cost: The cost of its criteria, after ``open``.
        view: The view of its events, after ``open``; it has BODY exactly if the selection includes bodies.
    """

    _engine: Engine
    _schema: GraphQLSchema
    _document: Document
    _executor: Executor[Any] | None
    _name: str | None
    _variables: dict[str, Any]
    _principal: Principal
    kind: str
    key: tuple[object, ...]
    source: OperationSource = field(init=False)
    cost: Cost = field(init=False)
    view: View = field(default_factory=View)
    _projection: PayloadProjection | None = None

    # Queries.

    def run(self, check: Callable[[], None] | None = None) -> ExecutionResult:
        """Executes a query, once; may read the disk on the calling thread.

        Args:
            check: Called between records that are read; an exception ends the reading.
        """
        context = self._engine.context(self._principal)
        context.check = check
        return self._execute(None, context)

    def answer(self, check: Callable[[], None] | None = None) -> bytes:
        """Returns the JSON of the answer to a query, of bounded length; as ``run``."""
        return self._engine.answer(self.run(check))

    # Subscriptions.

    def open(self) -> OperationSource:
        """Resolves the arguments of a subscription.

        Raises:
            RequestRefused: If they are invalid.
        """
        executor, self._executor = self._executor, None
        if executor is None:
            raise RuntimeError("an operation is opened once")
        source = create_source_event_stream(executor)
        if isinstance(source, ExecutionResult):
            raise RequestRefused(source.errors or ())
        if not isinstance(source, OperationSource):
            raise TypeError(f"the source of a subscription is {source!r}")
        self.source = source
        if source.member is not None:
            return source  # a delivery belongs to one client, so nothing of it is shared
        probe = SelectionProbe()
        trial = execute_subscription_event(executor.build_per_event_executor(probe))
        if not isinstance(trial, ExecutionResult):
            raise TypeError(f"the trial of a subscription is {trial!r}")
        self.view = probe.view(source.view)
        self.key = (*self.key, self.view)
        self._projection = PayloadProjection.of(trial, source.log.token, self.view)
        hash(source.criteria)  # computes the hash here, possibly on a thread; the criteria cache it
        self.cost = weigh(source.criteria)
        return source

    def payloads(self, parts: Iterable[Slice]) -> list[bytes]:
        """Returns the payloads of events, each made at most once for all subscribers with the same key."""
        found = []
        view = self.view
        for part in parts:
            block = part.block
            shelf = block.shelf(self.key, _Payloads)
            made = shelf.made
            for index in part.indices:
                payload = made.get(index)
                if payload is None:
                    payload = made[index] = self._make(block, index, view)
                    block.weigh(shelf, len(payload) + _PAYLOAD_BYTES)
                found.append(payload)
        return found

    def _make(self, block: Block, index: int, view: View) -> bytes:
        self._engine.encodings += 1
        payload = None if self._projection is None else self._projection.payload(block, index)
        return self.payload(block.change(index, view)) if payload is None else payload

    def payload(self, change: Change) -> bytes:
        """Returns the payload of one event, made by graphql-core."""
        return self._event(ChangeEvent.of(change, self.source.cursor(change)))

    def delivery(self, delivery: GroupDelivery) -> bytes:
        """Returns the payload of a delivery, made by graphql-core."""
        return self._event(GivenDelivery.of(delivery, self.source.log.token))

    def _event(self, root: object) -> bytes:
        self._engine.executions += 1
        return encode_response(self._execute(root, None))

    def _execute(self, root: object, context: Context | None) -> ExecutionResult:
        return execute_sync(
            self._schema,
            self._document.node,
            root,
            context,
            variable_values=self._variables,
            operation_name=self._name,
        )


def encode_response(result: ExecutionResult) -> bytes:
    """Returns the JSON of an execution result; JSON scalars are spliced in unchanged."""
    plain: dict[str, Any] = {"data": result.data}
    if result.errors:
        plain["errors"] = formatted(result.errors)
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return _encoder.encode(_escaped(plain))


def _size(value: Any, most: int) -> int:
    """Returns the approximate size of the JSON of an answer; above ``most`` the count may stop early."""
    found = 0
    waiting = [value]
    while waiting and found <= most:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
            found += sum(map(len, one)) + 4 * len(one)
        elif isinstance(one, list):
            waiting += one
            found += len(one)
        elif isinstance(one, msgspec.Raw):
            found += memoryview(one).nbytes
        else:
            found += len(one) if isinstance(one, str) else _NUMBER
    return found


def _escaped(value: Any) -> Any:
    """Returns the value with lone surrogates, which stand for bytes that are not UTF-8, as escapes."""
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return msgspec.Raw(json.dumps(value).encode()) if isinstance(value, str) else value

"""Operations: what a request asks for, and what an event looks like to all who ask for the same.

The bytes of a payload are kept in the memo of the block that the event lies in, under a key of everything that can
change them; whoever needs the same takes them from there, and they go with the block. They are spliced by a projection
that was read off one trial execution. What a projection cannot tell is executed with graphql-core's public functions,
and so with an executor of its own each time: one that lives as long as a subscription keeps a memo that grows with
every event.
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

from publishers.blocks.block import Block
from publishers.blocks.memo import Shelf
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
from transports.graphql.errors import RequestRefused, formatted, told
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

_PAYLOAD_BYTES: Final = 64  # what the entry in the memo weighs beside its bytes
_NUMBER: Final = 8  # bytes for which a number, a switch or nothing is taken
_ids: Final = itertools.count(1)
_encoder: Final = msgspec.json.Encoder()


class Engine:
    """Executes the operations of one server.

    Attributes:
        encodings: Payloads that were made; one that is shared counts once.
        executions: How many of them graphql-core had to make.
        refused: Requests and answers that were beyond a limit of what they may cost.

    Args:
        logs: The logs of the server, by name.
        limits: Bounds of documents and pages.
        access: What each principal may do; everything but writing if left out.
        appending: What the server does for those who append; of this engine alone if left out.
        openings: Finds what its clients have open; they have nothing if left out.
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
        self._appending = appending or Appending(logs, self._access, limits)
        self.encodings = 0
        self.executions = 0
        self.refused = 0
        self._logs = logs
        self._limits = limits
        self._schema = make_schema()
        self._documents = Documents(self._schema, limits)
        self._id = next(_ids)

    def prepare(
        self,
        query: str,
        operation_name: str | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> "GraphQLOperation":
        """The operation of a request of a principal, ready to be executed; from any thread.

        Raises:
            RequestRefused: If the document is not valid, has no such operation, or the variables are not right for it; or
                if it costs more than a limit.
        """
        try:
            check_variables(variables, self._limits)
            document = self._documents.read(query)
        except TooCostly as error:
            self.refused += 1
            raise RequestRefused([told(error)]) from None
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
        """What the resolvers of one operation work with."""
        return Context(self._logs, self._limits, self._access, principal, self._appending, self._openings)

    def answer(self, result: ExecutionResult) -> bytes:
        """The JSON of an answer; if it is too large, of an error that says so."""
        nbytes, most = _size(result.data, self._limits.answer_bytes), self._limits.answer_bytes
        if nbytes > most:
            self.refused += 1
            cheaper = "ask for smaller pages, or fewer fields"
            error = beyond("answer_bytes", nbytes, self._limits, cheaper, "bytes of the answer")
            result = ExecutionResult(None, [told(error)])
        return encode_response(result)

    def statistics(self) -> dict[str, int]:
        """What is kept, and what was refused."""
        return {
            "documents": len(self._documents),
            "documentBytes": self._documents.nbytes,
            "refused": self.refused,
        }

    def key(
        self, document: Document, operation_name: str | None, coerced: Mapping[str, Any]
    ) -> tuple[object, ...]:
        """Under what the payloads of an operation are shared."""
        variables = {name: value for name, value in coerced.items() if name not in document.transport_only}
        text = json.dumps(variables, sort_keys=True, default=repr)
        return ("graphql", self._id, document.printed, operation_name, text)


class _Payloads(Shelf):
    """What was made of one block for one operation."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, bytes] = {}


@dataclass(slots=True, eq=False, repr=False)
class GraphQLOperation:
    """One operation of a request.

    Attributes:
        kind: ``query``, ``mutation`` or ``subscription``.
        key: Under what the payloads of its events are shared; with the view, once ``open`` was called.
        source: Where its events come from, once ``open`` was called.
        cost: What its criteria cost, once ``open`` was called.
        view: How its events are seen, BODY exactly if the selection takes bodies; known once ``open`` was called.
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
            check: Called between records that are read; what it raises ends the reading.
        """
        context = self._engine.context(self._principal)
        context.check = check
        return self._execute(None, context)

    def answer(self, check: Callable[[], None] | None = None) -> bytes:
        """The JSON of the answer to a query, of bounded length; as ``run``."""
        return self._engine.answer(self.run(check))

    # Subscriptions.

    def open(self) -> OperationSource:
        """Resolves the arguments of a subscription.

        Raises:
            RequestRefused: If they are wrong.
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
            return source  # a delivery is one client's: nothing of it is shared
        probe = SelectionProbe()
        trial = execute_subscription_event(executor.build_per_event_executor(probe))
        if not isinstance(trial, ExecutionResult):
            raise TypeError(f"the trial of a subscription is {trial!r}")
        self.view = probe.view(source.view)
        self.key = (*self.key, self.view)
        self._projection = PayloadProjection.of(trial, source.log.token, self.view)
        hash(source.criteria)  # kept by what they are made of; here, as this may be a thread
        self.cost = weigh(source.criteria)
        return source

    def payloads(self, parts: Iterable[Slice]) -> list[bytes]:
        """The payloads of some events, each made at most once for all subscribers with the same key."""
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
        """The payload of one event, as graphql-core makes it."""
        return self._event(ChangeEvent.of(change, self.source.cursor(change)))

    def delivery(self, delivery: GroupDelivery) -> bytes:
        """The payload of a delivery, likewise."""
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
    """The JSON of an execution result; JSON scalars are spliced in as they are."""
    plain: dict[str, Any] = {"data": result.data}
    if result.errors:
        plain["errors"] = formatted(result.errors)
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return _encoder.encode(_escaped(plain))


def _size(value: Any, most: int) -> int:
    """About how many bytes the JSON of an answer has; above ``most`` the count may end early."""
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
    """The same with lone surrogates, which stand for bytes that are not UTF-8, as escapes."""
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return msgspec.Raw(json.dumps(value).encode()) if isinstance(value, str) else value

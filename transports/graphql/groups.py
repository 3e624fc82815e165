"""The GraphQL types and resolvers of groups: deliveries, acknowledgements, claims."""

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import strawberry

from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.groups import ClaimedDeliveries, GroupDelivery, PendingRow
from publishers.model.position import Position
from transports.codec.groups import JoinRequest
from transports.graphql.context import Context
from transports.graphql.errors import resolver_error
from transports.graphql.sources import OperationSource
from transports.graphql.types import ChangeEvent, Cursor, Long, argument, described
from transports.operations.calls import AckCall, read_call

if TYPE_CHECKING:
    from publishers.groups import GroupMember
    from publishers.log.changelog import ChangeLog

__all__ = [
    "ClaimedRows",
    "GivenDelivery",
    "PendingPage",
    "ack_deliveries",
    "claim_deliveries",
    "in_progress_deliveries",
    "nack_deliveries",
    "on_delivery",
    "pending_deliveries",
    "term_deliveries",
]

_T = TypeVar("_T")

LogName = Annotated[str | None, argument("Name of the log; may be left out if the server has one.")]
At = Annotated[list[Cursor], argument("The `at` of deliveries.")]


@strawberry.input(name="ConsumerInput", description="The consumer of a group.")
class ConsumerInput:
    """A consumer as it is named in a document or in variables."""

    group: str = described("The name of the group.")
    consumer: str = described(
        "Name of the consumer; a consumer that joins under a used name replaces the other one."
    )
    opening: str = described(
        "The client's id of this joining, such as a random id. A client that sends it again resumes the joining, also after a "
        "lost connection, and acts as the consumer with it."
    )

    def request(self, *, history: bool = False) -> JoinRequest:
        """Checks the input and builds the request to join.

        Raises:
            InvalidRequest, InvalidOption: If a field is not valid.
        """
        named = {"group": self.group, "consumer": self.consumer, "opening": self.opening}
        return JoinRequest.of({**named, "history": history})


Consumer = Annotated[ConsumerInput, argument("For which consumer, as the subscription names it.")]


@strawberry.type(
    name="Delivery", description="A delivery to a consumer of a group, until it is acknowledged."
)
class GivenDelivery:
    """A delivery as the schema sees it."""

    at: Cursor = described("The cursor by which it is acknowledged.")
    count: int = described("How often it was delivered, this time included.")
    changes: list[ChangeEvent] = described(
        "The change; for a group whose deliveries are transactions, all of its matching changes."
    )

    @classmethod
    def of(cls, delivery: GroupDelivery, token: Callable[[Position], object]) -> "GivenDelivery":
        """Builds a delivery; ``token`` encodes a position."""
        changes = [ChangeEvent.of(one, str(token(one.after))) for one in delivery.changes]
        return cls(at=Cursor(str(token(delivery.position))), count=delivery.count, changes=changes)


@strawberry.type(name="PendingDelivery", description="A delivery that is not acknowledged.")
class PendingDelivery:
    """A row of pending deliveries."""

    at: Cursor = described("The cursor by which it is acknowledged.")
    consumer: str = described("Which consumer has it.")
    generation: Long = described("Of that consumer.")
    idle_ms: Long = described("Milliseconds since it was last delivered.")
    count: int = described("How often it was delivered.")

    @classmethod
    def of(cls, row: PendingRow, at: str) -> "PendingDelivery":
        """Builds a row; ``at`` is the text of its position."""
        return cls(
            at=Cursor(at),
            consumer=row.consumer,
            generation=Long(row.generation),
            idle_ms=Long(int(row.idle * 1000)),
            count=row.count,
        )


@strawberry.type(name="PendingDeliveries", description="The deliveries of a group that are not acknowledged.")
class PendingPage:
    """A page of pending deliveries, and their number in all."""

    total: int = described("How many there are in all.")
    rows: list[PendingDelivery] = described("Those that were asked for, in the order of the log.")


@strawberry.type(name="ClaimedDeliveries", description="The result of a claim.")
class ClaimedRows:
    """The result of a claim."""

    deliveries: list[GivenDelivery] = described(
        "The claimed deliveries; without changes if only ids were requested."
    )
    next: Cursor | None = described("Where the next claim may begin; null at the end.")
    lost: list[Cursor] = described("The requested changes that retention has deleted.")

    @classmethod
    def of(cls, claimed: ClaimedDeliveries, token: Callable[[Position], object]) -> "ClaimedRows":
        """Builds the result of a claim; ``token`` encodes a position."""
        return cls(
            deliveries=[GivenDelivery.of(one, token) for one in claimed.deliveries],
            next=None if claimed.next is None else Cursor(str(token(claimed.next))),
            lost=[Cursor(str(token(one))) for one in claimed.lost],
        )


def on_delivery(
    info: strawberry.Info[Context, None],
    consumer: Annotated[
        ConsumerInput, argument("The consumer and its group; the criteria of the group select the changes.")
    ],
    history: Annotated[
        bool,
        argument(
            "Whether the pending deliveries of the consumer's name from before the join are delivered first."
        ),
    ] = False,
    log: LogName = None,
) -> AsyncGenerator[GivenDelivery, None]:
    """Returns the source of the deliveries; joins no group yet."""
    found: ChangeLog | None = None
    try:
        request = consumer.request(history=history)
        name, found, grant = info.context.find_group(request.group, log)
        source = OperationSource(found, Criteria.of(()), None, None, name=name, grant=grant, member=request)
    except PenstockError as error:
        raise resolver_error(error, found) from None
    return cast("AsyncGenerator[GivenDelivery, None]", source)


def ack_deliveries(
    info: strawberry.Info[Context, None],
    consumer: Consumer,
    at: At,
    upto: Annotated[
        bool, argument("Whether to acknowledge all deliveries of the consumer up to the one position.")
    ] = False,
    durable: Annotated[bool, argument("Whether to answer only when a crash cannot take it.")] = False,
    log: LogName = None,
) -> int:
    """Acknowledges deliveries; with ``durable``, waits for the disk on the calling thread."""
    return _spoken(info.context, consumer, "ack_upto" if upto else "ack", log, at=at, durable=durable)


def nack_deliveries(
    info: strawberry.Info[Context, None],
    consumer: Consumer,
    at: At,
    delay_ms: Annotated[
        Long | None, argument("When they are due again; the next delay of the group if left out.")
    ] = None,
    count: Annotated[bool, argument("False if they were not tried, as where a worker stops.")] = True,
    error: Annotated[str | None, argument("Why, for the dead letters.")] = None,
    log: LogName = None,
) -> int:
    """Refuses deliveries."""
    return _spoken(info.context, consumer, "nack", log, at=at, delayMs=delay_ms, count=count, error=error)


def in_progress_deliveries(
    info: strawberry.Info[Context, None], consumer: Consumer, at: At, log: LogName = None
) -> int:
    """Restarts ``ack_wait`` of deliveries."""
    return _spoken(info.context, consumer, "in_progress", log, at=at)


def term_deliveries(
    info: strawberry.Info[Context, None],
    consumer: Consumer,
    at: At,
    reason: Annotated[str, argument("Why, for the dead letters.")],
    log: LogName = None,
) -> int:
    """Terminates deliveries, which become dead letters."""
    return _spoken(info.context, consumer, "term", log, at=at, reason=reason)


def claim_deliveries(
    info: strawberry.Info[Context, None],
    consumer: Consumer,
    min_idle_ms: Annotated[
        Long, argument("Only deliveries that are pending for at least so many milliseconds.")
    ],
    at: Annotated[list[Cursor] | None, argument("Which; all from `start` on if left out.")] = None,
    start: Annotated[Cursor | None, argument("From which place on.")] = None,
    limit: Annotated[int | None, argument("Most of them; 100 if left out.")] = None,
    only_ids: Annotated[bool, argument("Whether they are only looked at: their counts stay.")] = False,
    log: LogName = None,
) -> ClaimedRows:
    """Claims pending deliveries of other consumers."""
    asked = {"minIdleMs": min_idle_ms, "at": at, "start": start, "limit": limit, "onlyIds": only_ids}

    def work(found: "ChangeLog", member: "GroupMember") -> ClaimedRows:
        claimed: ClaimedDeliveries = read_call("claim", asked).run(found, member)
        try:
            return ClaimedRows.of(claimed, found.token)
        except BaseException:
            member.give_back(claimed.deliveries)
            raise

    return _as_consumer(info.context, consumer, log, work)


def pending_deliveries(
    info: strawberry.Info[Context, None],
    group: Annotated[str, argument("The name of the group.")],
    consumer: Annotated[str | None, argument("Of which consumer; of all if left out.")] = None,
    start: Annotated[Cursor | None, argument("From which place on.")] = None,
    min_idle_ms: Annotated[
        Long | None, argument("Only deliveries that are pending for at least so many milliseconds.")
    ] = None,
    limit: Annotated[int | None, argument("Most rows; 100 if left out.")] = None,
    log: LogName = None,
) -> PendingPage:
    """Lists the deliveries of a group that are not acknowledged."""
    found: ChangeLog | None = None
    asked = {"consumer": consumer, "start": start, "minIdleMs": min_idle_ms or 0, "limit": limit}
    try:
        _, found, _ = info.context.find_group(group, log)
        call = read_call("pending", asked)
        total, rows = call.run(found, found.groups.open(group))
        listed = [PendingDelivery.of(row, str(found.token(row.position))) for row in rows]
        return PendingPage(total=total, rows=listed)
    except PenstockError as error:
        raise resolver_error(error, found) from None


def _spoken(context: Context, consumer: ConsumerInput, do: str, log: str | None, **payload: Any) -> int:
    """Carries out a call of a consumer; returns the number of deliveries that it changed."""

    def work(found: "ChangeLog", member: "GroupMember") -> int:
        call = read_call(do, payload)
        count: int = call.run(found, member)
        if isinstance(call, AckCall) and call.durable:
            member.ack(durable=True)
        return count

    return _as_consumer(context, consumer, log, work)


def _as_consumer(
    context: Context,
    consumer: ConsumerInput,
    log: str | None,
    work: "Callable[[ChangeLog, GroupMember], _T]",
) -> _T:
    found: ChangeLog | None = None
    try:
        request = consumer.request()
        _, found, _ = context.find_group(request.group, log)
        return work(found, context.openings.member(found, request, context.principal))
    except PenstockError as error:
        raise resolver_error(error, found) from None

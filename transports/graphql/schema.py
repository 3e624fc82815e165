"""The schema: ``onChange`` and ``history`` over every change of a log, untyped."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, cast

import strawberry
from graphql import GraphQLSchema
from strawberry.schema.config import StrawberryConfig

from flow.bridges.asyncio import aiter as iterate
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned, PenstockError
from publishers.position import Position
from publishers.views.view import Content, Images, View
from transports.errors import InvalidRequest, LogNotFound
from transports.graphql.errors import told
from transports.graphql.probe import Probe
from transports.graphql.types import (
    SCALARS,
    ChangeEvent,
    CriterionInput,
    Cursor,
    HistoryPage,
    LogState,
    Long,
    MaskRuleInput,
)
from transports.policy import Caller, Policy, narrow

if TYPE_CHECKING:
    from publishers.changelog import ChangeLog

__all__ = ["Context", "Source", "make_schema"]

_BODY: Final = View(Content.BODY)

Criterions = Annotated[
    list[CriterionInput] | None,
    strawberry.argument(description="Wishes, any of which may hold; nothing for every change."),
]
LogName = Annotated[
    str | None, strawberry.argument(description="Name of the log; may be left out if the server has one.")
]
ImagesName = Annotated[
    Images, strawberry.argument(description="Which images of an entity `body` and `before` show.")
]
Paths = Annotated[
    list[str] | None,
    strawberry.argument(
        description="Only these fields of an entity, such as `customer.name`; all if left out."
    ),
]
MaskRules = Annotated[
    list[MaskRuleInput] | None,
    strawberry.argument(description="What is shown in place of values that are not to be seen."),
]


@dataclass(slots=True)
class Context:
    """What resolvers of one operation work with.

    Attributes:
        logs: The logs of the server, by name.
        history_events: Most changes in a page.
        policy: What callers may see; None for everything.
        token: What the caller gave as its token.
        probe: Stands for the changes of a page until it is known which of their fields are selected.
        probing: Whether that is being found out.
    """

    logs: "Mapping[str, ChangeLog]"
    history_events: int
    policy: Policy | None = None
    token: str | None = None
    probe: Probe | None = None
    probing: bool = False

    def find(self, name: str | None) -> "ChangeLog":
        """The log of a name.

        Raises:
            LogNotFound: If there is none, or there are several and no name.
        """
        if name is None and len(self.logs) == 1:
            return next(iter(self.logs.values()))
        log = None if name is None else self.logs.get(name)
        if log is None:
            raise LogNotFound(name, list(self.logs))
        return log

    def view(
        self,
        log: "ChangeLog",
        criteria: Criteria,
        images: Images,
        fields: list[str] | None,
        mask: list[MaskRuleInput] | None,
    ) -> View:
        """The widest view of an operation, if its selection takes bodies.

        Raises:
            Forbidden: If the criteria ask about what the caller may not see.
            InvalidOption: If something is no path or no rule.
        """
        name = next((name for name, each in self.logs.items() if each is log), log.name)
        rules = None if mask is None else {each.path: each.plain() for each in mask}
        wanted = View.of(Content.BODY, images, fields=fields, mask=rules)
        return narrow(self.policy, Caller(name, self.token), wanted, criteria)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the events of one subscription come from.

    Our connection subscribes to it in its own way, batch by batch and shared. To be what graphql-core takes for a source
    it can be iterated too, so the schema also works under other servers.
    """

    log: "ChangeLog"
    criteria: Criteria
    since: Position | None
    until: int | None
    view: View = _BODY
    empty: bool = False

    @property
    def wishes(self) -> "Criteria | tuple[()]":
        """The criteria; an empty list means nothing on the system log."""
        return () if self.empty else self.criteria

    async def __aiter__(self) -> AsyncIterator[ChangeEvent]:
        log = self.log
        feed = log.changes(self.wishes, since=self.since, until=self.until, view=self.view)
        async with iterate(feed) as changes:
            async for change in changes:
                yield ChangeEvent.of(change, str(log.token(change.after)))


def _criteria(wishes: list[CriterionInput] | None) -> Criteria:
    return Criteria.of(wish.criterion(place) for place, wish in enumerate(wishes or ()))


def _since(log: "ChangeLog", cursor: str | None) -> Position | None:
    if cursor is None:
        return None
    position = log.position_of(cursor)
    # Asked again by the feed, after registration; here it lets the error be the answer to the operation.
    if position < log.oldest:
        raise HistoryPruned(log.oldest)
    return position


def _logs(info: strawberry.Info[Context, None]) -> list[LogState]:
    return [
        LogState(
            name=name,
            epoch=log.epoch,
            oldest=Cursor(str(log.token(log.oldest))),
            head=Cursor(str(log.token(log.head))),
        )
        for name, log in info.context.logs.items()
    ]


def _history(
    info: strawberry.Info[Context, None],
    criteria: Criterions = None,
    since: Annotated[
        Cursor | None,
        strawberry.argument(description="Where to begin; the oldest place, or the newest one, if left out."),
    ] = None,
    limit: Annotated[int, strawberry.argument(description="Most changes in the page.")] = 100,
    reverse: Annotated[
        bool,
        strawberry.argument(
            description="Versions from the newest to the oldest; in each the TRANSACTION event first, and then the "
            "changes from the last to the first."
        ),
    ] = False,
    images: ImagesName = Images.WRITTEN,
    fields: Paths = None,
    mask: MaskRules = None,
    log: LogName = None,
) -> HistoryPage:
    """A page of changes; reads the disk on the calling thread."""
    context = info.context
    found: ChangeLog | None = None
    try:
        found = context.find(log)
        if not 1 <= limit <= context.history_events:
            raise InvalidRequest("limit", limit, f"a whole number from 1 to {context.history_events}")
        wishes, start = _criteria(criteria), _since(found, since)
        view = context.view(found, wishes, images, fields, mask)
        if context.probe is not None:
            if context.probing:
                return HistoryPage.of([cast("ChangeEvent", context.probe)])
            view = context.probe.view(view)
        page = found.history(() if criteria == [] else wishes, start, limit, view=view, reverse=reverse)
    except PenstockError as error:
        raise told(error, found) from None
    token = found.token
    changes = [ChangeEvent.of(change, str(token(change.after))) for change in page.changes]
    return HistoryPage.of(changes, str(token(page.since)), str(token(page.next)), more=page.more)


def _on_change(
    info: strawberry.Info[Context, None],
    criteria: Criterions = None,
    since: Annotated[
        Cursor | None,
        strawberry.argument(
            description="Where to begin: a cursor that was told; the next version if left out."
        ),
    ] = None,
    until: Annotated[
        Long | None, strawberry.argument(description="The last version, after which the operation completes.")
    ] = None,
    images: ImagesName = Images.WRITTEN,
    fields: Paths = None,
    mask: MaskRules = None,
    log: LogName = None,
) -> AsyncGenerator[ChangeEvent, None]:
    """The source of the events; subscribes to nothing yet."""
    found: ChangeLog | None = None
    try:
        found = info.context.find(log)
        wishes, start = _criteria(criteria), _since(found, since)
        view = info.context.view(found, wishes, images, fields, mask)
        source = Source(found, wishes, start, until, view, empty=criteria == [])
    except PenstockError as error:
        raise told(error, found) from None
    # The annotation tells strawberry the type of an event; the value is what graphql-core asks for.
    return cast("AsyncGenerator[ChangeEvent, None]", source)


@strawberry.type(description="What is past, and what there is.")
class Query:
    """The root of queries."""

    logs: list[LogState] = strawberry.field(resolver=_logs, description="The change logs of this server.")
    history: HistoryPage = strawberry.field(resolver=_history, description="Past changes, a page at a time.")


@strawberry.type(description="What happens from now on, or from any place that is kept.")
class Subscription:
    """The root of subscriptions."""

    on_change: AsyncGenerator[ChangeEvent, None] = strawberry.subscription(
        resolver=_on_change, description="Changes as they are committed, each exactly once and in order."
    )


_SCHEMA: Final = strawberry.Schema(
    query=Query,
    subscription=Subscription,
    config=StrawberryConfig(scalar_map=dict(SCALARS)),
)


def make_schema() -> GraphQLSchema:
    """The executable schema."""
    schema: GraphQLSchema = _SCHEMA._schema  # noqa: SLF001 - strawberry has no public name for it
    return schema

"""The schema: subscriptions, queries and mutations on every log, without types per entity."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Final, cast

import msgspec
import strawberry
from graphql import GraphQLSchema
from strawberry.schema.config import StrawberryConfig

from publishers.commits.submission import Wait
from publishers.criteria.cost import weigh, weigh_json
from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.log.start import Since
from publishers.snapshots import SnapshotMode
from publishers.views.view import Images, Integers
from transports.access.grant import Grant, check_rows, schema_for, schemas_for
from transports.appends import Appending, Repetitions, cursor_behind, outcome_of
from transports.codec.appends import AppendRequest
from transports.codec.changes import read_objects
from transports.codec.fields import whole as whole_number
from transports.codec.messages import check_weight
from transports.codec.snapshot_places import opened
from transports.codec.starts import asks_for_state, checked_snapshot, explained, kept_place
from transports.errors import InvalidRequest
from transports.graphql.appends import AppendOutcome, ChangeInput, KeyInput
from transports.graphql.context import Context
from transports.graphql.errors import resolver_error
from transports.graphql.groups import (
    ClaimedRows,
    GivenDelivery,
    PendingPage,
    ack_deliveries,
    claim_deliveries,
    in_progress_deliveries,
    nack_deliveries,
    on_delivery,
    pending_deliveries,
    term_deliveries,
)
from transports.graphql.inputs import CriterionInput, MaskRuleInput, OnGap, RowsMode, StartInput
from transports.graphql.inside import executable
from transports.graphql.probe import view_for
from transports.graphql.selection import selected
from transports.graphql.slots import AcknowledgedSlot, SlotInput
from transports.graphql.sources import OperationSource
from transports.graphql.types import (
    JSON,
    SCALARS,
    ChangeEvent,
    Cursor,
    HistoryPage,
    LogState,
    Long,
    SchemaState,
    SchemaVersions,
    argument,
    described,
)
from transports.problems import describe

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from transports.limits import Limits

__all__ = ["HISTORY_EVENTS", "make_schema"]

HISTORY_EVENTS: Final = 1_000
"""Most changes in a page of history; the next page continues."""

Criterions = Annotated[
    list[CriterionInput] | None,
    argument("Criterions, any of which may match; none for every change."),
]
LogName = Annotated[str | None, argument("Name of the log; may be left out if the server has one.")]
ImagesName = Annotated[Images, argument("Which images of an entity `body` and `before` show.")]
IntegersName = Annotated[
    Integers,
    argument("How whole numbers beyond 2^53 appear in `body`, `before` and `meta`."),
]
StartAt = Annotated[
    StartInput | None,
    argument("Where to begin without a cursor, in place of `since`."),
]
Paths = Annotated[
    list[str] | None,
    argument("Only these fields of an entity, such as `customer.name`; all if left out."),
]
MaskRules = Annotated[
    list[MaskRuleInput] | None,
    argument("Masks: the replacements of values."),
]


def _criteria(inputs: list[CriterionInput] | None, limits: "Limits") -> Criteria:
    """Returns the criteria of an operation; weighs them before parsing and before compiling.

    Raises:
        InvalidCriteria: If they are invalid.
        TooCostly: If they weigh more than ``subscription_weight``.
    """
    check_weight(weigh_json(inputs, limits.subscription_weight), limits)
    criteria = Criteria.of(one.criterion(place) for place, one in enumerate(inputs or ()))
    check_weight(weigh(criteria), limits)
    return criteria


def _place(log: "ChangeLog", since: str | None, start: StartInput | None, *, pruned: bool = False) -> Since:
    """Returns the start position of an operation; None if none was given.

    Args:
        log: The log.
        since: A cursor.
        start: Another start position.
        pruned: Whether a position that is no longer kept is allowed.

    Raises:
        InvalidRequest: If two start positions are given, or one is invalid.
        PositionError: If the position does not belong to this log, or is no longer kept.
    """
    if start is not None and since is not None:
        raise InvalidRequest("since", since, "left out where start is given")
    place: Since = since if start is None else start.plain()
    if asks_for_state(place):
        raise InvalidRequest("start.place", "STATE", "EARLIEST or LATEST, as this is no subscription")
    return kept_place(log, place, jump=pruned)


def _live_place(
    log: "ChangeLog", since: str | None, start: StartInput | None, grant: Grant, *, rows: bool, pruned: bool
) -> Since:
    """Returns the start position of a subscription, which may also be the state, or a cursor inside it.

    Args:
        log: The log.
        since: A cursor.
        start: Another start position.
        grant: What the principal may do with the log.
        rows: Whether rows may come later too.
        pruned: As for ``_place``.

    Raises:
        InvalidRequest, PositionError: As ``_place``.
        Forbidden: If the grant does not allow rows.
    """
    place: Since = since if start is None else start.plain()
    stated = asks_for_state(place) and (since is None or start is None)
    if stated or rows:
        check_rows(grant)
    return opened(str(place), log.oldest) if stated else _place(log, since, start, pruned=pruned)


def _logs(info: strawberry.Info[Context, None]) -> list[LogState]:
    return [
        LogState(
            name=name,
            epoch=log.epoch,
            oldest=Cursor(str(log.token(log.oldest))),
            head=Cursor(str(log.token(log.head))),
        )
        for name, log in info.context.known()
    ]


def _schema(
    info: strawberry.Info[Context, None],
    entity_type: Annotated[str, argument("Of which entities.")],
    version: Annotated[
        Long | None,
        argument("The `schemaVersion` of a change; the newest if left out."),
    ] = None,
    log: LogName = None,
) -> SchemaState | None:
    """Resolves ``schema``; may read the disk on the calling thread."""
    found: ChangeLog | None = None
    try:
        _, found, grant = info.context.find(log)
        told_schema = schema_for(grant, found, entity_type, version)
    except PenstockError as error:
        raise resolver_error(error, found) from None
    if told_schema is None:
        return None
    return SchemaState.of(told_schema, str(found.token(told_schema.position)))


def _schemas(info: strawberry.Info[Context, None], log: LogName = None) -> list[SchemaVersions]:
    """Resolves ``schemas``; may read the disk on the calling thread."""
    found: ChangeLog | None = None
    try:
        _, found, grant = info.context.find(log)
        listed = schemas_for(grant, found)
    except PenstockError as error:
        raise resolver_error(error, found) from None
    return [
        SchemaVersions(entity_type=name, versions=[Long(version) for version in versions])
        for name, versions in listed.items()
    ]


def _history(
    info: strawberry.Info[Context, None],
    criteria: Criterions = None,
    since: Annotated[
        Cursor | None,
        argument("Where to begin; the oldest place, or the newest one, if left out."),
    ] = None,
    start: StartAt = None,
    limit: Annotated[int, argument("Most changes in the page.")] = 100,
    reverse: Annotated[
        bool,
        argument(
            "Versions from the newest to the oldest; in each the TRANSACTION event first, and then the "
            "changes from the last to the first."
        ),
    ] = False,
    images: ImagesName = Images.WRITTEN,
    fields: Paths = None,
    mask: MaskRules = None,
    integers: IntegersName = Integers.NUMBER,
    log: LogName = None,
) -> HistoryPage:
    """Resolves ``history``: a page of changes; reads the disk on the calling thread."""
    context = info.context
    found: ChangeLog | None = None
    place: Since = None
    try:
        _, found, grant = context.find(log)
        whole_number("limit", limit, 1, HISTORY_EVENTS)
        narrowed_criteria, place = _criteria(criteria, context.limits), _place(found, since, start)
        view, narrowed_criteria = context.view(grant, narrowed_criteria, images, fields, mask, integers)
        page = found.history(
            () if criteria == [] and grant.criteria is None else narrowed_criteria,
            place,
            limit,
            view=view_for(view, selected(info, "changes")),
            reverse=reverse,
            max_bytes=context.page_bytes(),
            check=context.check,
        )
    except PenstockError as error:
        raise resolver_error(explained(error, place), found) from None
    context.left -= page.nbytes
    token = found.token
    changes = [ChangeEvent.of(change, str(token(change.after))) for change in page.changes]
    return HistoryPage.of(changes, str(token(page.since)), str(token(page.next)), more=page.more)


def _on_change(
    info: strawberry.Info[Context, None],
    criteria: Criterions = None,
    since: Annotated[
        Cursor | None,
        argument("Where to begin: a cursor of an earlier response; the next version if left out."),
    ] = None,
    start: StartAt = None,
    until: Annotated[Long | None, argument("The last version, after which the operation completes.")] = None,
    images: ImagesName = Images.WRITTEN,
    fields: Paths = None,
    mask: MaskRules = None,
    integers: IntegersName = Integers.NUMBER,
    on_gap: Annotated[OnGap, argument("What happens where history is no longer kept.")] = OnGap.FAIL,
    whole: Annotated[
        bool,
        argument("Whether a start inside a transaction sends it again from its beginning."),
    ] = False,
    snapshot: Annotated[
        RowsMode | None,
        argument(
            "When the entities that there are come; `INITIAL` if it begins with the state, and never else, if left out."
        ),
    ] = None,
    log: LogName = None,
) -> AsyncGenerator[ChangeEvent, None]:
    """Resolves ``onChange`` to the source of the events, without subscribing yet."""
    found: ChangeLog | None = None
    try:
        name, found, grant = info.context.find(log)
        found_criteria = _criteria(criteria, info.context.limits)
        jump = on_gap is OnGap.JUMP
        pruned = jump or snapshot is RowsMode.ON_GAP
        place = _live_place(found, since, start, grant, rows=snapshot is not None, pruned=pruned)
        mode = None if snapshot is None else cast("SnapshotMode", snapshot.name.lower())
        checked_snapshot(mode, stated=asks_for_state(place), jump=jump)
        view, found_criteria = info.context.view(grant, found_criteria, images, fields, mask, integers)
        source = OperationSource(
            found,
            found_criteria,
            place,
            until,
            view,
            empty=criteria == [] and grant.criteria is None,
            jump=jump,
            whole=whole,
            name=name,
            grant=grant,
            snapshot=mode,
        )
    except PenstockError as error:
        raise resolver_error(error, found) from None
    # strawberry needs the annotation for the type of an event; graphql-core needs the value
    return cast("AsyncGenerator[ChangeEvent, None]", source)


def _on_slot(
    info: strawberry.Info[Context, None],
    slot: Annotated[SlotInput, argument("The slot; its criteria select the changes.")],
    images: ImagesName = Images.WRITTEN,
    fields: Paths = None,
    mask: MaskRules = None,
    integers: IntegersName = Integers.NUMBER,
    log: LogName = None,
) -> AsyncGenerator[ChangeEvent, None]:
    """Resolves ``onSlot`` to the source of the events, without opening the slot yet."""
    found: ChangeLog | None = None
    try:
        request = slot.request()
        name, found, grant = info.context.find_slot(request.name, log)
        everything = Criteria.of(())
        view, _ = info.context.view(grant, everything, images, fields, mask, integers)
        source = OperationSource(found, everything, None, None, view, name=name, grant=grant, slot=request)
    except PenstockError as error:
        raise resolver_error(error, found) from None
    return cast("AsyncGenerator[ChangeEvent, None]", source)


def _ack_slot(
    info: strawberry.Info[Context, None],
    slot: Annotated[str, argument("The name of the slot.")],
    opening: Annotated[str, argument("As in `SlotInput`, of the subscription that gave the change.")],
    cursor: Annotated[Cursor, argument("The `cursor` of the change; it and all before it are acknowledged.")],
    durable: Annotated[bool, argument("Whether to answer only when a crash cannot take it.")] = False,
    log: LogName = None,
) -> AcknowledgedSlot:
    """Resolves ``ackSlot``; a durable acknowledgement waits for the disk on the calling thread."""
    context = info.context
    found: ChangeLog | None = None
    try:
        _, found, _ = context.find_slot(slot, log)
        held = context.openings.slot(found, slot, opening, context.principal)
        return AcknowledgedSlot.acknowledge(found, held, cursor, durable=durable)
    except PenstockError as error:
        raise resolver_error(error, found) from None


def _append(
    info: strawberry.Info[Context, None],
    changes: Annotated[
        list[ChangeInput], argument("The changes of one transaction, which is written as a whole or not.")
    ],
    producer: Annotated[
        str | None, argument("The producer of the transaction; with `sequence`, a repetition is ignored.")
    ] = None,
    sequence: Annotated[Long | None, argument("Its number for the transaction, which rises.")] = None,
    expect: Annotated[
        Cursor | None, argument("Nothing is written if anything was committed here or later.")
    ] = None,
    keys: Annotated[
        list[KeyInput] | None, argument("With `expect`: only if one of these entities was changed.")
    ] = None,
    meta: Annotated[JSON | None, argument("Annotations of the transaction, an object.")] = None,
    wait: Annotated[Wait, argument("How far the transaction is to be.")] = Wait.DURABLE,
    log: LogName = None,
) -> AppendOutcome:
    """Resolves ``append``: commits a transaction, and waits for it on the calling thread."""
    context = info.context
    found: ChangeLog | None = None
    appending = context.appending or Appending(context.logs, context.access, context.limits)
    came = appending.figures.come()
    pairs = [{"entity_type": one.entity_type, "key": one.key} for one in keys or ()]
    expected = expect if keys is None else {"cursor": expect, "keys": pairs}
    asked = {"producer": producer, "sequence": sequence, "expect": expected, "wait": wait.value}
    try:
        request = AppendRequest.of({**asked, "meta": None if meta is None else msgspec.json.decode(meta)})
        found = appending.target(context.principal, log)
        mutations = read_objects(change.plain() for change in changes)
        commit = appending.submit(found, context.principal, request, mutations).result(wait)
        if commit.duplicate and not commit.version:
            version = Repetitions().version(found, context.principal, request)
            commit = commit._replace(version=version)
        appending.figures.reached(found, came)
        appending.figures.replied(found, came)
        appending.figures.count(outcome_of(commit))
        return AppendOutcome.of(commit, cursor_behind(found, commit))
    except PenstockError as error:
        appending.figures.count(describe(error).code)
        raise resolver_error(error, found) from None
    finally:
        appending.figures.gone()


@strawberry.type(name="Mutation", description="What can be written, where the server allows it.")
class MutationRoot:
    """The root of mutations; each of several is its own transaction."""

    append: AppendOutcome = strawberry.mutation(resolver=_append, description="Appends a transaction.")
    ack_slot: AcknowledgedSlot = strawberry.mutation(
        resolver=_ack_slot, description="Acknowledges deliveries of a slot, which are not repeated."
    )
    ack_deliveries: int = strawberry.mutation(
        resolver=ack_deliveries,
        description="Acknowledges deliveries of a group; answers how many were newly acknowledged.",
    )
    nack_deliveries: int = strawberry.mutation(
        resolver=nack_deliveries,
        description="Refuses deliveries, which are due again, and later ones of their keys with them; answers how many were pending.",
    )
    in_progress_deliveries: int = strawberry.mutation(
        resolver=in_progress_deliveries,
        description="Restarts the time after which deliveries are due again; returns how many are pending.",
    )
    term_deliveries: int = strawberry.mutation(
        resolver=term_deliveries,
        description="Gives deliveries up: they become dead letters; answers how many were not done.",
    )
    claim_deliveries: ClaimedRows = strawberry.mutation(
        resolver=claim_deliveries, description="Takes over what other consumers of a group have."
    )


@strawberry.type(description="History, logs and schemas.")
class Query:
    """The root of queries."""

    logs: list[LogState] = described("The change logs of this server.", resolver=_logs)
    schema: SchemaState | None = described(
        "A registered schema, even if the change that registered it is no longer kept.", resolver=_schema
    )
    schemas: list[SchemaVersions] = described("The registered schemas, by entity type.", resolver=_schemas)
    history: HistoryPage = described("Past changes, a page at a time.", resolver=_history)
    pending_deliveries: PendingPage = described(
        "The deliveries of a group that are not acknowledged.", resolver=pending_deliveries
    )


@strawberry.type(name="Subscription", description="What happens from now on, or from any place that is kept.")
class SubscriptionRoot:
    """The root of subscriptions."""

    on_change: AsyncGenerator[ChangeEvent, None] = strawberry.subscription(
        resolver=_on_change, description="Changes as they are committed, each exactly once and in order."
    )
    on_slot: AsyncGenerator[ChangeEvent, None] = strawberry.subscription(
        resolver=_on_slot,
        description="The changes of a slot, from the first that is not acknowledged on, each at least once and in order.",
    )
    on_delivery: AsyncGenerator[GivenDelivery, None] = strawberry.subscription(
        resolver=on_delivery,
        description="The deliveries of a group to one of its consumers; each change goes to one consumer, until it is acknowledged.",
    )


_SCHEMA: Final = strawberry.Schema(
    query=Query,
    mutation=MutationRoot,
    subscription=SubscriptionRoot,
    config=StrawberryConfig(scalar_map=dict(SCALARS)),
)


def make_schema() -> GraphQLSchema:
    """Returns the executable schema."""
    return executable(_SCHEMA)

"""Narrows a subscribe request to the grant of the client, and makes its feed."""

from typing import TYPE_CHECKING

from publishers.criteria.cost import Cost, weigh
from publishers.criteria.criteria import Criteria
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.views.view import View
from transports.access.grant import Grant, check_rows, narrow
from transports.codec.messages import SubscribeRequest, check_weight
from transports.codec.snapshot_places import opened
from transports.codec.starts import feed_of, kept_place
from transports.limits import Limits

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["narrowed", "requested_feed"]


def narrowed(request: SubscribeRequest, grant: Grant, limits: Limits) -> tuple[Criteria, View, Cost]:
    """Returns the criteria, the view and the cost of a request after narrowing it to the grant; from any thread.

    Raises:
        Forbidden: If the request covers what the grant excludes.
        InvalidCriteria, TooCostly: If the criteria are invalid or weigh too much.
    """
    if request.takes_rows:
        check_rows(grant)
    wanted, cost = request.read()
    view, criteria = narrow(grant, request.view, wanted)
    check_weight(cost, limits)
    if criteria is not wanted:
        cost = weigh(criteria)
        check_weight(cost, limits)
    return criteria, view, cost


def requested_feed(
    log: "ChangeLog", request: SubscribeRequest, criteria: Criteria | tuple[()], view: View, prepared: bool
) -> ChangeFeed:
    """Makes the feed of a request; may read the disk.

    Raises:
        PenstockError: If the feed cannot be made.
    """
    since: Since = request.place
    if not request.stated:
        since = kept_place(log, since, jump=request.jump or request.snapshot == "on_gap")
    elif request.since is not None:
        since = opened(request.since, log.oldest)
    return feed_of(
        log,
        criteria,
        since,
        request.until,
        view,
        whole=request.whole,
        jump=request.jump,
        prepared=prepared,
        snapshot=request.snapshot,
    )

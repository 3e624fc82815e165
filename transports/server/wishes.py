"""Narrows a subscribe request to the grant of the client, and makes its feed."""

from typing import TYPE_CHECKING

from publishers.criteria.cost import Cost, weigh
from publishers.criteria.criteria import Criteria
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.views.view import View
from transports.access.grant import Grant, check_rows, narrow
from transports.codec.messages import SubscribeWish, check_weight
from transports.codec.snapshot_places import opened
from transports.codec.starts import feed_of, kept_place
from transports.limits import Limits

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["narrowed", "wished_feed"]


def narrowed(wish: SubscribeWish, grant: Grant, limits: Limits) -> tuple[Criteria, View, Cost]:
    """Returns the criteria, the view and the cost of a request after narrowing it to the grant; from any thread.

    Raises:
        Forbidden: If the request covers what the grant excludes.
        InvalidCriteria, TooCostly: If the criteria are invalid or weigh too much.
    """
    if wish.takes_rows:
        check_rows(grant)
    wanted, cost = wish.read()
    view, criteria = narrow(grant, wish.view, wanted)
    check_weight(cost, limits)
    if criteria is not wanted:
        cost = weigh(criteria)
        check_weight(cost, limits)
    return criteria, view, cost


def wished_feed(
    log: "ChangeLog", wish: SubscribeWish, wishes: Criteria | tuple[()], view: View, prepared: bool
) -> ChangeFeed:
    """Makes the feed of a request; may read the disk.

    Raises:
        PenstockError: If the feed cannot be made.
    """
    since: Since = wish.place
    if not wish.stated:
        since = kept_place(log, since, jump=wish.jump or wish.snapshot == "on_gap")
    elif wish.since is not None:
        since = opened(wish.since, log.oldest)
    return feed_of(
        log,
        wishes,
        since,
        wish.until,
        view,
        whole=wish.whole,
        jump=wish.jump,
        prepared=prepared,
        snapshot=wish.snapshot,
    )

"""The lag of all subscriptions of a log together, and how soon retention reaches the slowest of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from publishers.fanout.ports import Subscribed
from publishers.fanout.service import Service
from publishers.fanout.state import SubscriptionLag
from publishers.model.position import Position
from publishers.wal import Follower, Wal

__all__ = ["QUANTILES", "Expiry", "LagStatistics", "lag_of"]

QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
"""Shares of the subscriptions whose lag is at most the quantile; 1 gives the slowest subscription."""

_NONE: Final = SubscriptionLag(0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Expiry:
    """How much is left until retention deletes what a consumer reads next, if the consumer stopped now.

    Attributes:
        nbytes: Bytes that may still be written; None without a bound in bytes, or if this opening does not own the log.
        seconds: Time that is left: of ``retain_age``, or of ``nbytes`` at the write rate of the last minute, whichever
            is less. None without a bound, while nothing is written, or if this opening does not own the log.
    """

    nbytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LagStatistics:
    """All subscriptions of a log together.

    Attributes:
        quantiles: The lag by each of ``QUANTILES``. A lag too large to be known exactly counts as its known minimum.
        expiry: That of the slowest subscription; without subscriptions, that of a consumer at the head.
        hold_expiry: The least that is left to any hold until it exceeds one of its caps.
    """

    quantiles: Mapping[float, SubscriptionLag] = field(default_factory=dict)
    expiry: Expiry = Expiry()
    hold_expiry: Expiry = Expiry()


class _Place(NamedTuple):
    position: Position
    id: int  # unique, so that a comparison never reaches the subscription
    one: Subscribed | None


def lag_of(files: Wal | Follower, service: Service) -> LagStatistics:
    """Examines every subscription: about a second of one thread for a million of them."""
    head = service.head
    places = sorted(_place(one, head) for one in service.registry.subscriptions())
    slowest = min(places[0].position, head) if places else head
    return LagStatistics(
        {share: _lag(service, places, share) for share in QUANTILES},
        _expiry(files, service, slowest),
        _hold_expiry(files),
    )


def _place(one: Subscribed, head: Position) -> _Place:
    """Returns the position of a subscription, past the versions in which nothing matches."""
    if one.cursor.idle:
        return _Place(head, one.id, None)
    return _Place(one.checkpoint().position, one.id, one)


def _lag(service: Service, places: list[_Place], share: float) -> SubscriptionLag:
    """Places are sorted, the slowest first: of a hundred, the 0.99 quantile is the second place."""
    one = places[math.floor(round((1 - share) * len(places), 6))].one if places else None
    return _NONE if one is None else service.admission.at_least(one.behind)


def _expiry(files: Wal | Follower, service: Service, slowest: Position) -> Expiry:
    if not isinstance(files, Wal):
        return Expiry()  # a follower does not know the owner's bounds
    nbytes, seconds = files.retention.left(slowest.version)
    rate = service.admission.rate()
    known = [] if seconds is None else [seconds]
    if nbytes is not None and rate:
        known.append(nbytes / rate)
    return Expiry(nbytes, min(known, default=None))


def _hold_expiry(files: Wal | Follower) -> Expiry:
    holds = files.retention.statistics() if isinstance(files, Wal) else ()
    return Expiry(
        min((one.bytes_left for one in holds if one.bytes_left is not None), default=None),
        min((one.seconds_left for one in holds if one.seconds_left is not None), default=None),
    )

"""The JSON of ``/statistics`` about the logs: positions, rings and subscriptions."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from publishers.errors import LogForked, PenstockError
from publishers.fanout.counters import DeliveryStatistics
from publishers.fanout.shared_publisher import Standing
from publishers.fanout.state import SubscriptionLag
from publishers.groups import GroupStatistics
from publishers.log.lag import Expiry, LagStatistics
from publishers.log.statistics import LogStatistics, PublisherStatistics, SubscriptionStatistics
from publishers.model.position import Position
from publishers.slots import SlotStatistics
from publishers.state import StateStatistics
from publishers.store.log_entries import SYSTEM
from publishers.wal import HoldStatistics
from transports.errors import shortened
from transports.telemetry.latency import Latencies

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["place_json", "statistics"]

_BOUNDS: Final = {
    "ringEvents": "ring_events",
    "ringBytes": "ring_bytes",
    "queueBytes": "queue_bytes",
    "replayBytes": "replay_bytes",
    "withheldBytes": "deferred_bytes",
    "reserveBytes": "reserve_bytes",
    "producers": "producers",
    "attachedWeight": "attached_weight",
    "matchWeight": "match_weight",
    "dispatchThreads": "dispatch_threads_max",
}
"""The log option that bounds each figure."""
# The criteria fields that reveal no values.
_NAMES: Final = frozenset({"areas", "entity_types", "operations"})
_LISTED: Final = 64
_HOLDS: Final = 64
_TYPES: Final = 64


def statistics(
    logs: "Mapping[str, ChangeLog]",
    *,
    discreet: bool = False,
    latencies: Mapping[str, Latencies] | None = None,
    sinks: Callable[[], Mapping[str, Mapping[str, Any]]] = dict,
) -> dict[str, Any]:
    """Returns the statistics of all logs as JSON.

    Lists at most 64 publishers of each log, 64 subscriptions of each publisher, and 64 holds.

    Args:
        logs: The logs by name; the system log of a store is included.
        discreet: Whether to omit the criteria fields that reveal values, i.e. keys and conditions: a client may not see the
            values of another client with wider rights.
        latencies: The recorded latencies, by the name under which they appear.
        sinks: Returns the sinks that run in this process, by log name.
    """
    listed = dict(logs.items())
    system = logs.get(SYSTEM)
    if system is not None:  # last, because it is not a log of the application
        listed[SYSTEM] = system
    told = {name: _told(log, discreet=discreet) for name, log in listed.items()}
    for called, each in (latencies or {}).items():
        for name, one in told.items():
            took = each.told(listed[name])
            if took is not None and "failure" not in one:
                one[called] = took
    for name, found in sinks().items():
        if name in told and "failure" not in told[name]:
            told[name]["sinks"] = dict(found)
    return {"logs": told}


def _told(log: "ChangeLog", *, discreet: bool) -> dict[str, Any]:
    """The statistics of one log; only the error's name if the log has failed."""
    try:
        told = log.statistics(listed=_LISTED, lag=True)
    except LogForked:
        raise
    except PenstockError as error:
        return {"failure": type(error).__name__}
    return _log(log, told, discreet=discreet)


def _log(log: "ChangeLog", told: LogStatistics, *, discreet: bool) -> dict[str, Any]:
    options = log.options
    return {
        "epoch": told.epoch,
        "oldest": place_json(log, told.oldest),
        "head": place_json(log, told.head),
        "watermark": told.head.version - 1,
        "ringEvents": options.ring_events,
        "ringBytes": options.ring_bytes,
        "framesRead": told.frames_read,
        "bytesRead": told.bytes_read,
        "durable": told.durable,
        "appended": told.appended,
        "withheld": told.withheld,
        "published": {"changes": told.published_changes, "bytes": told.published_bytes},
        "groups": told.groups,
        "syncs": told.syncs,
        "syncSeconds": told.sync_seconds,
        "segments": told.segments,
        "bytes": told.nbytes,
        "spaceLow": told.space_low,
        "reserveBytes": told.reserve_bytes,
        "clockAhead": told.clock_ahead,
        "evaluations": told.evaluations,
        "rings": {"events": told.ring_events, "bytes": told.ring_bytes, "fill": told.ring_fill},
        "replayWaiting": told.replay_waiting,
        "sourceWaiting": told.source_waiting,
        "dispatchThreads": told.dispatch_threads,
        "queued": told.queued,
        "bounds": {name: getattr(options, option) for name, option in _BOUNDS.items()},
        **_lag(told.lag),
        "queueBytes": told.queue_bytes,
        "replayBytes": told.replay_bytes,
        "withheldBytes": told.withheld_bytes,
        "heldBytes": told.held_bytes,
        "producers": told.producers,
        "holds": [_hold(log, one) for one in told.holds[:_HOLDS]],
        "holdStates": dict(Counter(one.state.value for one in told.holds)),
        "slots": {one.name: _slot(log, one) for one in told.slots.listed},
        "slotCount": told.slots.count,
        "slotsLost": told.slots.lost,
        "slotJournalBytes": told.slots.journal_bytes,
        "consumerGroups": {
            one.name: group_json(log, one, discreet=discreet) for one in told.consumer_groups.listed
        },
        "consumerGroupCount": told.consumer_groups.count,
        "consumerGroupsStopped": told.consumer_groups.stopped,
        **({} if told.state is None else {"compactedState": _state(log, told.state)}),
        "delivered": _delivered(told.delivered),
        "lagging": told.lagging,
        "detachedCount": told.detached_count,
        "attachedWeight": told.attached_weight,
        "matchWeight": told.match_weight,
        "publisherCount": told.publisher_count,
        "subscriptionCount": told.subscription_count,
        "publishers": [_publisher(log, one, discreet=discreet) for one in told.publishers],
    }


def _lag(told: LagStatistics | None) -> dict[str, Any]:
    """The lag over all subscriptions."""
    if told is None:
        return {}
    return {
        "lags": {f"{share:g}": _behind(lag) for share, lag in told.quantiles.items()},
        "expiry": _expiry(told.expiry),
        "holdExpiry": _expiry(told.hold_expiry),
    }


def _behind(told: SubscriptionLag) -> dict[str, Any]:
    return {
        "versions": told.versions,
        "changes": told.changes,
        "bytes": told.nbytes,
        "seconds": told.seconds,
    }


def _expiry(told: Expiry) -> dict[str, Any]:
    return {"bytes": told.nbytes, "seconds": told.seconds}


def _publisher(log: "ChangeLog", told: PublisherStatistics, *, discreet: bool) -> dict[str, Any]:
    ring = told.ring
    return {
        "criteria": [
            {name: values for name, values in wish.items() if not discreet or name in _NAMES}
            for wish in told.criteria
        ],
        "ring": {
            "start": None if told.standing is Standing.DETACHED else place_json(log, ring.start),
            "events": ring.events,
            "bytes": ring.nbytes,
            "live": ring.live,
            "evictedEvents": ring.evicted_events,
            "acceptedEvents": ring.linked_events,
            "copiedEvents": ring.copied_events,
            "availableEvents": ring.available_events,
        },
        "standing": told.standing.value,
        "weight": told.weight,
        "subscriptionCount": told.subscription_count,
        "subscriptions": [_subscription(log, one) for one in told.subscriptions],
    }


def _subscription(log: "ChangeLog", told: SubscriptionStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, told.position),
        "state": told.state.value,
        "lag": told.lag,
        "demand": told.demand,
        "queued": told.queued,
        "gating": told.max_lag is not None,
        "behind": {
            "versions": told.behind.versions,
            "bytes": told.behind.nbytes,
            "seconds": told.behind.seconds,
        },
        "walReads": told.reads,
        "delivered": told.delivered,
    }


def _delivered(told: DeliveryStatistics) -> dict[str, Any]:
    """The delivery counts; lists the 64 most frequent entity types."""
    most = sorted(told.entity_types.items(), key=lambda each: -each[1])
    return {
        "changes": told.changes,
        "areas": dict(told.areas),
        "entityTypes": dict(most[:_TYPES]),
        "otherTypes": told.other_types + sum(count for _, count in most[_TYPES:]),
    }


def _hold(log: "ChangeLog", told: HoldStatistics) -> dict[str, Any]:
    return {
        "name": told.name,
        "position": place_json(log, told.position),
        "state": told.state.name,
        "heldBytes": told.held_bytes,
        "bytesLeft": told.bytes_left,
        "secondsLeft": told.seconds_left,
    }


def _slot(log: "ChangeLog", told: SlotStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, told.position),
        "state": told.state.value,
        "generation": told.generation,
        "paused": told.paused,
        "lag": _behind(told.lag),
        "history": None if told.history is None else told.history.name,
        "heldBytes": told.held_bytes,
        "bytesLeft": told.bytes_left,
        "secondsLeft": told.seconds_left,
    }


def _state(log: "ChangeLog", told: StateStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, told.position),
        "lag": _behind(told.behind),
        "rows": told.rows,
        "bytes": told.nbytes,
        "batches": told.batches,
        "rebuilds": told.rebuilds,
        "failures": told.failures,
        "failed": told.failure is not None,
    }


def group_json(log: "ChangeLog", told: GroupStatistics, *, discreet: bool = False) -> dict[str, Any]:
    """The statistics of a group as JSON; if ``discreet``, without the reasons of consumers."""
    return {
        "state": told.state.value,
        "floor": place_json(log, told.floor),
        "head": place_json(log, told.head),
        "generation": told.generation,
        "consumers": len(told.consumers),
        "consumerNames": list(told.consumers[:_LISTED]),
        "pending": told.pending,
        "due": told.due,
        "parked": told.parked,
        "dying": told.dying,
        "acked": told.acked,
        "redelivered": told.redelivered,
        "dead": told.dead,
        "lost": told.lost,
        "lag": _behind(told.lag),
        "lastError": None if discreet or told.last_error is None else shortened(told.last_error),
        "nextSeconds": told.next_in,
    }


def place_json(log: "ChangeLog", position: Position) -> dict[str, Any]:
    """A position as JSON."""
    return {"version": position.version, "index": position.index, "cursor": str(log.token(position))}

"""The JSON of ``/statistics`` about the logs: positions, rings and subscriptions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from publishers.errors import LogForked, PenstockError
from publishers.fanout.counters import DeliveryStatistics
from publishers.fanout.shared_publisher import PublisherState
from publishers.fanout.state import SubscriptionLag
from publishers.groups import GroupStatistics
from publishers.log.lag import Expiry, LagStatistics
from publishers.log.statistics import LogStatistics, PublisherStatistics, SubscriptionStatistics
from publishers.model.position import Position
from publishers.slots import SlotStatistics
from publishers.state import StateStatistics
from publishers.store.log_entries import SYSTEM
from publishers.wal import HoldStatistics
from transports.codec.stored import stored_groups_json, stored_slots_json
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
    "snapshotBytes": "snapshot_bytes",
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
    by_log = {name: _log_statistics(log, discreet=discreet) for name, log in listed.items()}
    for called, each in (latencies or {}).items():
        for name, one in by_log.items():
            took = each.histogram(listed[name])
            if took is not None and "failure" not in one:
                one[called] = took
    for name, found in sinks().items():
        if name in by_log and "failure" not in by_log[name]:
            by_log[name]["sinks"] = dict(found)
    return {"logs": by_log}


def _log_statistics(log: "ChangeLog", *, discreet: bool) -> dict[str, Any]:
    """The statistics of one log; only the error's name if the log has failed."""
    try:
        statistics = log.statistics(listed=_LISTED, lag=True)
    except LogForked:
        raise
    except PenstockError as error:
        return {"failure": type(error).__name__}
    return _log(log, statistics, discreet=discreet)


def _log(log: "ChangeLog", statistics: LogStatistics, *, discreet: bool) -> dict[str, Any]:
    options = log.options
    return {
        "epoch": statistics.epoch,
        "oldest": place_json(log, statistics.oldest),
        "head": place_json(log, statistics.head),
        "watermark": statistics.head.version - 1,
        "ringEvents": options.ring_events,
        "ringBytes": options.ring_bytes,
        "framesRead": statistics.frames_read,
        "bytesRead": statistics.bytes_read,
        "durable": statistics.durable,
        "appended": statistics.appended,
        "withheld": statistics.withheld,
        "published": {"changes": statistics.published_changes, "bytes": statistics.published_bytes},
        "groups": statistics.groups,
        "syncs": statistics.syncs,
        "syncSeconds": statistics.sync_seconds,
        "segments": statistics.segments,
        "bytes": statistics.nbytes,
        "spaceLow": statistics.space_low,
        "reserveBytes": statistics.reserve_bytes,
        "clockAhead": statistics.clock_ahead,
        "evaluations": statistics.evaluations,
        "rings": {
            "events": statistics.ring_events,
            "bytes": statistics.ring_bytes,
            "fill": statistics.ring_fill,
        },
        "replayWaiting": statistics.replay_waiting,
        "sourceWaiting": statistics.source_waiting,
        "dispatchThreads": statistics.dispatch_threads,
        "queued": statistics.queued,
        "bounds": {name: getattr(options, option) for name, option in _BOUNDS.items()},
        **_lag(statistics.lag),
        "queueBytes": statistics.queue_bytes,
        "replayBytes": statistics.replay_bytes,
        "withheldBytes": statistics.withheld_bytes,
        "snapshotBytes": statistics.snapshot_bytes,
        "heldBytes": statistics.held_bytes,
        "producers": statistics.producers,
        "holds": [_hold(log, one) for one in statistics.holds[:_HOLDS]],
        "holdStates": dict(Counter(one.state.value for one in statistics.holds)),
        **(
            _stored(log, discreet=discreet)
            if log.read_only
            else _of_owner(log, statistics, discreet=discreet)
        ),
        **({} if statistics.state is None else {"compactedState": _state(log, statistics.state)}),
        "delivered": _delivered(statistics.delivered),
        "lagging": statistics.lagging,
        "detachedCount": statistics.detached_count,
        "attachedWeight": statistics.attached_weight,
        "matchWeight": statistics.match_weight,
        "publisherCount": statistics.publisher_count,
        "subscriptionCount": statistics.subscription_count,
        "publishers": [_publisher(log, one, discreet=discreet) for one in statistics.publishers],
    }


def _lag(statistics: LagStatistics | None) -> dict[str, Any]:
    """The lag over all subscriptions."""
    if statistics is None:
        return {}
    return {
        "lags": {f"{share:g}": _behind(lag) for share, lag in statistics.quantiles.items()},
        "expiry": _expiry(statistics.expiry),
        "holdExpiry": _expiry(statistics.hold_expiry),
    }


def _behind(statistics: SubscriptionLag) -> dict[str, Any]:
    return {
        "versions": statistics.versions,
        "changes": statistics.changes,
        "bytes": statistics.nbytes,
        "seconds": statistics.seconds,
    }


def _expiry(statistics: Expiry) -> dict[str, Any]:
    return {"bytes": statistics.nbytes, "seconds": statistics.seconds}


def _publisher(log: "ChangeLog", statistics: PublisherStatistics, *, discreet: bool) -> dict[str, Any]:
    ring = statistics.ring
    return {
        "criteria": _criteria(statistics.criteria, discreet=discreet),
        "ring": {
            "start": None if statistics.state is PublisherState.DETACHED else place_json(log, ring.start),
            "events": ring.events,
            "bytes": ring.nbytes,
            "live": ring.live,
            "evictedEvents": ring.evicted_events,
            "acceptedEvents": ring.linked_events,
            "copiedEvents": ring.copied_events,
            "availableEvents": ring.available_events,
        },
        "standing": statistics.state.value,
        "weight": statistics.weight,
        "subscriptionCount": statistics.subscription_count,
        "subscriptions": [_subscription(log, one) for one in statistics.subscriptions],
    }


def _subscription(log: "ChangeLog", statistics: SubscriptionStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, statistics.position),
        "state": statistics.state.value,
        "lag": statistics.lag,
        "demand": statistics.demand,
        "queued": statistics.queued,
        "gating": statistics.max_lag is not None,
        "behind": {
            "versions": statistics.behind.versions,
            "bytes": statistics.behind.nbytes,
            "seconds": statistics.behind.seconds,
        },
        "walReads": statistics.reads,
        "delivered": statistics.delivered,
    }


def _delivered(statistics: DeliveryStatistics) -> dict[str, Any]:
    """The delivery counts; lists the 64 most frequent entity types."""
    most = sorted(statistics.entity_types.items(), key=lambda each: -each[1])
    return {
        "changes": statistics.changes,
        "areas": dict(statistics.areas),
        "entityTypes": dict(most[:_TYPES]),
        "otherTypes": statistics.other_types + sum(count for _, count in most[_TYPES:]),
    }


def _hold(log: "ChangeLog", statistics: HoldStatistics) -> dict[str, Any]:
    return {
        "name": statistics.name,
        "position": place_json(log, statistics.position),
        "state": statistics.state.name,
        "heldBytes": statistics.held_bytes,
        "bytesLeft": statistics.bytes_left,
        "secondsLeft": statistics.seconds_left,
    }


def _slot(log: "ChangeLog", statistics: SlotStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, statistics.position),
        "state": statistics.state.value,
        "generation": statistics.generation,
        "paused": statistics.paused,
        "lag": _behind(statistics.lag),
        "history": None if statistics.history is None else statistics.history.name,
        "heldBytes": statistics.held_bytes,
        "bytesLeft": statistics.bytes_left,
        "secondsLeft": statistics.seconds_left,
    }


def _of_owner(log: "ChangeLog", statistics: LogStatistics, *, discreet: bool) -> dict[str, Any]:
    """The slots and groups, whose figures the owner of the log alone knows."""
    slots, groups = statistics.slots, statistics.consumer_groups
    return {
        "slots": {one.name: _slot(log, one) for one in slots.listed},
        "slotCount": slots.count,
        "slotsLost": slots.lost,
        "slotJournalBytes": slots.journal_bytes,
        "consumerGroups": {one.name: group_json(log, one, discreet=discreet) for one in groups.listed},
        "consumerGroupCount": groups.count,
        "consumerGroupsStopped": groups.stopped,
    }


def _stored(log: "ChangeLog", *, discreet: bool) -> dict[str, Any]:
    """The slots and groups of a log that this process does not own, as its owner has stored them."""
    stored: dict[str, Any] = {}
    for name, read in (("storedSlots", stored_slots_json), ("storedGroups", stored_groups_json)):
        try:
            found = read(log, listed=_LISTED + 1)
        except (PenstockError, OSError) as error:
            stored[f"{name}Failure"] = type(error).__name__
            continue
        stored[name] = [
            {**one, "criteria": _criteria(one["criteria"], discreet=discreet)} for one in found[:_LISTED]
        ]
        stored[f"{name}More"] = len(found) > _LISTED
    return stored


def _criteria(criteria: Iterable[Mapping[str, Any]], *, discreet: bool) -> list[dict[str, Any]]:
    return [
        {name: values for name, values in criterion.items() if not discreet or name in _NAMES}
        for criterion in criteria
    ]


def _state(log: "ChangeLog", statistics: StateStatistics) -> dict[str, Any]:
    return {
        "position": place_json(log, statistics.position),
        "lag": _behind(statistics.behind),
        "rows": statistics.rows,
        "bytes": statistics.nbytes,
        "batches": statistics.batches,
        "rebuilds": statistics.rebuilds,
        "failures": statistics.failures,
        "failed": statistics.failure is not None,
    }


def group_json(log: "ChangeLog", statistics: GroupStatistics, *, discreet: bool = False) -> dict[str, Any]:
    """The statistics of a group as JSON; if ``discreet``, without the reasons of consumers."""
    return {
        "state": statistics.state.value,
        "floor": place_json(log, statistics.floor),
        "head": place_json(log, statistics.head),
        "generation": statistics.generation,
        "consumers": len(statistics.consumers),
        "consumerNames": list(statistics.consumers[:_LISTED]),
        "pending": statistics.pending,
        "due": statistics.due,
        "parked": statistics.parked,
        "dying": statistics.dying,
        "acked": statistics.acked,
        "redelivered": statistics.redelivered,
        "dead": statistics.dead,
        "lost": statistics.lost,
        "lag": _behind(statistics.lag),
        "lastError": None if discreet or statistics.last_error is None else shortened(statistics.last_error),
        "nextSeconds": statistics.next_in,
    }


def place_json(log: "ChangeLog", position: Position) -> dict[str, Any]:
    """A position as JSON."""
    return {"version": position.version, "index": position.index, "cursor": str(log.token(position))}

"""The JSON of ``/statistics`` about the logs: positions, rings and subscriptions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from publishers.errors import LogForked, PenstockError
from publishers.fanout.counters import DeliveryStatistics
from publishers.fanout.service import DISPATCH_THREADS_MAX
from publishers.fanout.shared_publisher import PublisherState
from publishers.fanout.weights import ATTACHED_WEIGHT
from publishers.log.lag import LagStatistics
from publishers.log.statistics import LogStatistics, PublisherStatistics, SubscriptionStatistics
from publishers.slots import SlotStatistics
from publishers.state import StateStatistics
from publishers.store.log_entries import SYSTEM
from transports.codec.figures import group_json, plain, told
from transports.codec.stored import stored_groups_json, stored_slots_json
from transports.telemetry.latency import Latencies

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["statistics"]

# The figures of a log under their own names, and the options that bound them.
_FIGURES: Final = (
    "epoch oldest head frames_read bytes_read durable appended withheld groups syncs sync_seconds segments nbytes space_low "
    "reserve_bytes clock_ahead evaluations replay_waiting source_waiting dispatch_threads queued queue_bytes replay_bytes "
    "withheld_bytes snapshot_bytes held_bytes producers lagging detached_count attached_weight match_weight publisher_count "
    "subscription_count"
)
_BOUNDS: Final = "ring_events ring_bytes queue_bytes replay_bytes snapshot_bytes producers match_weight"
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
        **told(log, statistics, _FIGURES),
        **told(log, options, "ring_events ring_bytes"),
        "watermark": statistics.head.version - 1,
        "published": {"changes": statistics.published_changes, "bytes": statistics.published_bytes},
        "rings": {
            "events": statistics.ring_events,
            "bytes": statistics.ring_bytes,
            "fill": statistics.ring_fill,
        },
        "bounds": {
            **told(log, options, _BOUNDS),
            "reserveBytes": statistics.reserve_target_bytes,
            "withheldBytes": options.withheld_bytes,
            "attachedWeight": ATTACHED_WEIGHT,
            "dispatchThreads": DISPATCH_THREADS_MAX,
        },
        **_lag(log, statistics.lag),
        "holds": [
            told(log, one, "name position held_bytes bytes_left seconds_left") | {"state": one.state.name}
            for one in statistics.holds[:_HOLDS]
        ],
        "holdStates": dict(Counter(one.state.value for one in statistics.holds)),
        **(
            _stored(log, discreet=discreet)
            if log.read_only
            else _of_owner(log, statistics, discreet=discreet)
        ),
        **({} if statistics.state is None else {"compactedState": _state(log, statistics.state)}),
        "delivered": _delivered(statistics.delivered),
        "publishers": [_publisher(log, one, discreet=discreet) for one in statistics.publishers],
    }


def _lag(log: "ChangeLog", statistics: LagStatistics | None) -> dict[str, Any]:
    """The lag over all subscriptions."""
    if statistics is None:
        return {}
    return {
        "lags": {f"{share:g}": plain(log, lag) for share, lag in statistics.quantiles.items()},
        **told(log, statistics, "expiry hold_expiry"),
    }


def _publisher(log: "ChangeLog", statistics: PublisherStatistics, *, discreet: bool) -> dict[str, Any]:
    ring = statistics.ring
    detached = statistics.state is PublisherState.DETACHED
    return {
        "criteria": _criteria(statistics.criteria, discreet=discreet),
        "ring": {
            **told(log, ring, "start events nbytes live evicted_events copied_events available_events"),
            **({"start": None} if detached else {}),
            "acceptedEvents": ring.linked_events,
        },
        "standing": statistics.state.value,
        **told(log, statistics, "weight subscription_count"),
        "subscriptions": [_subscription(log, one) for one in statistics.subscriptions],
    }


def _subscription(log: "ChangeLog", statistics: SubscriptionStatistics) -> dict[str, Any]:
    return {
        **told(log, statistics, "position state lag demand queued delivered"),
        "gating": statistics.max_lag is not None,
        "behind": told(log, statistics.behind, "versions nbytes seconds"),
        "walReads": statistics.reads,
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


def _slot(log: "ChangeLog", statistics: SlotStatistics) -> dict[str, Any]:
    return {
        **told(log, statistics, "position state generation paused lag held_bytes bytes_left seconds_left"),
        "history": None if statistics.history is None else statistics.history.name,
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
        **told(log, statistics, "position rows nbytes batches rebuilds failures"),
        "lag": plain(log, statistics.behind),
        "failed": statistics.failure is not None,
    }

"""Statistics of a log."""

from dataclasses import dataclass
from typing import Any

from publishers.commits.group_commit import Committer
from publishers.fanout.counters import DeliveryStatistics
from publishers.fanout.ports import Subscribed
from publishers.fanout.publish_gate import PublishGate
from publishers.fanout.ring import RingStatistics
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import PublisherState, SharedPublisher
from publishers.fanout.state import MaxLag, State, SubscriptionLag
from publishers.groups import ConsumerGroups, GroupTotals
from publishers.log.lag import LagStatistics, lag_of
from publishers.model.position import Position
from publishers.slots import Slots, SlotTotals
from publishers.state import CompactedState, StateStatistics
from publishers.wal import Follower, HoldStatistics, Wal

__all__ = ["LogStatistics", "Produced", "PublisherStatistics", "SubscriptionStatistics", "statistics_of"]


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """Statistics of one subscription.

    Attributes:
        name: Its name.
        position: Everything before it was delivered, or did not match.
        state: LIVE or RESYNC, or PAUSED by an operator.
        lag: Changes of the log that it is behind; None if there are too many to count.
        demand: Changes requested and not delivered.
        max_lag: The lag above which it gates writers, or None.
        behind: The lag in versions, changes, bytes and seconds.
        reads: Frames of the WAL that were read for it, from the disk or from memory.
        delivered: Changes delivered to it.
        queued: Changes that were read for it from the WAL and not delivered yet; at most one batch.
        id: Its id for ``log.pause``, ``log.resume``, ``log.reset`` and ``log.unsubscribe``.
    """

    name: str
    position: Position
    state: State
    lag: int | None
    demand: int
    max_lag: MaxLag | None
    id: int = 0
    behind: SubscriptionLag = SubscriptionLag(0, 0, 0, 0.0)  # noqa: RUF009 - frozen
    reads: int = 0
    delivered: int = 0
    queued: int = 0


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """Statistics of one shared publisher.

    Attributes:
        criteria: Its criteria in their wire form.
        ring: Its ring.
        subscriptions: Its listed subscriptions.
        subscription_count: The number of all its subscriptions.
        state: Whether commits are matched with it; if it is DETACHED, ``ring.start`` is behind every version.
        weight: Questions that it asks of each change.
    """

    criteria: tuple[dict[str, list[Any]], ...]
    ring: RingStatistics
    subscriptions: tuple[SubscriptionStatistics, ...]
    subscription_count: int
    state: PublisherState = PublisherState.ATTACHED
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Produced:
    """The last commit of a producer.

    Attributes:
        sequence: The producer's greatest sequence.
        version: The version of that transaction.
    """

    sequence: int
    version: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Statistics of one opened log.

    Attributes:
        name: Its name.
        epoch: Epoch of the writer.
        oldest: The oldest kept position.
        head: The position after the watermark.
        publishers: Its listed shared publishers.
        evaluations: How often a predicate matched a frame, or was evaluated on one without a match.
        frames_read: Frames read from the WAL for subscribers, followers and history.
        bytes_read: Bytes of these frames.
        replay_bytes: Bytes of frames cached for lagging subscriptions.
        dispatch_threads: Threads for subscribers without an executor, at most 64, or ``dispatch_threads`` if that is more.
        replay_waiting: Subscriptions that wait for the replayer.
        source_waiting: Pages of row sources that wait for one of 4 threads.
        holds: Holds that keep history from retention; empty if this opening does not own the log.
        slots: Its slots, listed and counted; empty if this opening does not own the log.
        consumer_groups: Its consumer groups, likewise.
        held_bytes: Bytes of deleted segments that consumers keep by hard links; 0 if this opening does not own the log.
        visible: Newest version that may be delivered.
        durable: Newest version that a crash cannot lose (``sync="os"``: newest written); never below ``visible``.
        appended: Newest version written; never below ``durable``. For a read-only opening all three are the same.
        withheld: Versions withheld until ``publish`` or ``forget_after``.
        withheld_bytes: Bytes of them kept in memory, at most ``withheld_bytes``.
        snapshot_bytes: Bytes of rows that snapshots have read and their subscribers have not taken, at most ``snapshot_bytes``.
        reserve_bytes: Reserved room on the disk; while it is below ``reserve_target_bytes``, the log accepts no changes.
        reserve_target_bytes: Room that is to be reserved, which grows with the log up to the option ``reserve_bytes``.
        queued: Commits in the queue.
        queue_bytes: Their bytes, at most the option of that name, or one commit.
        producers: Producers whose last sequence is remembered, at most the option of that name.
        delivered: Changes delivered to subscribers since the log was opened, by area and by entity type.
        space_low: Whether the housekeeping has found no room on the disk.
        publisher_count: The number of all shared publishers.
        subscription_count: The number of all subscriptions.
        detached_count: The number of detached publishers.
        attached_weight: Questions that attached publishers ask of each change, at most 2,048.
        match_weight: Questions of all publishers, at most the option of that name.
        lagging: Subscriptions that no ring serves, so that they read from the WAL; paused ones too.
        clock_ahead: Seconds by which the time of the last commit is ahead of the clock. It is above 0 only after the clock was set
            back; then each commit is stamped a microsecond after the one before. 0 if this opening does not own the log.
        published_changes: Changes that became visible since the log was opened, as far as they were counted.
        published_bytes: Stored bytes of their transactions.
        groups: Groups of commits written since the log was opened; each with one write, and one sync at most.
        syncs: Syncs of commits.
        sync_seconds: Total duration of these syncs.
        segments: Segments that are kept, as far as this opening has examined them.
        nbytes: Their bytes; None if this opening does not own the log.
        ring_events, ring_bytes: Changes and bytes in all rings.
        ring_fill: Fill of the fullest ring, from 0 to 1.
        lag: The lag of all subscriptions together, if requested.
        state: The compacted state, if the log keeps it.
    """

    name: str
    epoch: int
    oldest: Position
    head: Position
    publishers: tuple[PublisherStatistics, ...]
    evaluations: int
    frames_read: int
    bytes_read: int
    replay_bytes: int
    replay_waiting: int
    holds: tuple[HoldStatistics, ...] = ()
    held_bytes: int = 0
    visible: int = 0
    durable: int = 0
    appended: int = 0
    withheld: int = 0
    withheld_bytes: int = 0
    snapshot_bytes: int = 0
    reserve_bytes: int = 0
    reserve_target_bytes: int = 0
    space_low: bool = False
    clock_ahead: float = 0.0
    queued: int = 0
    queue_bytes: int = 0
    producers: int = 0
    dispatch_threads: int = 0
    delivered: DeliveryStatistics = DeliveryStatistics()  # noqa: RUF009 - frozen
    publisher_count: int = 0
    subscription_count: int = 0
    detached_count: int = 0
    attached_weight: int = 0
    match_weight: int = 0
    lagging: int = 0
    published_changes: int = 0
    published_bytes: int = 0
    groups: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0
    segments: int = 0
    nbytes: int | None = None
    ring_events: int = 0
    ring_bytes: int = 0
    ring_fill: float = 0.0
    lag: LagStatistics | None = None
    state: StateStatistics | None = None
    source_waiting: int = 0
    slots: SlotTotals = SlotTotals()  # noqa: RUF009 - frozen
    consumer_groups: GroupTotals = GroupTotals()  # noqa: RUF009 - frozen

    @property
    def subscriptions(self) -> tuple[SubscriptionStatistics, ...]:
        """All listed subscriptions."""
        return tuple(one for publisher in self.publishers for one in publisher.subscriptions)


def statistics_of(
    name: str,
    files: Wal | Follower,
    service: Service,
    publication: PublishGate,
    committer: Committer | None = None,
    state: CompactedState | None = None,
    slots: Slots | None = None,
    consumer_groups: ConsumerGroups | None = None,
    *,
    source_waiting: int = 0,
    listed: int | None = None,
    lag: bool = False,
) -> LogStatistics:
    """Collects the statistics of an opened log.

    Args:
        name: Name of the log.
        files: Its files.
        service: Its subscribers.
        publication: Its publish gate.
        committer: Its write path, if this opening owns the log.
        state: The compacted state, if there is one.
        slots: Its slots, if this opening owns the log.
        consumer_groups: Its consumer groups, likewise.
        source_waiting: Pages of row sources that wait for a thread.
        listed: Most publishers, subscriptions of each, slots and groups to list; None for all.
        lag: Whether to examine every subscription for ``lag``.
    """
    publisher_count, subscription_count, live = service.registry.counts()
    visible, durable, appended = _versions(files, service)
    published_changes, published_bytes = service.admission.published_in_all
    syncs, sync_seconds = files.syncs if isinstance(files, Wal) else (0, 0.0)
    ring_events, ring_bytes, ring_fill = service.registry.rings()
    queued, queue_bytes = committer.waiting if committer is not None else (0, 0)
    return LogStatistics(
        name=name,
        epoch=files.epoch,
        oldest=service.oldest,
        head=service.head,
        publishers=tuple(_publisher(*one) for one in service.registry.listed(listed)),
        evaluations=publication.evaluations,
        frames_read=files.reader.statistics.frames,
        bytes_read=files.reader.statistics.bytes,
        replay_bytes=service.frames.nbytes + service.stretches.nbytes,
        replay_waiting=service.replayer.waiting,
        visible=visible,
        durable=durable,
        appended=appended,
        withheld=0 if committer is None else len(committer.withheld or ()),
        withheld_bytes=committer.held.nbytes if committer is not None else 0,
        snapshot_bytes=service.pages.nbytes,
        queued=queued,
        queue_bytes=queue_bytes,
        dispatch_threads=service.dispatch_threads,
        delivered=service.deliveries.statistics(),
        publisher_count=publisher_count,
        subscription_count=subscription_count,
        detached_count=service.registry.weights.detached,
        attached_weight=service.registry.weights.attached,
        match_weight=service.registry.weights.weight,
        lagging=max(0, subscription_count - live),
        published_changes=published_changes,
        published_bytes=published_bytes,
        groups=committer.groups if committer is not None else 0,
        syncs=syncs,
        sync_seconds=sync_seconds,
        segments=files.reader.segments,
        ring_events=ring_events,
        ring_bytes=ring_bytes,
        ring_fill=ring_fill,
        lag=lag_of(files, service) if lag else None,
        state=None if state is None else state.statistics(),
        source_waiting=source_waiting,
        slots=SlotTotals() if slots is None else slots.statistics(listed=listed),
        consumer_groups=_groups(consumer_groups, listed),
        **_of_files(files),
    )


def _of_files(files: Wal | Follower) -> dict[str, Any]:
    """Returns the fields that only the owner's files know; in a follower they keep their defaults."""
    if not isinstance(files, Wal):
        return {}
    return {
        "holds": files.retention.statistics(),
        "held_bytes": files.links.held_bytes,
        "reserve_bytes": files.reserve_bytes,
        "reserve_target_bytes": files.reserve_target_bytes,
        "space_low": files.space_low,
        "clock_ahead": files.clock_ahead,
        "producers": files.producers,
        "nbytes": files.bytes,
    }


def _groups(groups: ConsumerGroups | None, listed: int | None) -> GroupTotals:
    return GroupTotals() if groups is None else groups.statistics(listed=listed)


def _versions(files: Wal | Follower, service: Service) -> tuple[int, int, int]:
    """Returns the newest visible, durable and appended versions."""
    # They are read one after the other, and a truncation may come in between.
    visible = service.watermark.visible
    durable, appended = (files.durable, files.appended) if isinstance(files, Wal) else (visible, visible)
    durable = min(durable, appended)
    return min(visible, durable), durable, appended


def _publisher(shared: SharedPublisher, count: int, some: list[Subscribed]) -> PublisherStatistics:
    return PublisherStatistics(
        tuple(shared.criteria.to_json()),
        shared.ring.statistics(),
        tuple(map(_subscription, some)),
        count,
        shared.state,
        shared.weight,
    )


def _subscription(one: Subscribed) -> SubscriptionStatistics:
    at = one.checkpoint()
    state = State.PAUSED if one.paused else at.state
    lag = one.behind
    return SubscriptionStatistics(
        one.name,
        at.position,
        state,
        lag.changes,
        one.demand,
        one.max_lag,
        one.id,
        lag,
        one.reads,
        one.delivered,
        one.queued,
    )

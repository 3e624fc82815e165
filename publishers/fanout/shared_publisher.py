"""One publisher for all subscriptions with equal criteria."""

from collections.abc import Callable
from enum import Enum

from flow.executors import Executor
from publishers.criteria.criteria import Criteria
from publishers.criteria.index import Prepared, prepare
from publishers.criteria.predicate import Predicate
from publishers.fanout.group import DeliveryGroup
from publishers.fanout.ports import Subscribed
from publishers.fanout.ring import Ring
from publishers.model.position import Position
from publishers.options import LogOptions

__all__ = ["PublisherState", "SharedPublisher"]


class PublisherState(Enum):
    """Whether commits are matched with a publisher's criteria."""

    ATTACHED = "ATTACHED"
    """Its criteria are in the matching index, and its ring holds the matching changes."""

    DETACHED = "DETACHED"
    """Its conditions are too expensive to be evaluated in every commit. Its ring covers nothing; its subscriptions read from
    the WAL, served after all others."""


class SharedPublisher:
    """A predicate, its ring, and the subscriptions with equal criteria.

    It lives from its first subscription to its last. The registry creates another one for the next subscription.

    Attributes:
        criteria: The criteria of its subscriptions.
        predicate: The criteria, compiled.
        prepared: The criteria, prepared for the matching index.
        state: Whether the criteria are in the index. It changes under the registry's lock only; except for a new publisher,
            only the holder of the publish gate changes it.
        weight: How many conditions the index cannot look up, so that each is evaluated for every change.
        ring: The recent matching changes.
        subscriptions: Its subscriptions; changed under the registry's lock only.
        groups: Its delivery groups by executor; changed under the registry's lock only.
    """

    def __init__(self, prepared: Prepared, start: Position, options: LogOptions) -> None:
        self.criteria: Criteria = prepared.criteria
        self.predicate: Predicate = prepared.predicate
        self.prepared: Prepared = prepared
        self.state = PublisherState.ATTACHED
        self.weight: int = prepared.asks
        self.ring: Ring = Ring(start, max_events=options.ring_events, max_bytes=options.ring_bytes)
        self.subscriptions: dict[Subscribed, None] = {}
        self.groups: dict[Executor | None, DeliveryGroup] = {}

    def reenter(self, start: Position) -> None:
        """Prepares the criteria for the matching index again; the ring covers changes from ``start`` on."""
        if self.prepared.own is None:  # else its tables were not dropped
            self.prepared = prepare(self.predicate)
        self.ring.attach(start)

    def join(
        self, executor: Executor, make: Callable[[Ring, Executor | None], DeliveryGroup]
    ) -> DeliveryGroup:
        """Returns the group of a new subscription, created for the first member. The caller holds the registry's lock."""
        key = DeliveryGroup.key(executor)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = make(self.ring, key)
        group.members += 1
        return group

    def leave(self, group: DeliveryGroup) -> None:
        """Removes one member from a group, and an empty group. The caller holds the registry's lock."""
        group.members -= 1
        if not group.members:
            del self.groups[group.executor]

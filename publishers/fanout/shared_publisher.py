"""One publisher for all who want the same."""

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

__all__ = ["SharedPublisher", "Standing"]


class Standing(Enum):
    """Whether commits are matched with a publisher's criteria."""

    ATTACHED = "ATTACHED"
    """Its criteria are in the matching index, and its ring has what matches."""

    DETACHED = "DETACHED"
    """It has too many questions for every commit to wait for, so its ring covers nothing, and all of its subscriptions read
    from the WAL, behind all others."""


class SharedPublisher:
    """A predicate, its ring, and the subscriptions with equal criteria.

    It lives from its first subscription to its last; the registry makes it anew on demand.

    Attributes:
        criteria: What its subscribers want.
        predicate: The same, compiled.
        prepared: The same, as it goes into the matching index.
        standing: Whether it is in that; changed under the registry's lock only, and by whoever publishes, but for a new one.
        weight: How many questions it has for a change that the index cannot look up.
        ring: The recent matching changes.
        subscriptions: Who subscribes; changed under the registry's lock only.
        groups: The same by executor, as far as they are served together.
    """

    def __init__(self, prepared: Prepared, start: Position, options: LogOptions) -> None:
        self.criteria: Criteria = prepared.criteria
        self.predicate: Predicate = prepared.predicate
        self.prepared = prepared
        self.standing = Standing.ATTACHED
        self.weight = prepared.asks
        self.ring = Ring(start, max_events=options.ring_events, max_bytes=options.ring_bytes)
        self.subscriptions: dict[Subscribed, None] = {}
        self.groups: dict[Executor | None, DeliveryGroup] = {}

    def reenter(self, start: Position) -> None:
        """Is ready to be put into the matching index again; its ring covers what is matched from there on."""
        if self.prepared.own is None:  # else the tables are still there
            self.prepared = prepare(self.predicate)
        self.ring.attach(start)

    def join(
        self, executor: Executor, make: Callable[[Ring, Executor | None], DeliveryGroup]
    ) -> DeliveryGroup:
        """The group of a new subscription, made if it is the first; under the registry's lock."""
        key = DeliveryGroup.key(executor)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = make(self.ring, key)
        group.members += 1
        return group

    def leave(self, group: DeliveryGroup) -> None:
        """A subscription has left, under the registry's lock."""
        group.members -= 1
        if not group.members:
            del self.groups[group.executor]

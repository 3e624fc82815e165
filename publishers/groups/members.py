"""The consumers of a group, in memory: those that have joined and are not fenced."""

from publishers.errors import TooCostly
from publishers.groups.errors import ConsumerFenced
from publishers.groups.ready_heap import ReadyHeap
from publishers.groups.settings import GroupSettings
from publishers.groups.unit import GroupUnit, Holder
from publishers.model.position import Position

__all__ = ["GroupConsumer", "GroupConsumers"]


class GroupConsumer:
    """One that has joined.

    Attributes:
        name: What it is called.
        generation: Of its joining.
        holder: Both, as what is delivered to it bears them.
        seen: When it was heard of, by the monotonic clock.
        pending: What was delivered to the consumer of this name and is not acknowledged.
        ready: What it may have because it has an earlier one of the same key.
        waiting: How many of its calls wait for deliveries; while one does, it is not absent.
    """

    __slots__ = ("generation", "holder", "name", "pending", "ready", "seen", "waiting")

    def __init__(self, name: str, generation: int, seen: float, units: dict[Position, GroupUnit]) -> None:
        self.name = name
        self.generation = generation
        self.holder = Holder(name, generation)
        self.seen = seen
        self.pending: dict[Position, GroupUnit] = {}
        self.ready = ReadyHeap(units)
        self.waiting = 0


class GroupConsumers:
    """All of them.

    Args:
        group: What errors call the group.
        settings: ``max_consumers`` and ``consumer_ttl``.
        generation: The last one that was given out.

    Attributes:
        generation: Likewise.
        next_absent: When one may be absent, by the monotonic clock, or earlier; None if none will be.
    """

    def __init__(self, group: str, settings: GroupSettings, generation: int) -> None:
        self.generation = generation
        self.next_absent: float | None = None
        self._group = group
        self._settings = settings
        self._known: dict[str, GroupConsumer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def listed(self) -> list[GroupConsumer]:
        """Those that have joined, by their names."""
        return [self._known[name] for name in sorted(self._known)]

    def check_room(self, name: str) -> None:
        """Refuses one too many.

        Raises:
            TooCostly: If there are ``max_consumers`` already.
        """
        count, most = len(self._known) + 1, self._settings.max_consumers
        if name not in self._known and count > most:
            raise TooCostly("max_consumers", count, most, "to let some leave", what="consumers of the group")

    def join(self, name: str, generation: int, now: float, units: dict[Position, GroupUnit]) -> GroupConsumer:
        """One comes; the one of its name before it is fenced, and leaves what it has pending to it."""
        consumer, before = GroupConsumer(name, generation, now, units), self._known.get(name)
        if before is not None and before.generation > generation:
            return consumer  # fenced already, as another joined while its generation was written
        if before is not None:
            consumer.pending, before.pending = before.pending, {}
        self._known[name] = consumer
        self._expect(now)
        self.generation = max(self.generation, generation)
        return consumer

    def remove(self, consumer: GroupConsumer) -> None:
        """One has gone."""
        if self._known.get(consumer.name) is consumer:
            del self._known[consumer.name]

    def get(self, holder: Holder) -> GroupConsumer | None:
        """The consumer to which something was delivered, if that still counts."""
        found = self._known.get(holder.consumer)
        return found if found is not None and found.generation == holder.generation else None

    def forget(self, name: str, position: Position) -> None:
        """Something is not pending at a consumer any more."""
        found = self._known.get(name)
        if found is not None:
            found.pending.pop(position, None)

    def absent(self, now: float) -> list[GroupConsumer]:
        """Those that were not heard of for too long."""
        if self.next_absent is None or now < self.next_absent:
            return []
        self.next_absent = None
        found = []
        for one in self._known.values():
            if one.waiting:
                continue
            if now - one.seen >= self._settings.consumer_ttl:
                found.append(one)
            else:
                self._expect(one.seen)
        return found

    def begin_wait(self, consumer: GroupConsumer) -> None:
        """A call of a consumer waits for deliveries."""
        consumer.waiting += 1

    def end_wait(self, consumer: GroupConsumer, now: float) -> None:
        """It waits no more."""
        consumer.waiting -= 1
        consumer.seen = now
        self._expect(now)

    def _expect(self, seen: float) -> None:
        """One that was heard of at a time may be absent later."""
        until = seen + self._settings.consumer_ttl
        self.next_absent = until if self.next_absent is None else min(self.next_absent, until)

    def check(self, consumer: GroupConsumer) -> None:
        """Refuses one that does not count any more.

        Raises:
            ConsumerFenced: If it joined again, or was removed.
        """
        current = self._known.get(consumer.name)
        if current is not consumer:
            gone = (
                "it was removed, or the group was moved" if current is None else "it has joined again since"
            )
            raise self.fenced(consumer, f"{gone}; join again")

    def fenced(self, consumer: GroupConsumer, why: str) -> ConsumerFenced:
        """What a consumer is refused with."""
        current = self._known.get(consumer.name)
        return ConsumerFenced(
            self._group,
            consumer.name,
            consumer.generation,
            None if current is None else current.generation,
            why,
        )

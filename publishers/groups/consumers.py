"""The consumers of a group, in memory: those that have joined and are not fenced."""

from publishers.errors import TooCostly
from publishers.groups.errors import ConsumerFenced
from publishers.groups.schedule import ReadyHeap
from publishers.groups.settings import GroupSettings
from publishers.groups.unit import GroupUnit, Holder
from publishers.model.position import Position

__all__ = ["GroupConsumer", "GroupConsumers"]


class GroupConsumer:
    """A consumer that has joined.

    Attributes:
        name: Its name.
        generation: The generation of its joining.
        holder: Name and generation, as its deliveries record them.
        seen: Monotonic time of its last call.
        pending: Deliveries to this name that are not acknowledged, those of earlier generations included.
        ready: Units that only this consumer may receive, because an earlier one of the same key is pending there.
        waiting: Number of its calls that wait for deliveries; a consumer with a waiting call is not absent.
    """

    __slots__ = ("generation", "holder", "name", "pending", "ready", "seen", "waiting")

    def __init__(self, name: str, generation: int, seen: float, units: dict[Position, GroupUnit]) -> None:
        self.name: str = name
        self.generation: int = generation
        self.holder: Holder = Holder(name, generation)
        self.seen: float = seen
        self.pending: dict[Position, GroupUnit] = {}
        self.ready: ReadyHeap = ReadyHeap(units)
        self.waiting: int = 0


class GroupConsumers:
    """All consumers of one group.

    Args:
        group: The name of the group, for errors.
        settings: The settings, of which ``max_consumers`` and ``consumer_ttl`` count.
        generation: The last generation assigned.

    Attributes:
        generation: The last generation assigned.
        next_absent: Monotonic time before which no consumer becomes absent; None if none will.
    """

    def __init__(self, group: str, settings: GroupSettings, generation: int) -> None:
        self.generation: int = generation
        self.next_absent: float | None = None
        self._group = group
        self._settings = settings
        self._known: dict[str, GroupConsumer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def listed(self) -> list[GroupConsumer]:
        """The joined consumers, by name."""
        return [self._known[name] for name in sorted(self._known)]

    def check_room(self, name: str) -> None:
        """Checks that a consumer may join.

        Raises:
            TooCostly: If there are ``max_consumers`` already.
        """
        count, most = len(self._known) + 1, self._settings.max_consumers
        if name not in self._known and count > most:
            raise TooCostly("max_consumers", count, most, "to let some leave", what="consumers of the group")

    def join(self, name: str, generation: int, now: float, units: dict[Position, GroupUnit]) -> GroupConsumer:
        """Adds a consumer. An earlier consumer of the name is fenced, and its pending deliveries pass to the new one."""
        consumer, before = GroupConsumer(name, generation, now, units), self._known.get(name)
        if before is not None and before.generation > generation:
            return consumer  # already fenced: a later joining was faster
        if before is not None:
            consumer.pending, before.pending = before.pending, {}
        self._known[name] = consumer
        self._expect(now)
        self.generation = max(self.generation, generation)
        return consumer

    def remove(self, consumer: GroupConsumer) -> None:
        """Removes a consumer, unless another one has joined under its name."""
        if self._known.get(consumer.name) is consumer:
            del self._known[consumer.name]

    def get(self, holder: Holder) -> GroupConsumer | None:
        """Returns the consumer of a delivery's holder; None if it has left or was fenced."""
        found = self._known.get(holder.consumer)
        return found if found is not None and found.generation == holder.generation else None

    def forget(self, name: str, position: Position) -> None:
        """Removes a position from the pending deliveries of a consumer."""
        found = self._known.get(name)
        if found is not None:
            found.pending.pop(position, None)

    def absent(self, now: float) -> list[GroupConsumer]:
        """The consumers without a call for ``consumer_ttl``."""
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
        """Notes that a call of a consumer waits for deliveries."""
        consumer.waiting += 1

    def end_wait(self, consumer: GroupConsumer, now: float) -> None:
        """Notes that a call of a consumer has ended its wait."""
        consumer.waiting -= 1
        consumer.seen = now
        self._expect(now)

    def _expect(self, seen: float) -> None:
        """Sets `next_absent` for a consumer whose last call was at ``seen``."""
        until = seen + self._settings.consumer_ttl
        self.next_absent = until if self.next_absent is None else min(self.next_absent, until)

    def check(self, consumer: GroupConsumer) -> None:
        """Checks that a consumer is current.

        Raises:
            ConsumerFenced: If another consumer has joined under its name, or it was removed.
        """
        current = self._known.get(consumer.name)
        if current is not consumer:
            gone = (
                "it was removed, or the group was moved" if current is None else "its name has joined again"
            )
            raise self.fenced(consumer, f"{gone}; join again")

    def fenced(self, consumer: GroupConsumer, why: str) -> ConsumerFenced:
        """Builds the error with which a consumer is refused."""
        current = self._known.get(consumer.name, consumer).generation
        return ConsumerFenced(self._group, consumer.generation, current, consumer.name, why)

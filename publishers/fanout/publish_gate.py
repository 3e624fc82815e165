"""The publish gate: durable transactions become visible, in version order, for all subscriptions at once."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.fanout.bench import RingCursor
from publishers.fanout.chunk import Chunk
from publishers.fanout.ports import Wakeable
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import SharedPublisher

__all__ = ["PublishGate", "Published", "wake"]


_JUDGED: Final = 4096
"""Changes matched between two looks for publishers that cost too much."""


class Published(NamedTuple):
    """A transaction on its way to the subscribers.

    Attributes:
        version: Its version.
        size: Number of its changes, TRANSACTION event included; 0 if it is not known.
        blocks: Builds its changes, and is called only if there is a publisher to match. None if the changes are too large for
            memory; rings restart behind the transaction then.
        nbytes: Its stored bytes; 0 if they are not known.
        committed_at: Its commit time in microseconds since the Unix epoch; 0 if it is not known.
    """

    version: int
    size: int
    blocks: Callable[[], Sequence[Block]] | None
    nbytes: int = 0
    committed_at: int = 0


def wake(subscriptions: Iterable[Wakeable]) -> None:
    """Wakes subscriptions. User code may run here, so the caller holds no gate.

    A deque is emptied as its entries are woken, so a caller that was interrupted here can call again with the rest.
    """
    waiting = subscriptions if isinstance(subscriptions, deque) else deque(subscriptions)
    try:
        while waiting:
            waiting[0].wake()
            waiting.popleft()
    finally:
        if waiting:
            # An exception such as KeyboardInterrupt must not leave a subscription asleep. Waking one twice is harmless.
            wake(waiting)


class PublishGate:
    """Matches transactions, links their chunks into the rings, and advances the watermark.

    Attributes:
        gate: Held while publishing; acquired in version order.
        evaluations: How often a predicate was evaluated on a block.
    """

    def __init__(self, service: Service) -> None:
        self.gate: threading.Lock = threading.Lock()
        self.evaluations: int = 0
        self._service = service
        self._halfway = False  # publish() failed before the advance, and some rings hold its chunks

    @property
    def visible(self) -> int:
        """Newest version that may be delivered."""
        return self._service.watermark.visible

    def publish(self, transactions: Sequence[Published]) -> list[Wakeable]:
        """Makes transactions visible. The caller holds the gate, and wakes the returned subscriptions after releasing it.

        If it fails, its chunks are in some rings and not in others. The next call then restarts all rings behind its own newest
        version, so every cursor reads the missing changes from the WAL.
        """
        service = self._service
        newest = transactions[-1].version
        if self._halfway:
            transactions = [Published(newest, sum(one.size for one in transactions), None)]
        self._halfway = True
        registry = service.registry
        visible = service.watermark.visible
        index = registry.snapshot(newest)
        before, published = index.evaluations, service.admission.published
        overtaken: list[RingCursor] = []
        touched: dict[SharedPublisher, int] = {}  # the place of the first new chunk
        for transaction in transactions:
            version, size, blocks, nbytes, committed_at = transaction
            published(version, size, nbytes, committed_at)
            if blocks is None:
                for shared in registry.publishers():
                    overtaken += shared.ring.restart(version, visible)
                continue
            if not index.entries:
                continue
            parts: dict[SharedPublisher, list[Slice]] = {}
            for block in blocks():
                for shared, indices in index.match(block):
                    parts.setdefault(shared, []).append(Slice(block, indices))
                if index.matched >= _JUDGED:
                    for shared, cursors in registry.detach_costly(visible):
                        overtaken += cursors
                        parts.pop(shared, None)
            for shared, slices in parts.items():
                chunk = Chunk(version, tuple(slices))
                overtaken += shared.ring.link(chunk, visible)
                touched.setdefault(shared, chunk.place)
        self.evaluations += index.evaluations - before
        service.watermark.advance(newest)
        self._halfway = False
        if touched or overtaken or not service.waiting.empty:
            return self._concerned(touched, overtaken)
        return []

    def all_subscriptions(self) -> list[Wakeable]:
        """All subscriptions: the ones to wake when it is unknown how far a publish has got."""
        return list(self._service.registry.subscriptions())

    def _concerned(
        self, touched: Mapping[SharedPublisher, int], overtaken: Sequence[RingCursor]
    ) -> list[Wakeable]:
        """The groups and subscriptions to wake.

        They are collected after the advance, so a subscription that read the old watermark and then went to wait is not missed.
        """
        found: dict[Wakeable, None] = {}
        for shared, place in touched.items():
            concerned = None
            for group in tuple(shared.groups.values()):
                if group.sleeps:
                    concerned = shared.ring.groups(place) if concerned is None else concerned
                    if group not in concerned and not group.lost:
                        continue
                # A group off an event loop finds out by itself whether a cursor stands there.
                group.note(place)
                found[group] = None
        for cursor in overtaken:
            found[cursor.owner] = None
        if not self._service.waiting.empty:
            for subscription in self._service.waiting.due(self._service.replayer):
                found[subscription] = None
        return list(found)

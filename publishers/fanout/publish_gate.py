"""The publish gate: what is durable becomes visible, in version order, for everybody at once."""

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
"""Changes that are matched before those are detached that asked too much of them."""


class Published(NamedTuple):
    """A transaction on its way to the subscribers.

    Attributes:
        version: Its version.
        size: Its changes, TRANSACTION event included.
        blocks: Makes its changes, if anybody wants them; None if they are too large for memory, and rings restart
            behind it.
        nbytes: Its stored bytes, as far as they are known.
        committed_at: Its commit time in microseconds since the Unix epoch; 0 if it is not known.
    """

    version: int
    size: int
    blocks: Callable[[], Sequence[Block]] | None
    nbytes: int = 0
    committed_at: int = 0


def wake(subscriptions: Iterable[Wakeable]) -> None:
    """Lets subscriptions look for something to deliver. User code may run here, so hold no gate.

    A deque is emptied, so that whoever was interrupted here can go on.
    """
    waiting = subscriptions if isinstance(subscriptions, deque) else deque(subscriptions)
    try:
        while waiting:
            waiting[0].wake()
            waiting.popleft()
    finally:
        if waiting:
            # KeyboardInterrupt, say; nobody must sleep on because of it, and to be woken twice is harmless.
            wake(waiting)


class PublishGate:
    """Matches transactions, links their chunks into the rings, and advances the watermark.

    Attributes:
        gate: Held by whoever publishes; taken in version order.
        evaluations: How often a predicate was asked about a block.
    """

    def __init__(self, service: Service) -> None:
        self.gate = threading.Lock()
        self.evaluations = 0
        self._service = service
        self._halfway = False  # a publishing has failed before the advance, and some rings have its chunks

    @property
    def visible(self) -> int:
        """Newest version that subscribers may be given."""
        return self._service.watermark.visible

    def publish(self, transactions: Sequence[Published]) -> list[Wakeable]:
        """Makes transactions visible. The caller holds the gate, and wakes whom this returns after leaving it.

        If it fails, what it was to show is in some rings and in others not: the next one restarts them all behind what
        it shows itself, so that everybody reads from the WAL what is missing.
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
        touched: dict[SharedPublisher, int] = {}  # the place of the first chunk that is new
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

    def everybody(self) -> list[Wakeable]:
        """Whom to wake when nobody knows how far a publishing has gone."""
        return list(self._service.registry.subscriptions())

    def _concerned(
        self, touched: Mapping[SharedPublisher, int], overtaken: Sequence[RingCursor]
    ) -> list[Wakeable]:
        """Whom to wake; found after the advance, so that nobody who looked before it is missed."""
        found: dict[Wakeable, None] = {}
        for shared, place in touched.items():
            concerned = None
            for group in tuple(shared.groups.values()):
                if group.sleeps:
                    concerned = shared.ring.groups(place) if concerned is None else concerned
                    if group not in concerned and not group.lost:
                        continue
                group.note(place)  # and else it looks for itself
                found[group] = None
        for cursor in overtaken:
            found[cursor.owner] = None
        if not self._service.waiting.empty:
            for subscription in self._service.waiting.due(self._service.replayer):
                found[subscription] = None
        return list(found)

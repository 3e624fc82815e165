"""How a read-only opening learns of commits and carries them to its own subscribers."""

import contextlib
from collections.abc import Callable, Sequence

from publishers.block import Block
from publishers.errors import PenstockError
from publishers.publication import Publication, Published, wake
from publishers.replayer import FrameCache
from publishers.service import Service
from publishers.wal import Follower, Location

__all__ = ["Following"]


class Following:
    """Publishes in this process what the owner of the log has made visible.

    Args:
        follower: The log's files, read-only.
        service: This process's subscribers.
        publication: This process's publish gate.
    """

    def __init__(self, follower: Follower, service: Service, publication: Publication) -> None:
        self._follower = follower
        self._service = service
        self._publication = publication
        self._location: Location | None = None
        self._behind_max = service.options.ring_bytes

    def step(self) -> bool:
        """Looks once for something new; answers whether there was something."""
        visible = self._follower.refresh()
        published = self._service.watermark.visible
        if visible <= published:
            return False
        transactions = None
        if self._service.registry.publishers():
            # What cannot be read here is told to those who need it, by the replayer.
            with contextlib.suppress(PenstockError):
                transactions = self._read(published, visible)
        if transactions is None:
            self._location = None
            transactions = [Published(visible, 0, None)]
        with self._publication.gate:
            woken = self._publication.publish(transactions)
        wake(woken)
        return True

    def _read(self, published: int, visible: int) -> list[Published] | None:
        """What became visible, or None if it is more than the rings would keep."""
        frames: FrameCache = self._service.frames
        location = self._location or frames.locate(published + 1, 0)
        transactions: list[Published] = []
        blocks: list[Block] = []
        weight = 0
        while True:
            found = frames.read(location)
            if found is None or found[0].version > visible:
                break
            block, location = found
            blocks.append(block)
            weight += block.weight
            if weight > self._behind_max:
                return None
            if block.ends:
                transactions.append(Published(block.version, block.transaction_count, _given(blocks)))
                blocks = []
        self._location = location
        return transactions or None


def _given(blocks: Sequence[Block]) -> Callable[[], Sequence[Block]]:
    return lambda: blocks

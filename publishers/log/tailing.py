"""How a read-only opening learns of commits and carries them to its own subscribers."""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Final

from publishers.blocks.block import BLOCK_BYTES, Block
from publishers.errors import FormatTooNew, LogGone, LogReplaced, PenstockError, WalCorrupted
from publishers.fanout.publish_gate import Published, PublishGate, wake
from publishers.fanout.replayer import FrameCache
from publishers.fanout.service import Service
from publishers.wal import Follower, Listener, Location

__all__ = ["Following"]

_DOUBT: Final = 1.0
"""Seconds for which it looks often after it was not told of something; an owner finds a new reader in a quarter of that."""

_ENDS: Final = (FormatTooNew, LogGone, LogReplaced, WalCorrupted)
"""What ends a follower if two looks in a row meet it."""


class Following:
    """Publishes in this process what the writer of the log has made visible.

    Args:
        follower: The log's files, read-only.
        service: This process's subscribers.
        publication: This process's publish gate.
        listener: Where it waits until the writer has committed.
        lose: Is told why nothing can follow any more.

    Attributes:
        looked: When it looked last and saw the log, in seconds of the service's clock.
    """

    def __init__(
        self,
        follower: Follower,
        service: Service,
        publication: PublishGate,
        listener: Listener,
        lose: Callable[[PenstockError], None],
    ) -> None:
        self._follower = follower
        self._lose = lose
        self._suspects = False
        self._listener = listener
        self._often = service.options.tail_poll
        self._seldom = max(service.options.tail_idle, self._often)
        self._doubting = self._looks = math.ceil(_DOUBT / self._often)
        self._notified = False
        self._service = service
        self.looked = service.clock.monotonic()
        self._publication = publication
        self._location: Location | None = None
        self._behind_max = service.options.ring_bytes

    def wait(self) -> None:
        """Waits until it is worth to look again.

        A follower that is notified needs to look at TAIL only now and then. It knows that it is notified from the first
        notification, which a writer sends to each new listener; until then, and after it has found something without a
        notification, it looks every ``tail_poll`` for a while. One that cannot be notified does so always.
        """
        often = self._doubting or self._listener.kind == "poll"
        self._notified = self._listener.wait(self._often if often else self._seldom)
        self._doubting = 0 if self._notified else max(self._doubting - 1, 0)

    def wake(self) -> None:
        """Ends the wait of another thread."""
        self._listener.wake()

    def close(self) -> None:
        """Closes the listener, once no thread waits."""
        self._listener.close()

    def explain(self, error: Exception) -> Exception:
        """What an error of a read comes from: that the log is not there any more, or something else is; else it is the error itself.

        The read has failed and a look says why, so one look is enough.
        """
        try:
            self._follower.check()
        except (LogGone, LogReplaced) as found:
            return found
        except PenstockError:
            pass
        return error

    def step(self) -> bool:
        """Looks once for something new; answers whether there was something.

        What would end it is looked at again after ``tail_poll``: it may pass.
        """
        try:
            visible = self._follower.refresh()
        except _ENDS as error:
            if self._suspects:
                self._lose(error)
            self._suspects = True
            self._doubting = max(self._doubting, 1)
            return False
        self._suspects = False
        self.looked = self._service.clock.monotonic()
        published = self._service.watermark.visible
        if visible <= published:
            return False
        if not self._notified:
            self._doubting = self._looks
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
            weight += BLOCK_BYTES + block.weight
            if weight > self._behind_max:
                return None
            if block.ends:
                count, nbytes, at = block.transaction_count, block.transaction_bytes, block.committed_at
                transactions.append(Published(block.version, count, partial(list, blocks), nbytes, at))
                blocks = []
                if block.version == visible:
                    break
        self._location = location
        return transactions or None

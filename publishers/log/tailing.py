"""How a read-only opening notices commits and publishes them to its own subscribers."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from publishers.background import BackgroundThread
from publishers.blocks.block import BLOCK_BYTES, Block
from publishers.errors import FormatTooNew, LogExhausted, LogGone, LogReplaced, PenstockError, WalCorrupted
from publishers.fanout.publish_gate import Published, PublishGate, wake
from publishers.fanout.replayer import FrameCache
from publishers.fanout.service import Service
from publishers.wal import Follower, Listener, Location

__all__ = ["TAIL_IDLE", "Following"]

TAIL_IDLE: Final = 1.0
"""Poll interval in seconds of a read-only opening that receives notifications of commits: one that was lost costs so much time."""

_LOG: Final = logging.getLogger("penstock.follower")
_HOUSE: Final = logging.getLogger("penstock.housekeeping")
_AGAIN: Final = 60.0  # seconds until a follower says again what it lacks
_DOUBT: Final = 1.0
"""Seconds of frequent polling after a missed notification; an owner finds a new reader in a quarter of that."""

_ENDS: Final = (FormatTooNew, LogGone, LogReplaced, WalCorrupted)
"""Errors that end a follower if two polls in a row meet one."""


class Following:
    """Publishes in this process what the writer of the log has made visible.

    Args:
        follower: The log's files, read-only.
        service: This process's subscribers.
        publication: This process's publish gate.
        listener: Waits for a notification of the writer.
        lose: Called with the error that ends the follower.

    Attributes:
        looked: Time of the last successful poll, in seconds of the service's monotonic clock.
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
        self._complains_at = 0.0
        self._listener = listener
        self._often = service.options.tail_poll
        self._seldom = max(TAIL_IDLE, self._often)
        self._doubting = self._looks = math.ceil(_DOUBT / self._often)
        self._notified = False
        self._service = service
        self.looked: float = service.clock.monotonic()
        self._publication = publication
        self._location: Location | None = None
        self._behind_max = service.options.ring_bytes

    def wait(self) -> None:
        """Waits until the next poll is due.

        A follower that receives notifications polls TAIL only rarely, every `TAIL_IDLE` seconds. It counts on notifications from the
        first one, which a writer sends to each new listener. Until then, and for a while after a poll has found something
        without a notification, it polls every ``tail_poll``. A follower that cannot be notified always does.
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
        """Returns why a read failed: the log is gone, or was replaced; else the error itself.

        The read has already failed, so a single check is enough.
        """
        try:
            self._follower.check()
        except (LogGone, LogReplaced) as found:
            return found
        except PenstockError:
            pass
        return error

    def step(self) -> bool:
        """Polls once; returns whether there was something new.

        An error that would end the follower is checked again after ``tail_poll``, because it may pass.
        """
        try:
            visible = self._follower.refresh()
        except _ENDS as error:
            if self._suspects:
                self._lose(error)
            self._suspects = True
            self._doubting = max(self._doubting, 1)
            return False
        except LogExhausted as error:
            self._doubting = max(self._doubting, 1)
            if time.monotonic() >= self._complains_at:
                self._complains_at = time.monotonic() + _AGAIN
                _LOG.warning(
                    "the log %s is not followed until that passes: %s", self._service.log_name, error
                )
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
            # The replayer reports a read error to the subscriptions that it concerns.
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
        """Reads the versions that became visible; None if they exceed what the rings would keep."""
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


class FollowerThread:
    """The thread of a follower: waits, and runs a step. It runs no user code of its own accord.

    Args:
        step: One step. Its exceptions are logged and do not stop later steps.
        following: Waits until a step is due.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[], None], following: Following, name: str) -> None:
        self._step = step
        self._following = following
        self._ended = False
        self._thread = BackgroundThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Requests a step now."""
        self._following.wake()

    def close(self) -> None:
        """Ends the thread after the step in progress."""
        self._ended = True
        self.poke()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            try:
                self._following.wait()
                self._step()
            except Exception:  # noqa: BLE001 - an error must not stop later steps
                # An interrupt may end the join in `close`, after which the files are closed under this step.
                if not self._ended:
                    _HOUSE.exception("a step of housekeeping failed")

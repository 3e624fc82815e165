"""What serves the subscribers that read from the WAL: shared frames, and a few threads in turns.

A thousand laggards share one cache of verified frames and the reader's open files, so they cost neither a thousand
buffers nor a thousand files. Those of detached publishers wait in a line of their own. It is served in a small share of one
thread's time, since what they cost is taken from commits too.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from flow.interrupts import SHIELD
from publishers.background import BackgroundThread
from publishers.blocks.block import Block
from publishers.errors import PenstockError, WalCorrupted
from publishers.wal import Frame, Location, Reader

__all__ = ["FrameCache", "Replayable", "Replayer"]

_log = logging.getLogger("penstock.replayer")
_LOCATED: Final = 256  # places of positions that are remembered
_WEIGHED: Final = 64  # frames that come at least, before all that are kept are weighed again


class FrameCache:
    """Verified frames as blocks, the least recently used go first.

    Args:
        reader: Where frames come from.
        max_bytes: Most bytes kept, what was made from the blocks included; one frame is always kept.
        damaged: Hears of damage that a read meets.

    Attributes:
        max_bytes: The same.
    """

    def __init__(
        self, reader: Reader, max_bytes: int, damaged: Callable[[WalCorrupted], object] = lambda _: None
    ) -> None:
        self._reader = reader
        self._damaged = damaged
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._read = threading.Condition(self._lock)
        self._reading: set[Location] = set()
        self._awaited = 0  # by how many threads
        self._kept: OrderedDict[Location, tuple[Block, Location, int]] = OrderedDict()
        self._nbytes = 0
        self._fresh = 0  # frames that came since all were last weighed
        self._located: dict[tuple[int, int], Location] = {}
        self.reads = 0

    def peek(self, location: Location) -> tuple[Block, Location] | None:
        """The frame at a location if it is in memory, and where the next one is; never touches the disk."""
        with self._lock:
            return self._hit(location)

    def read(self, location: Location) -> tuple[Block, Location] | None:
        """The frame at a location and where the next one is; None at the end of what may be read.

        Raises:
            WalCorrupted: If the frame is damaged.
            HistoryPruned: If its segment is gone.
        """
        found = self.run(location, 0, 0)
        return found[0] if found else None

    def run(self, location: Location, nbytes: int, events: int) -> list[tuple[Block, Location]]:
        """Returns the frame at a location and those behind it, up to ``nbytes`` bytes or ``events`` changes, at least one frame.

        Each comes with the location of the next one. The list is empty at the end of what may be read, and ends before a
        frame that cannot be read. A frame that several threads ask for at once is read by one of them.

        Raises:
            WalCorrupted: If the first frame is damaged.
            HistoryPruned: If its segment is gone.
        """
        while True:
            with SHIELD:  # a frame that is claimed, and never read to its end, would keep all others waiting
                with self._lock:
                    found = self._hits(location, nbytes, events)
                    if found:
                        return found
                    claimed = location not in self._reading
                    self._reading.add(location)
                if claimed:
                    return self._fetch(location, nbytes, events)
            with self._lock:
                self._awaited += 1
                try:
                    self._read.wait_for(lambda: location not in self._reading)
                finally:
                    self._awaited -= 1

    def _fetch(self, claimed: Location, nbytes: int, events: int) -> list[tuple[Block, Location]]:
        """Reads from a frame that this thread has claimed, up to a frame that is in memory."""
        location = claimed
        found: list[tuple[Block, Location]] = []
        try:
            while (frame := self._reader.read(location)) is not None:
                block = Block.of(frame.header, *frame.decoded)
                location = frame.next
                found.append((block, location))
                nbytes -= block.weight
                events -= block.count
                if nbytes <= 0 or events <= 0 or location in self._kept:
                    break
        except (PenstockError, OSError) as error:
            if isinstance(error, WalCorrupted):
                self._damaged(error)
            if not found:
                raise
        finally:
            with self._lock:
                place = claimed
                for block, after in found:
                    before = self._kept.pop(place, None)  # another thread may have read it meanwhile
                    weight = block.nbytes
                    self._kept[place] = (block, after, weight)
                    self._nbytes += weight - (0 if before is None else before[2])
                    place = after
                self.reads += len(found)
                self._fresh += len(found)
                if self._nbytes > self.max_bytes or self._fresh > _WEIGHED:
                    self._bound()
                self._reading.discard(claimed)
                if self._awaited:
                    self._read.notify_all()
        return found

    def locate(self, version: int, index: int) -> Location:
        """Where the frame of a position begins, or one before it.

        It is remembered for a while, because those whom an eviction overtakes resume at one place.

        Raises:
            HistoryPruned: If it is no longer kept.
        """
        place = (version, index)
        with self._lock:
            known = self._located.get(place)
        if known is None:
            with self._noting():
                known = self._reader.locate(version, index)
            with self._lock:
                self._located[place] = known
                if len(self._located) > _LOCATED:
                    del self._located[next(iter(self._located))]
        return known

    def at(self, committed_at: int) -> int:
        """The first version committed at or after a time in microseconds; see ``Reader.at``."""
        with self._noting():
            return self._reader.at(committed_at)

    def backward(self, version: int, index: int) -> Iterator[Frame]:
        """Frames from a change back to the oldest, newest first, past the cache; see ``Reader.backward``."""
        with self._noting():
            yield from self._reader.backward(version, index)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except WalCorrupted as error:
            self._damaged(error)
            raise

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now."""
        return self._nbytes

    def clear(self) -> None:
        """Drops every frame."""
        with self._lock:
            self._kept.clear()
            self._located.clear()
            self._nbytes = self._fresh = 0

    def _hits(self, location: Location, nbytes: int, events: int) -> list[tuple[Block, Location]]:
        found: list[tuple[Block, Location]] = []
        while (hit := self._hit(location)) is not None:
            found.append(hit)
            nbytes -= hit[0].weight
            events -= hit[0].count
            if nbytes <= 0 or events <= 0:
                break
            location = hit[1]
        return found

    def _hit(self, location: Location) -> tuple[Block, Location] | None:
        kept = self._kept.get(location)
        if kept is None:
            return None
        block, after, weight = kept
        self._kept.move_to_end(location)
        now = block.nbytes  # once, as it grows while others make something from it
        if now != weight:
            self._kept[location] = (block, after, now)
            self._nbytes += now - weight
            self._bound()
        return block, after

    def _bound(self) -> None:
        # What is made from a block after it was last asked for is found at the next weighing of all, which costs each
        # frame that comes the weighing of four.
        if self._fresh > max(len(self._kept) // 4, _WEIGHED):
            self._fresh = 0
            for location, (block, after, _) in self._kept.items():
                self._kept[location] = (block, after, block.nbytes)
            self._nbytes = sum(weight for _, _, weight in self._kept.values())
        while self._nbytes > self.max_bytes and len(self._kept) > 1:
            self._nbytes -= self._kept.popitem(last=False)[1][2]


class Replayable(Protocol):
    """Somebody who is served from the WAL in turns."""

    @property
    def detached(self) -> bool:
        """Whether it is served behind all others, and in their share of the time only."""

    def replay(self) -> bool:
        """Does one slice of work; answers whether there is more to do at once."""

    def replay_stopped(self) -> None:
        """Told instead of a turn when the replayer has been closed."""


class Replayer:
    """A few threads that give a slice to each who waits, in turns.

    Args:
        threads: How many; they are started when first needed.
        name: Goes into the names of the threads.
        detached_share: The share of one thread's time in which those are served who are detached.
    """

    def __init__(self, threads: int, name: str, detached_share: float) -> None:
        self._size = threads
        self._pause = 1 / detached_share - 1  # for each second of work
        self._name = name
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._waiting: deque[Replayable] = deque()
        self._detached: deque[Replayable] = deque()
        self._detached_from = 0.0  # when the next of them may have a turn, by the monotonic clock
        self._serving_detached = False
        self._threads: list[BackgroundThread] = []
        self._idle = 0
        self._closed = False

    def enlist(self, task: Replayable) -> None:
        """Puts somebody in the line, who must not be in it; at most one place each, so the line is bounded.

        Raises:
            RuntimeError: If no thread can be started, and there is none yet. Then he is not in the line.
        """
        with self._lock:
            if not self._closed:
                (self._detached if task.detached else self._waiting).append(task)
                if self._idle:
                    self._work.notify()
                elif len(self._threads) < self._size:
                    self._start_thread()
                return
        task.replay_stopped()

    def close(self) -> None:
        """Ends the threads after the slices in progress; those who wait are told."""
        with self._lock:
            self._closed = True
            waiting = [*self._waiting, *self._detached]
            self._waiting, self._detached = deque(), deque()
            self._work.notify_all()
        for task in waiting:
            task.replay_stopped()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting) + len(self._detached)

    def _start_thread(self) -> None:
        """Starts one more for whoever has just been put in the line; if that fails, those that there are come to him."""
        name = f"{self._name}-replay-{len(self._threads)}"
        thread = BackgroundThread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)  # first, so that one who is interrupted here leaves no thread uncounted
        try:
            thread.start()
        except RuntimeError:
            self._threads.pop()  # what never started neither serves nor can be waited for
            if not self._threads:
                self._waiting.clear()  # there is the one that has just come
                self._detached.clear()
                raise

    def _serve(self) -> None:
        while True:
            with self._lock:
                while (found := self._next()) is None and not self._closed:
                    self._idle += 1
                    self._work.wait(self._patience())
                    self._idle -= 1
            if found is None:
                return
            task, apart = found
            began = time.thread_time()
            try:
                more = task.replay()
            except Exception:  # noqa: BLE001 - one task must not take the thread from all others
                _log.exception("a slice of replay failed without being told to its subscriber")
                more = False
            if apart:
                self._rest(time.thread_time() - began)
            if more:
                self.enlist(task)
            del task, found  # an idle thread keeps nobody alive

    def _next(self) -> tuple[Replayable, bool] | None:
        """Whose turn it is, and whether it is one of those that are served apart, of whom one has a turn at a time."""
        if self._closed:
            return None
        if self._detached and not self._serving_detached and time.monotonic() >= self._detached_from:
            self._serving_detached = True
            return self._detached.popleft(), True
        return (self._waiting.popleft(), False) if self._waiting else None

    def _patience(self) -> float | None:
        """Seconds until somebody may have a turn who waits now; None for nobody."""
        if not self._detached or self._serving_detached:
            return None
        return max(0.0, self._detached_from - time.monotonic())

    def _rest(self, worked: float) -> None:
        """Lets those who are served apart wait for as long as makes their share of what they worked."""
        with self._lock:
            self._serving_detached = False
            self._detached_from = time.monotonic() + worked * self._pause
            if self._detached:
                self._work.notify()

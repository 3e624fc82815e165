"""Serves subscriptions that read from the WAL: a shared cache of frames, and a few threads that take turns.

A thousand lagging subscriptions share one cache of verified frames and the reader's open files, so they need neither a
thousand buffers nor a thousand files. Subscriptions of detached publishers wait in a queue of their own. It gets a small share
of one thread's time, because the CPU time that they use is taken from commits too. For the same reason one thread at a time
reads for those who have taken more than their share of the processor.
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
from publishers.errors import LogExhausted, PenstockError, WalCorrupted
from publishers.wal import Frame, Location, Reader

__all__ = ["FrameCache", "Replayable", "Replayer"]

_log = logging.getLogger("penstock.replayer")
_REST: Final = 0.05  # seconds until a read is repeated for which a descriptor or memory was lacking
_AGAIN: Final = 60.0  # seconds until the log says so again
_LOCATED: Final = 256  # positions whose locations are remembered
_WEIGHED: Final = 64  # fewest new frames before all kept frames are weighed again


class FrameCache:
    """An LRU cache of verified frames, as blocks. Thread-safe.

    Args:
        reader: Reads the frames.
        max_bytes: Most bytes kept, including objects derived from the blocks; one frame is always kept.
        damaged: Called with the error when a read finds a damaged frame.

    Attributes:
        max_bytes: See above.
        reads: Frames read from disk.
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
        self._awaited = 0  # number of threads that wait for a frame being read
        self._kept: OrderedDict[Location, tuple[Block, Location, int]] = OrderedDict()
        self._nbytes = 0
        self._fresh = 0  # frames added since all were last weighed
        self._located: dict[tuple[int, int], Location] = {}
        self.reads: int = 0

    def peek(self, location: Location) -> tuple[Block, Location] | None:
        """Returns the frame at a location and the location of the next one, None if it is not in memory; does no I/O."""
        with self._lock:
            return self._hit(location)

    def read(self, location: Location) -> tuple[Block, Location] | None:
        """Returns the frame at a location and the location of the next one; None at the end of the readable log.

        Raises:
            WalCorrupted: If the frame is damaged.
            HistoryPruned: If its segment is gone.
        """
        found = self.run(location, 0, 0)
        return found[0] if found else None

    def run(self, location: Location, nbytes: int, events: int) -> list[tuple[Block, Location]]:
        """Returns the frame at a location and the following ones, until ``nbytes`` bytes or ``events`` changes are reached.

        It returns at least one frame, each with the location of the next one. The list is empty at the end of the readable
        log, and ends before a frame that cannot be read. If several threads ask for a frame at once, one of them reads it.

        Raises:
            WalCorrupted: If the first frame is damaged.
            HistoryPruned: If its segment is gone.
        """
        while True:
            # An interrupt between claim and read would leave the other threads waiting for the frame.
            with SHIELD:
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
        """Reads from the claimed frame on, until the bounds are reached or the next frame is in memory."""
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
        """Returns the location of the frame that holds a position, or of an earlier frame.

        The locations of the last 256 positions are remembered, because cursors that one eviction overtakes resume at the same
        position.

        Raises:
            HistoryPruned: If the position is no longer kept.
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
        """The first version committed at or after a time, in microseconds since the Unix epoch; see ``Reader.at``."""
        with self._noting():
            return self._reader.at(committed_at)

    def backward(self, version: int, index: int) -> Iterator[Frame]:
        """Yields frames from a change back to the oldest one, newest first, without the cache; see ``Reader.backward``."""
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
        """Bytes kept now."""
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
        now = block.nbytes  # read once: it grows while other threads derive objects from the block
        if now != weight:
            self._kept[location] = (block, after, now)
            self._nbytes += now - weight
            self._bound()
        return block, after

    def _bound(self) -> None:
        # A block may grow after its last look-up. Weighing all kept frames finds that. It happens once for every quarter of
        # the kept frames added, so that each added frame pays for weighing about four.
        if self._fresh > max(len(self._kept) // 4, _WEIGHED):
            self._fresh = 0
            for location, (block, after, _) in self._kept.items():
                self._kept[location] = (block, after, block.nbytes)
            self._nbytes = sum(weight for _, _, weight in self._kept.values())
        while self._nbytes > self.max_bytes and len(self._kept) > 1:
            self._nbytes -= self._kept.popitem(last=False)[1][2]


class Replayable(Protocol):
    """A task that the replayer serves in slices: a subscription that reads from the WAL, or the waiting list."""

    @property
    def detached(self) -> bool:
        """Whether it waits in the queue of detached tasks, which gets a bounded share of the time."""

    @property
    def heavy(self) -> bool:
        """Whether somebody pays for it who has taken more than a share of the processor: of these, one is served at a time."""

    def replay(self) -> bool:
        """Does one slice of work; returns whether more can be done at once."""

    def replay_stopped(self) -> None:
        """Called instead of ``replay`` once the replayer has been closed."""


class Replayer:
    """A few threads that serve waiting tasks in turns, one slice at a time.

    Args:
        threads: Most threads; each starts when it is first needed.
        name: Prefix of the threads' names.
        detached_share: The share of one thread's CPU time for detached tasks, above 0 and at most 1.
    """

    def __init__(self, threads: int, name: str, detached_share: float) -> None:
        self._size = threads
        self._pause = 1 / detached_share - 1  # seconds of rest for each second of work
        self._name = name
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._waiting: deque[Replayable] = deque()
        self._detached: deque[Replayable] = deque()
        self._detached_from = 0.0  # monotonic time from which a detached task may run
        self._serving_detached = False
        self._heavy: deque[Replayable] = deque()
        self._serving_heavy = False
        self._served_heavy = False  # whether the last task was a heavy one: the others alternate with them
        self._threads: list[BackgroundThread] = []
        self._idle = 0
        self._closed = False
        self._complains_at = 0.0

    def enlist(self, task: Replayable) -> None:
        """Adds a task to its queue.

        The task must not be in the queue already, so the queue is bounded by the number of tasks. If the replayer is closed,
        ``replay_stopped`` is called at once.

        Raises:
            LogExhausted: If there is no thread and none can be started. The task is not in the queue then.
        """
        with self._lock:
            if not self._closed:
                self._queue_of(task).append(task)
                if self._idle:
                    self._work.notify()
                elif len(self._threads) < self._size:
                    self._start_thread()
                return
        task.replay_stopped()

    def _queue_of(self, task: Replayable) -> deque[Replayable]:
        if task.detached:
            return self._detached
        return self._heavy if task.heavy else self._waiting

    def close(self) -> None:
        """Ends the threads after the slices in progress, and calls ``replay_stopped`` of the waiting tasks."""
        with self._lock:
            self._closed = True
            waiting = [*self._waiting, *self._detached, *self._heavy]
            for queue in (self._waiting, self._detached, self._heavy):
                queue.clear()
            self._work.notify_all()
        for task in waiting:
            task.replay_stopped()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def rest(self, error: LogExhausted) -> None:
        """Lets the calling thread of this replayer wait a moment, before it repeats a read for which something was lacking."""
        with self._lock:
            if time.monotonic() >= self._complains_at:
                self._complains_at = time.monotonic() + _AGAIN
                _log.warning("%s cannot be read until that passes: %s", self._name, error)
            if not self._closed:
                self._work.wait(_REST)

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a turn."""
        return len(self._waiting) + len(self._detached) + len(self._heavy)

    def _start_thread(self) -> None:
        """Starts one more thread for the task just added. If that fails, the running threads serve the task."""
        name = f"{self._name}-replay-{len(self._threads)}"
        thread = BackgroundThread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)  # before the start, so that an interrupt leaves no thread uncounted
        try:
            thread.start()
        except LogExhausted:
            self._threads.pop()  # a thread that never started cannot be joined
            if not self._threads:
                for queue in (self._waiting, self._detached, self._heavy):
                    queue.clear()  # without a thread, only the task just added can wait
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
            task, queue = found
            began = time.thread_time()
            try:
                more = task.replay()
            except Exception:  # noqa: BLE001 - a failing task must not end the thread that serves all tasks
                _log.exception("a slice of replay failed without being told to its subscriber")
                more = False
            self._served(queue, time.thread_time() - began)
            if more:
                self.enlist(task)
            del task, found  # an idle thread must not keep the task alive

    def _next(self) -> tuple[Replayable, deque[Replayable]] | None:
        """Returns the next task and its queue; at most one detached task, and one heavy task, runs at a time."""
        if self._closed:
            return None
        if self._detached and not self._serving_detached and time.monotonic() >= self._detached_from:
            self._serving_detached = True
            return self._detached.popleft(), self._detached
        if self._heavy and not self._serving_heavy and not (self._waiting and self._served_heavy):
            self._serving_heavy = self._served_heavy = True
            return self._heavy.popleft(), self._heavy
        self._served_heavy = False
        return (self._waiting.popleft(), self._waiting) if self._waiting else None

    def _patience(self) -> float | None:
        """Seconds until a waiting detached task may run; None if no detached task can become due."""
        if not self._detached or self._serving_detached:
            return None
        return max(0.0, self._detached_from - time.monotonic())

    def _served(self, queue: deque[Replayable], worked: float) -> None:
        """Lets the next task of a queue go on; a detached one later, so that ``worked`` seconds of CPU time keep to the share."""
        if queue is self._waiting:
            return
        with self._lock:
            if queue is self._heavy:
                self._serving_heavy = False
                return
            self._serving_detached = False
            self._detached_from = time.monotonic() + worked * self._pause
            if self._detached:
                self._work.notify()

"""One timer for all logs of a process: their background work, on a few threads.

A job is due at a time, or at once if it is requested. The thread that waits for the next due job leads; it passes the lead on
before it runs the job. So a thread that hangs, as at a disk that hangs, delays no other job while one of the threads is
free. Of the jobs that are due, syncs come first: the loss window of ``sync="interval"`` is a promise.

Callers only append to a deque and wake the leader. They acquire no lock of the timer, because an interrupt in between would
leave the timer of the whole process inconsistent.
"""

import contextlib
import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from math import inf
from time import monotonic
from typing import Final

from flow import forks
from publishers.background import BackgroundThread
from publishers.errors import LogExhausted
from publishers.wal.disk.notify import PollingListener

__all__ = ["SYNC", "TIMER", "UPKEEP", "Job", "LogTimer"]

_log: Final = logging.getLogger("penstock.housekeeping")

SYNC: Final = 0
"""The rank of a job that a promise waits for."""
UPKEEP: Final = 1
"""The rank of other jobs."""

_THREADS: Final = 4
"""Most threads of a timer. Each may wait for a disk; more of them would only compete for the interpreter."""


class Job:
    """Work of one log that a timer repeats: one run at a time.

    Attributes:
        armed: Whether its next run is at most `period` away; a caller that makes work reads it before it calls `rouse`.
        period: Seconds from `rouse` to the run.
    """

    def __init__(
        self, timer: "LogTimer", step: Callable[[], float | None], period: float, rank: int = UPKEEP
    ) -> None:
        """Internal; use `LogTimer.add`."""
        self.armed: bool = False
        self.period: float = period
        self.rank: int = rank
        self.due: float = inf
        self.ended: bool = False
        self._taken = inf
        self._timer = timer
        self._step = step
        self._running = threading.Lock()
        self._runner = 0
        self._missed = False

    def poke(self) -> None:
        """Requests a run now; if one is in progress, another one after it."""
        self._timer.request(self, 0.0)

    def rouse(self) -> None:
        """Requests a run within `period`."""
        self.armed = True
        self._timer.request(self, self.period)

    def close(self) -> None:
        """Ends the job after the run in progress, unless that run itself calls this."""
        self.ended = True
        self.poke()
        if self._runner != threading.get_ident():
            with self._running:
                pass

    @property
    def late(self) -> float:
        """Seconds for which it has been due and has not ended its run; 0 if it is not due."""
        return max(monotonic() - min(self.due, self._taken), 0.0)

    def begin(self) -> bool:
        """Claims the next run for the calling thread of the timer; if another thread runs it, that one repeats it."""
        taken, self.due = self.due, inf
        for _ in range(2):  # the other thread may end meanwhile, and may not see the mark
            if self._running.acquire(blocking=False):
                break
            self._missed = True
        else:
            return False
        if self.ended:  # looked at here, since `close` waits for a run that has begun and for no other
            self._running.release()
            return False
        self._runner = threading.get_ident()
        self._missed = False
        self._taken = taken
        return True

    def run(self) -> None:
        """Runs the step, and requests the next run."""
        after: float | None = self.period
        try:
            self.armed = False  # before the step: what is made from now on may need another one
            after = self._step()
        except Exception:  # noqa: BLE001 - an error must not stop later steps
            # An interrupt may end the wait in `close`, after which the files are closed under this step.
            if not self.ended:
                _log.exception("a step of housekeeping failed")
        finally:
            self._runner, self._taken = 0, inf
            self._running.release()
        if self._missed:
            after = 0.0
        if after is not None and not self.ended:
            if after <= self.period:
                self.armed = True
            self._timer.request(self, after)


class LogTimer:
    """Runs jobs when they are due. Its threads start with the first job, and end after the last one.

    `add` acquires a lock: its caller must be shielded from interrupts. `Job.poke`, `rouse` and `close` may be interrupted.
    """

    def __init__(self) -> None:
        self._begin()
        forks.register(self)

    def _begin(self) -> None:
        self._requests: deque[tuple[float, Job]] = deque()
        # A job may have several here; all but the one of its present time are void.
        self._due: list[tuple[float, int, Job]] = []
        self._ready: list[tuple[int, float, int, Job]] = []
        self._numbers = count()
        self._alarm = PollingListener()
        self._lead = threading.Lock()
        self._counting = threading.Lock()
        self._jobs: set[Job] = set()
        self._threads = self._free = 0

    def forked(self, pid: int, /) -> None:
        """See `flow.forks.Forkable`: the child has none of the threads, and none of the jobs is its own."""
        self._begin()

    def add(
        self, step: Callable[[], float | None], period: float, first: float = 0.0, rank: int = UPKEEP
    ) -> Job:
        """Adds a job.

        Args:
            step: One run. It returns the seconds until the next one, or None for one that waits for a request. Its exceptions
                are logged and do not stop later runs.
            period: Seconds from `Job.rouse`, or from a run that failed, to the next one.
            first: Seconds until the first run; `inf` if it waits for a request.
            rank: `SYNC` or `UPKEEP`.

        Raises:
            LogExhausted: If the system has no thread.
        """
        job = Job(self, step, period, rank)
        with self._counting:
            if not self._threads:
                self._start()
            self._jobs.add(job)
            self._reinforce()
        if first < inf:
            job.armed = first <= period
            self.request(job, first)
        return job

    def request(self, job: Job, after: float) -> None:
        """Requests a run of a job after some seconds at most."""
        self._requests.append((monotonic() + after, job))
        self._alarm.wake()

    @property
    def threads(self) -> int:
        """The number of its threads."""
        return self._threads

    def _start(self) -> None:
        """Starts a thread; it counts from then on, and waits for ``_counting`` before it counts anything itself."""
        BackgroundThread(target=self._serve, name=f"penstock-house-{self._threads + 1}", daemon=True).start()
        self._threads += 1
        self._free += 1

    def _reinforce(self) -> None:
        """Starts a thread that leads while all others run jobs; under ``_counting``."""
        if not self._free and self._threads < min(_THREADS, len(self._jobs)):
            with contextlib.suppress(LogExhausted):
                self._start()

    def _serve(self) -> None:
        while True:
            with self._lead:
                job = self._next()
                if job is None:
                    return
                with self._counting:
                    self._free -= 1
                    self._reinforce()
            job.run()
            with self._counting:
                self._free += 1

    def _next(self) -> Job | None:
        """Waits until a job is due, and claims its run; None once there are no jobs: then the calling thread is counted no more."""
        while True:
            self._sort()
            now = monotonic()
            while self._due and self._due[0][0] <= now:
                due, number, job = heapq.heappop(self._due)
                if due == job.due:
                    heapq.heappush(self._ready, (job.rank, due, number, job))
            while self._ready:
                job = heapq.heappop(self._ready)[-1]
                if job.begin():
                    return job
            with self._counting:
                if not self._jobs and not self._requests:
                    self._free -= 1
                    self._threads -= 1
                    return None
            self._alarm.wait(self._due[0][0] - now if self._due else threading.TIMEOUT_MAX)

    def _sort(self) -> None:
        """Moves what was requested to the jobs that are due some time."""
        while self._requests:
            due, job = self._requests.popleft()
            if job.ended:
                self._jobs.discard(job)
            elif due < job.due and job in self._jobs:
                job.due = due
                heapq.heappush(self._due, (due, next(self._numbers), job))


TIMER: Final = LogTimer()
"""The timer of this process."""

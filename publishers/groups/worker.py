"""A worker: a consumer of a group that runs a function for each delivery."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol, Self

from flow.contracts import Subscription
from publishers.errors import InvalidOption, PenstockError
from publishers.groups.delivery import GroupDelivery
from publishers.groups.errors import ConsumerFenced
from publishers.groups.subscription import DeliveryFeed
from publishers.options import check_whole

__all__ = ["GroupWorker", "WorkOptions", "WorkingMember"]

_LOG: Final = logging.getLogger("penstock.groups")
_BEATS: Final = 3  # extensions of a delivery in one ack_wait

_SHARE: Final = 4  # the worker requests more once prefetch / _SHARE deliveries have ended


class WorkingMember(Protocol):
    """The consumer, as its worker uses it; see `GroupMember`."""

    @property
    def name(self) -> str:
        """The name of the consumer."""
        ...

    def deliveries(self) -> DeliveryFeed:
        """Its deliveries."""
        ...

    def has(self, delivery: GroupDelivery, /) -> bool:
        """Whether a delivery is still pending at this consumer."""
        ...

    def ack(self, *places: GroupDelivery) -> int:
        """Acknowledges deliveries."""
        ...

    def nack(self, places: GroupDelivery, *, count: bool = True, error: str = "refused") -> int:
        """Refuses a delivery."""
        ...

    def in_progress(self, places: GroupDelivery) -> int:
        """Restarts ``ack_wait`` of a delivery."""
        ...

    def leave(self) -> None:
        """Leaves the group."""
        ...


class WorkOptions(NamedTuple):
    """The bounds of a worker; see ``group.work``."""

    concurrency: int
    prefetch: int
    longest: float

    def check(self, apply: object) -> None:
        """Checks the bounds and the function.

        Raises:
            InvalidOption: If one is not valid.
        """
        if not callable(apply):
            raise InvalidOption("apply", apply, "a function of a delivery")
        check_whole("concurrency", self.concurrency, "a whole number from 1", 1)
        check_whole("prefetch", self.prefetch, "a whole number from 1", 1)
        if isinstance(self.longest, bool) or not isinstance(self.longest, int | float) or self.longest <= 0:
            raise InvalidOption("longest", self.longest, "a number of seconds above 0")


class _Job:
    """A delivery in the worker, with the number of earlier jobs that it waits for, and the later jobs that wait for it."""

    __slots__ = ("before", "behind", "delivery", "running", "until")

    def __init__(self, delivery: GroupDelivery) -> None:
        self.delivery = delivery
        self.before = 0
        self.behind: list[_Job] = []
        self.running = False
        self.until = float("inf")  # monotonic time from which its function counts as stuck


class GroupWorker:
    """Runs a function for each delivery; created by ``group.work``, a context manager that stops.

    Deliveries of one key run one after the other, in order; others run in parallel. When the function returns, the delivery is
    acknowledged. When it raises, the delivery is refused and comes again after the group's ``backoff``, followed by the later
    ones of its key. While a function runs, or a delivery waits in the worker, the worker extends it three times per ``ack_wait``.

    Args:
        member: The consumer.
        apply: The function; its result is ignored.
        options: Its bounds.
        ack_wait: ``ack_wait`` of the group, in seconds.
        keyed: Whether deliveries of one key run one after the other.
        monotonic: The clock.
    """

    def __init__(
        self,
        member: WorkingMember,
        apply: Callable[[GroupDelivery], object],
        options: WorkOptions,
        *,
        ack_wait: float,
        keyed: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self._member = member
        self._apply = apply
        self._options = options
        self._beat = ack_wait / _BEATS
        self._monotonic = monotonic
        self._keyed = keyed
        self._lock = threading.Lock()
        self._jobs: dict[_Job, None] = {}
        self._last: dict[tuple[str | None, str | None], _Job] = {}
        self._owed = 0  # deliveries that have ended and were not requested again
        self._subscription: Subscription | None = None
        self._stopping = False
        self._error: Exception | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(options.concurrency, f"penstock-{member.name}")
        self._heart = threading.Thread(
            target=self._keep_beating, name=f"penstock-{member.name}-heart", daemon=True
        )
        self._heart.start()
        member.deliveries().subscribe(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the worker has ended: it was stopped, or its consumer can receive no more deliveries.

        Args:
            timeout: Longest time in seconds; None for no limit.

        Returns:
            Whether the worker has ended.

        Raises:
            ConsumerFenced, GroupLost, NoSuchGroup, LogClosed: The error that ended it.
        """
        ended = self._over.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self, timeout: float = 30.0) -> bool:
        """Stops receiving deliveries, waits for running functions, and leaves the group. Idempotent.

        Deliveries whose function has not started return to the group at once and count as no delivery. So do deliveries whose
        function has not returned in time, although the function keeps running.

        Args:
            timeout: Longest time in seconds to wait for running functions.

        Returns:
            Whether all functions have returned.
        """
        with self._lock:
            self._stopping = True
            waiting = [job for job in self._jobs if not job.running]
            for job in waiting:
                self._forget(job)
        if self._subscription is not None:
            self._subscription.cancel()
        self._put_back(waiting)
        ended = self._idle.wait(timeout)
        with self._lock:
            running = list(self._jobs)
        self._put_back(running)
        self._member.leave()
        self._over.set()
        self._pool.shutdown(wait=ended)
        self._heart.join()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # As the subscriber of its consumer.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests ``prefetch`` deliveries."""
        self._subscription = subscription
        subscription.request(self._options.prefetch)

    def on_next(self, delivery: GroupDelivery, /) -> None:
        """Runs the function, now or after the earlier deliveries of the same keys."""
        job = _Job(delivery)
        with self._lock:
            stopping = self._stopping
            if not stopping:
                self._jobs[job] = None
                self._idle.clear()
                for lane in self._lanes(job):
                    last = self._last.get(lane)
                    if last is not None:
                        last.behind.append(job)
                        job.before += 1
                    self._last[lane] = job
                if not job.before:
                    self._pool.submit(self._run, job)
        if stopping:
            self._put_back([job])

    def on_error(self, error: Exception, /) -> None:
        """Notes the error that ended the deliveries; jobs in the worker continue."""
        self._error = error
        self._over.set()

    def on_complete(self) -> None:
        """Notes that the consumer has left."""
        self._over.set()

    # --- within -------------------------------------------------------------------------------------------------------------

    def _run(self, job: _Job) -> None:
        with self._lock:
            if job not in self._jobs:
                return  # put back
            job.running, job.until = True, self._monotonic() + self._options.longest
        try:
            if self._member.has(
                job.delivery
            ):  # else it was taken back: by a timeout, or with an earlier one of its key
                self._handle(job.delivery)
        except ConsumerFenced:
            pass  # another consumer has the delivery; if this consumer is fenced, its subscription ends with that error
        except PenstockError as error:
            _LOG.warning("worker %s: %s", self._member.name, error)
        finally:
            self._end(job)

    def _handle(self, delivery: GroupDelivery) -> None:
        try:
            self._apply(delivery)
        except BaseException as error:  # noqa: BLE001 - a SystemExit of the function counts as its failure
            why = f"{type(error).__name__}: {error}"
            _LOG.warning("worker %s: %s is refused: %s", self._member.name, delivery.position, why)
            self._member.nack(delivery, error=why)
        else:
            self._member.ack(delivery)

    def _end(self, job: _Job) -> None:
        with self._lock:
            self._forget(job)
            for one in job.behind:
                one.before -= 1
                if not one.before and one in self._jobs:
                    self._pool.submit(self._run, one)
            self._owed += 1
            options = self._options
            few = self._owed >= options.prefetch // _SHARE or len(self._jobs) <= options.concurrency
            asked = self._owed if few and not self._stopping else 0
            self._owed -= asked
        if asked and self._subscription is not None:
            self._subscription.request(asked)

    def _forget(self, job: _Job) -> None:
        """Removes a job; the caller holds the lock."""
        self._jobs.pop(job, None)
        for lane in self._lanes(job):
            if self._last.get(lane) is job:
                del self._last[lane]
        if not self._jobs:
            self._idle.set()

    def _lanes(self, job: _Job) -> set[tuple[str | None, str | None]]:
        return {(one.entity_type, one.key) for one in job.delivery.changes} if self._keyed else set()

    def _put_back(self, jobs: list[_Job]) -> None:
        """Refuses jobs without counting a delivery; the last one first, because a refusal takes back later ones of its key."""
        for job in reversed(jobs):
            with contextlib.suppress(PenstockError):  # another consumer has it by now, or leaving returns it
                if self._member.has(job.delivery):
                    self._member.nack(job.delivery, count=False)

    def _keep_beating(self) -> None:
        while not self._over.wait(self._beat):
            now = self._monotonic()
            with self._lock:
                stuck = [job for job in self._jobs if now >= job.until]
                for job in stuck:
                    stuck += job.behind  # the loop also visits the jobs added here
                jobs = self._jobs.keys() - stuck
            for job in jobs:
                with contextlib.suppress(PenstockError):  # another consumer has it by now
                    self._member.in_progress(job.delivery)

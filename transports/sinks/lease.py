"""A lease decides which of several processes sends: its holder. Each gain has a new epoch."""

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol, Self

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption

__all__ = ["Lease", "LeaseStore", "SinkLeading"]


_LOG: Final = logging.getLogger("penstock.sinks")


class LeaseStore(Protocol):
    """The store of a lease; one object for each contender. One thread at a time calls its methods, which may wait for a server.

    Any exception means that the outcome is unknown: a holder continues until its term ends, and a contender retries.
    """

    def acquire(self, holder: str, seconds: float) -> int | None:
        """Acquires the lease if it is free, or if its holder has not renewed it for the duration of a lease.

        Args:
            holder: The name of the contender, for people.
            seconds: The duration of a lease.

        Returns:
            The new epoch, larger than every earlier one and durable; None if another contender holds the lease.
        """
        ...

    def renew(self, epoch: int) -> bool:
        """Renews the lease for another term; returns False if it no longer has this epoch."""
        ...

    def release(self, epoch: int) -> None:
        """Frees the lease, if it still has this epoch."""
        ...

    def close(self) -> None:
        """Releases all resources. Idempotent."""
        ...


class Lease:
    """One contender: ``start`` starts a thread that acquires and renews the lease; ``held`` says whether to send.

    Without a thread, the caller calls ``step``, as tests do. A lease may serve any number of runners.

    It measures durations only, by the monotonic clock, and from *before* each call to the store. So a step of the wall clock
    changes nothing, and a holder that was suspended finds at its next check that its term has ended.

    Args:
        store: The store of the lease.
        seconds: The duration of the lease after each renewal.
        every: Seconds between renewals, or between attempts to acquire it.
        margin: Seconds before the end of its term from which the holder does not send.
        holder: The name of this contender; host and random digits if None.
        clock: The clock.

    Attributes:
        epoch: The epoch of the current gain; None while the lease is not held.
        holder: The name of this contender.

    Raises:
        InvalidOption: If ``every`` or ``margin`` is not above 0, or their sum is not below ``seconds``.
    """

    def __init__(
        self,
        store: LeaseStore,
        *,
        seconds: float = 10.0,
        every: float = 3.0,
        margin: float = 2.0,
        holder: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not (every > 0 and margin > 0 and every + margin < seconds):
            raise InvalidOption(
                "seconds", (seconds, every, margin), "more than every + margin, which are above 0"
            )
        self.epoch: int | None = None
        self.holder: str = holder or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._store, self._clock = store, clock
        self._seconds, self._every, self._margin = seconds, every, margin
        self._until = self._next = clock.monotonic()
        self._listeners: list[Callable[[], object]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)
            self._thread.start()
        return self

    def notify(self, listener: Callable[[], object]) -> None:
        """Registers a listener that is called, on the thread of the lease, when it is gained or lost; it must not wait or raise."""
        self._listeners.append(listener)

    def held(self) -> bool:
        """Returns whether to send now. Ask before each request, because the term also ends without a ``step``."""
        return self.epoch is not None and self._clock.monotonic() < self._until - self._margin

    @property
    def due(self) -> float:
        """Seconds until the next ``step`` is due."""
        return max(self._next - self._clock.monotonic(), 0.0)

    def step(self) -> None:
        """Renews the lease, or tries to acquire it, if that is due; it may wait for the store, and does not raise."""
        before = self.epoch
        try:
            self._step()
        finally:
            if self.epoch != before:
                for listener in self._listeners:
                    listener()

    def _run(self) -> None:
        while not self._over.is_set():
            self.step()
            self._over.wait(max(self.due, 0.01))

    def _step(self) -> None:
        now = self._clock.monotonic()
        if self.epoch is not None and now >= self._until - self._margin:
            self._lose("it was not renewed in time")
        if now < self._next:
            return
        self._next = now + self._every
        try:
            if self.epoch is not None:
                if not self._store.renew(self.epoch):
                    self._lose("another process has taken it")
                    return
            elif (epoch := self._store.acquire(self.holder, self._seconds)) is None:
                return
            else:
                self.epoch = epoch
                _LOG.info("%s holds the lease, epoch %d", self.holder, epoch)
            self._until = now + self._seconds
        except Exception as error:  # noqa: BLE001 - an error of a store, which users may provide, ends no sink
            _LOG.warning("the lease of %s could not be requested: %s", self.holder, _line(error))

    def close(self) -> None:
        """Frees the lease, so that the next contender can acquire it at once, and closes the store. Idempotent.

        Close the runners first, so that they can still store their positions.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        epoch, self.epoch = self.epoch, None
        try:
            if epoch is not None:
                self._store.release(epoch)
        except Exception as error:  # noqa: BLE001 - as in `step`; the lease then expires
            _LOG.warning("the lease of %s could not be released: %s", self.holder, _line(error))
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lose(self, why: str) -> None:
        _LOG.warning("%s has lost the lease of epoch %d: %s", self.holder, self.epoch, why)
        self.epoch = None


def _line(error: Exception) -> str:
    """Returns the first line of an error; those of databases have many."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class SinkLeading:
    """One runner's view of the lease.

    Args:
        lease: The lease; None for a runner that always sends.

    Attributes:
        epoch: The epoch of the lease that the runner sends under; None without a lease, or while it is not held.
    """

    def __init__(self, lease: Lease | None) -> None:
        self._lease = lease
        self.epoch = None if lease is None else lease.epoch

    @property
    def shared(self) -> bool:
        """Whether several runners share the lease."""
        return self._lease is not None

    @property
    def holds(self) -> bool:
        """Whether to send and store: the lease is held, and has been since the slot was opened under it."""
        lease = self._lease
        return lease is None or (lease.epoch == self.epoch and lease.held())

    def gain(self) -> bool:
        """Looks for a new gain of the lease, after which what was read before must be dropped; returns whether it is held."""
        if self._lease is not None:
            self.epoch = self._lease.epoch
        return self._lease is None or self._lease.held()

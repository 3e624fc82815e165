"""Which of several processes sends: the one that holds a lease, whose every gain is an epoch of its own."""

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol, Self

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption

__all__ = ["Lease", "LeaseStore"]

_LOG: Final = logging.getLogger("penstock.sinks")


class LeaseStore(Protocol):
    """Where a lease lies; one object a contender. Its methods are called by one thread at a time, and may wait for a server.

    Whatever they raise means that nothing is known: a holder goes on until its time is over, a contender tries again.
    """

    def acquire(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free, or if its holder has not renewed it for as long as a lease lasts.

        Args:
            holder: Name of the contender, for people.
            seconds: How long a lease lasts.

        Returns:
            The new epoch, larger than every earlier one and durable; None if another contender holds the lease.
        """
        ...

    def renew(self, epoch: int) -> bool:
        """Keeps the lease for another term; answers False where it is no longer that of this epoch."""
        ...

    def release(self, epoch: int) -> None:
        """Frees the lease, if it is still that of this epoch."""
        ...

    def close(self) -> None:
        """Frees what is open. Idempotent."""
        ...


class Lease:
    """The part of one contender: ``start`` gives it a thread that renews it, or tries to get it; and it says whether to send.

    Without a thread, ``step`` does what there is to do now, which is how tests drive it. It may serve any number of runners.

    It measures durations only, by the monotonic clock, and from *before* each call to the store. So a step of the wall clock
    changes nothing, and a holder that was stopped for a while knows at its next question that its time is over.

    Args:
        store: Where the lease lies.
        seconds: How long it lasts after each renewal.
        every: Seconds from one renewal, or one try to get it, to the next.
        margin: Seconds before its end at which its holder sends no more.
        holder: Name of this contender; host and random letters if None.
        clock: What time it is.

    Attributes:
        epoch: The number of this gain; None where the lease is not held.
        holder: See above.

    Raises:
        InvalidOption: If the durations do not fit: ``every`` and ``margin`` together have to be below ``seconds``.
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
        self.holder = holder or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._store, self._clock = store, clock
        self._seconds, self._every, self._margin = seconds, every, margin
        self._until = self._next = clock.monotonic()
        self._told: list[Callable[[], object]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Begins, on a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)
            self._thread.start()
        return self

    def notify(self, listener: Callable[[], object]) -> None:
        """Has something called, on the thread of the lease, when it was gained or lost; it must not wait or raise."""
        self._told.append(listener)

    def held(self) -> bool:
        """Whether to send now: a question to be asked before each request, as time passes without ``step`` too."""
        return self.epoch is not None and self._clock.monotonic() < self._until - self._margin

    @property
    def due(self) -> float:
        """Seconds until the next ``step`` makes sense."""
        return max(self._next - self._clock.monotonic(), 0.0)

    def step(self) -> None:
        """Renews the lease, or tries to get it, if it is time to; it may wait for the store, and raises nothing."""
        before = self.epoch
        try:
            self._step()
        finally:
            if self.epoch != before:
                for listener in self._told:
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
        except Exception as error:  # noqa: BLE001 - a store is the user's, and an error of it ends no sink
            _LOG.warning("the lease of %s could not be requested: %s", self.holder, _line(error))

    def close(self) -> None:
        """Frees the lease, for the next contender to take at once, and the store. Idempotent.

        Close the runners before, so that they store their places while they may.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        epoch, self.epoch = self.epoch, None
        try:
            if epoch is not None:
                self._store.release(epoch)
        except Exception as error:  # noqa: BLE001 - as in `step`; it ends by itself then
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
    """The first line of an error: those of databases have many."""
    return next(iter(str(error).splitlines()), type(error).__name__)

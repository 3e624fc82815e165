"""How an owner tells other processes that there is something new: the two faces, and their versions for one process.

The owner has a `Bell` and rings it after TAIL has moved; a read-only opening has an `Ear` and waits at it. A ring carries
nothing: it is a reason to look at TAIL, may be heard once for many, or when there is nothing new, and may be missed;
whoever waits therefore looks now and then without having heard anything. `wakeup` has the ones that reach other
processes.
"""

import contextlib
import threading
from typing import Final, Literal, Protocol

__all__ = ["BELL_NAME", "READERS_NAME", "Bell", "Ear", "EarKind", "PollingEar", "SilentBell"]

BELL_NAME: Final = "BELL"
READERS_NAME: Final = "readers"

EarKind = Literal["datagram", "inotify", "poll"]


class Bell(Protocol):
    """The owner's face."""

    def look(self) -> None:
        """Finds out who listens, and rings for those who were not there before; called now and then. Never raises."""
        ...

    def ring(self) -> None:
        """Wakes everybody who listens; never waits and never raises. Any thread may call it."""
        ...

    def close(self) -> None:
        """Closes what is open; again is harmless."""
        ...


class Ear(Protocol):
    """A reader's face."""

    @property
    def kind(self) -> EarKind:
        """How it hears; ``poll`` if it does not."""
        ...

    def wait(self, timeout: float, /) -> bool:
        """Waits for a ring, for `wake`, or for so many seconds; answers whether it rang. For one thread at a time."""
        ...

    def wake(self) -> None:
        """Ends the wait of another thread, now or the next one."""
        ...

    def close(self) -> None:
        """Closes what is open, after the last `wait` has ended; again is harmless."""
        ...


class SilentBell:
    """A bell that nobody hears."""

    __slots__ = ()

    def look(self) -> None:
        """See `Bell.look`."""

    def ring(self) -> None:
        """See `Bell.ring`."""

    def close(self) -> None:
        """See `Bell.close`."""


class PollingEar:
    """An ear that hears nothing, so that its owner has to look for himself after each ``timeout``."""

    __slots__ = ("_asleep", "kind")

    def __init__(self) -> None:
        self.kind: EarKind = "poll"
        self._asleep = (
            threading.Lock()
        )  # a bare one: an interrupt cannot leave it half set, as it can an Event
        self._asleep.acquire()

    def wait(self, timeout: float, /) -> bool:
        """See `Ear.wait`."""
        self._asleep.acquire(timeout=timeout)
        return False

    def wake(self) -> None:
        """See `Ear.wake`."""
        with contextlib.suppress(RuntimeError):  # it was woken before
            self._asleep.release()

    def close(self) -> None:
        """See `Ear.close`."""

"""One subscriber's place in the ring: the feed of its drain."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from flow.broadcast.policy import Lag
from flow.broadcast.ring import Ring
from flow.clock import Clock
from flow.drain import Drain, Failed, Outcome
from flow.errors import Lagged

__all__ = ["Cursor", "wake"]

T = TypeVar("T")

_NOTHING: Final[deque[Any]] = deque(maxlen=0)
"""What is saved for all those for whom nothing ever is."""


class Cursor(Generic[T]):
    """Reads the ring for one subscriber, by its own policy.

    A cursor goes forward when its drain pulls. What was lost is added up, and told by the optional ``on_lagged`` of the
    subscriber before the next element or the end; that spends no demand.

    Args:
        ring: Guards everything here by its lock.
        lag: What happens when it is a whole ring behind.
        clock: Measures for how long it gates.
        on_left: Called once, when the subscription has ended, without the lock.

    Attributes:
        lag: The policy; a BLOCK cursor that stalled becomes an ERROR cursor.
        delivered: Elements that its drain took.
        dropped: Elements that it lost.
        gating_since: When it was first in the way of a writer, and has not gone forward since.
        blocked: Seconds for which it was in the way before.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_drain",
        "_missed",
        "_next",
        "_on_left",
        "_ring",
        "_saved",
        "blocked",
        "delivered",
        "dropped",
        "gating_since",
        "lag",
    )

    def __init__(self, ring: Ring[T], lag: Lag, clock: Clock, on_left: Callable[[], object]) -> None:
        self._ring = ring
        self._clock = clock
        self._on_left: Callable[[], object] | None = on_left
        self._drain: Drain[T] | None = None
        self._next = 0
        self._missed = 0  # lost, and not told
        # DROP_LATEST only: what waits before a gap; at most the ring's capacity. Even an empty one is large.
        self._saved: deque[T] = deque() if lag is Lag.DROP_LATEST else _NOTHING
        self.lag = lag
        self.delivered = 0
        self.dropped = 0
        self.gating_since: float | None = None
        self.blocked = 0.0

    # The ring's side: the caller holds its lock.

    def enter(self, drain: Drain[T], sequence: int) -> None:
        """Begin at a sequence that the ring has, or will have next."""
        ring = self._ring
        self._drain = drain
        self._next = sequence
        ring.positions.enter(sequence)
        if self.lag is Lag.BLOCK:
            ring.gates.enter(sequence)
        ring.cursors = (*ring.cursors, self)
        if self.lag is Lag.DROP_LATEST:
            ring.choosy = (*ring.choosy, self)

    @property
    def waiting(self) -> int:
        """Elements that it could pull."""
        behind = self._ring.end - self._place
        return min(behind, 1) if self.lag is Lag.LATEST else behind + len(self._saved)

    @property
    def lost(self) -> int:
        """Elements that it lost, those included that it has not noticed yet."""
        unnoticed = self._place - self._next
        if self.lag is Lag.LATEST:
            unnoticed += max(self._ring.end - self._place - 1, 0)
        return self.dropped + unnoticed

    @property
    def gating(self) -> bool:
        """Whether no other BLOCK cursor is slower."""
        return self.lag is Lag.BLOCK and self._next == self._ring.gate

    def blocked_until(self, now: float) -> float:
        """Seconds for which it was in the way."""
        return self.blocked + (0.0 if self.gating_since is None else now - self.gating_since)

    def stall(self) -> None:
        """Gate no longer: the next element overtakes it, which ends it."""
        self._count_blocked()
        self._ring.gates.leave(self._next)
        self.lag = Lag.ERROR

    def refuse_if_full(self) -> None:
        """Pass by the element that is about to be written if as many as the ring holds wait already."""
        ring = self._ring
        if self.waiting < ring.capacity:
            return
        # Each element is moved here at most once; the ring may overtake what it copied.
        self._saved.extend(ring.read(self._place, ring.capacity))
        ring.positions.move(self._place, ring.end + 1)
        self._next = ring.end + 1
        self._lose(1)

    # The drain's side: without the lock.

    def signal(self) -> None:
        """Say that there may be something to pull."""
        drain = self._drain
        if drain is not None:
            drain.signal()

    def fail(self, error: Exception) -> None:
        """End with an error, which overtakes what waits."""
        drain = self._drain
        if drain is not None:
            drain.fail(error)

    @property
    def demand(self) -> int:
        """What its subscriber requested and did not get yet."""
        drain = self._drain
        return 0 if drain is None else drain.demand

    def pull(self, limit: int, /) -> Sequence[T]:
        """Take what is next for this subscriber."""
        ring = self._ring
        items: list[T] = []
        room = False
        with ring.lock:
            # A drain pulls until nothing is left: every other pull finds nothing.
            if self._next < ring.end or self._saved:
                gate = ring.gate if self.lag is Lag.BLOCK else ring.end
                items = self._take(limit)
                room = self.lag is Lag.BLOCK and ring.gate > gate
            untold = self._missed
        if room:
            ring.on_room()
        if untold:
            self._tell()
        return items

    def outcome(self) -> Outcome | None:
        """Fail at once; complete after everything was pulled and every loss was told."""
        ring = self._ring
        with ring.lock:
            if ring.outcome is None and self._next >= ring.start:
                return None
            if self._overtaken:
                return Failed(Lagged(self.lost))
            if isinstance(ring.outcome, Failed):
                return ring.outcome
            ended = None if self.waiting else ring.outcome
            untold = ended is not None and self._missed
        if untold:
            self._tell()
            return None
        return ended

    def release(self) -> None:
        """Leave the ring and forget everything."""
        ring = self._ring
        with ring.lock:
            on_left, self._on_left = self._on_left, None
            ring.cursors = tuple(each for each in ring.cursors if each is not self)
            ring.choosy = tuple(each for each in ring.choosy if each is not self)
            gate = ring.gate
            ring.positions.leave(self._place)
            if self.lag is Lag.BLOCK:
                ring.gates.leave(self._next)
            ring.trim()
            self._count_blocked()
            self._drain = None
            self._saved.clear()
            room = ring.gate > gate
        # In this order: the last to leave may end what the room would let go on.
        if on_left is not None:
            on_left()
        if room:
            ring.on_room()

    # Under the lock.

    @property
    def _place(self) -> int:
        return max(self._next, self._ring.start)

    @property
    def _overtaken(self) -> bool:
        return self.lag is Lag.ERROR and self._next < self._ring.start

    def _take(self, limit: int) -> list[T]:
        ring = self._ring
        if self._overtaken or isinstance(ring.outcome, Failed):
            return []
        self._catch_up()
        saved = self._saved
        items = [saved.popleft() for _ in range(min(limit, len(saved)))]
        fresh = ring.read(self._next, limit - len(items))
        if fresh:
            self._advance(self._next + len(fresh))
            items += fresh
        self.delivered += len(items)
        return items

    def _catch_up(self) -> None:
        """Notice what was lost since the last time."""
        place = self._place
        if place > self._next:
            self._lose(place - self._next)
            self._next = place  # where the ring counts it already
        if self.lag is Lag.LATEST and self._ring.end - place > 1:
            self._lose(self._ring.end - 1 - place)
            self._advance(self._ring.end - 1)

    def _advance(self, to: int) -> None:
        ring = self._ring
        ring.positions.move(self._next, to)
        if self.lag is Lag.BLOCK:
            ring.gates.move(self._next, to)
            self._count_blocked()
        self._next = to
        ring.trim()

    def _lose(self, count: int) -> None:
        self._missed += count
        self.dropped += count

    def _count_blocked(self) -> None:
        if self.gating_since is not None:
            self.blocked += self._clock.monotonic() - self.gating_since
            self.gating_since = None

    def _tell(self) -> None:
        drain = self._drain
        if drain is not None:
            drain.tell(Cursor, self._tell_missed)

    def _tell_missed(self, subscriber: Any) -> None:
        with self._ring.lock:
            missed, self._missed = self._missed, 0
        tell = getattr(subscriber, "on_lagged", None)
        if missed and callable(tell):
            tell(missed)


def wake(cursors: Iterable[Cursor[T]], error: Exception | None = None) -> None:
    """Let the drains of all look at the ring, or fail; what passes through one must not leave the others asleep."""
    passing: BaseException | None = None
    for cursor in cursors:
        try:
            if error is None:
                cursor.signal()
            else:
                cursor.fail(error)
        except BaseException as interrupt:  # noqa: BLE001 - KeyboardInterrupt of a subscriber; raised below
            passing = interrupt
    if passing is not None:
        raise passing

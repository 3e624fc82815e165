"""One subscriber's place in the ring: the feed of its drain."""

import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from flow.broadcast.policy import Lag
from flow.broadcast.ring import Ring
from flow.broadcast.seat import Seat
from flow.clock import Clock
from flow.demand import subtract
from flow.drain import Failed, Outcome
from flow.errors import Lagged

__all__ = ["Cursor"]

T = TypeVar("T")

_NOTHING: Final[deque[Any]] = deque(maxlen=0)
"""What is saved for all those for whom nothing ever is."""

_APART: Final = 16
"""Elements for which somebody who had to leave the company keeps away: to come and go costs all of them something."""


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
        seated: Whether it stands with the company of the ring, which then owns the flag of its drain.
    """

    __slots__ = (
        "_clock",
        "_drain",
        "_missed",
        "_next",
        "_on_left",
        "_ring",
        "_saved",
        "_sits_from",
        "blocked",
        "delivered",
        "dropped",
        "gating_since",
        "lag",
        "seated",
    )

    def __init__(self, ring: Ring[T], lag: Lag, clock: Clock, on_left: Callable[[], object]) -> None:
        self._ring = ring
        self._clock = clock
        self._on_left: Callable[[], object] | None = on_left
        self._drain: Seat[T] | None = None
        self._next = 0  # while seated: where it sat down
        self._missed = 0  # lost, and not told
        self._sits_from = 0
        # DROP_LATEST only: what waits before a gap; at most the ring's capacity. Even an empty one is large.
        self._saved: deque[T] = deque() if lag is Lag.DROP_LATEST else _NOTHING
        self.lag = lag
        self.delivered = 0
        self.dropped = 0
        self.gating_since: float | None = None
        self.blocked = 0.0
        self.seated = False

    # The ring's side: the caller holds its lock.

    def enter(self, drain: Seat[T], sequence: int) -> None:
        """Begin at a sequence that the ring has, or will have next."""
        ring = self._ring
        self._drain = drain
        self._next = sequence
        ring.positions.enter(sequence)
        if self.lag is Lag.BLOCK:
            ring.gates.enter(sequence)
        ring.cursors = (*ring.cursors, self)
        ring.loose = (*ring.loose, self)
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
        unnoticed = self._place - self._at
        if self.lag is Lag.LATEST:
            unnoticed += max(self._ring.end - self._place - 1, 0)
        return self.dropped + unnoticed

    @property
    def gating(self) -> bool:
        """Whether no other BLOCK cursor is slower."""
        return self.lag is Lag.BLOCK and self._at == self._ring.gate

    def blocked_until(self, now: float) -> float:
        """Seconds for which it was in the way."""
        return self.blocked + (0.0 if self.gating_since is None else now - self.gating_since)

    def stall(self) -> None:
        """Gate no longer: the next element overtakes it, which ends it."""
        self.count_blocked()
        self.lag = Lag.ERROR
        if self.seated:
            self._ring.company.stalled()
        else:
            self._ring.gates.leave(self._next)

    def note_gating(self, now: float) -> float:
        """Say since when it is in the way, at the latest since now."""
        if self.gating_since is None:
            self.gating_since = now
            self._ring.company.gated |= self.seated
        return self.gating_since

    def count_blocked(self) -> None:
        """Go forward, or out of the way."""
        if self.gating_since is not None:
            self.blocked += self._clock.monotonic() - self.gating_since
            self.gating_since = None

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

    @property
    def taken(self) -> int:
        """Elements that were taken for it."""
        return self.delivered + (self._at - self._next)

    def sit(self) -> bool:
        """Join the company, if nothing waits but the next element: it owns the drain's flag then."""
        ring, drain = self._ring, self._drain
        if (
            self._next != ring.end
            or not self.delivered
            or self._next < self._sits_from
            or self._missed
            or drain is None
            or self.lag is Lag.DROP_LATEST
            or not drain.stand_by()
        ):
            return False
        ring.positions.leave(self._next)
        if self.lag is Lag.BLOCK:
            ring.gates.leave(self._next)
        self.seated = True
        return True

    def leave(self, sequence: int) -> None:
        """Leave the company, which is about to take a sequence; then it has to `stand`."""
        ring = self._ring
        taken = sequence - self._next
        self.seated = False
        self.delivered += taken
        self._next = sequence
        self._sits_from = sequence + _APART
        ring.positions.enter(self._place)
        if self.lag is Lag.BLOCK:
            ring.gates.enter(sequence)
        if self._drain is not None:
            self._drain.spend(taken)

    @property
    def granted(self) -> int:
        """The first sequence that its subscriber has not requested, while it is seated."""
        return self._next + (0 if self._drain is None else self._drain.demand)

    # For the company, while it owns the drain's flag.

    @property
    def batches(self) -> bool:
        """Whether its subscriber takes batches."""
        return self._drain is not None and self._drain.batches

    @property
    def call(self) -> Callable[[Any], object]:
        """What to call for each element, or for each batch."""
        assert self._drain is not None
        return self._drain.call

    @property
    def context(self) -> contextvars.Context:
        """That of the subscription."""
        assert self._drain is not None
        return self._drain.context

    @property
    def halted(self) -> bool:
        """Whether no element may follow."""
        return self._drain is None or self._drain.halted

    def fault(self, error: Exception | None) -> None:
        """End a subscription whose subscriber raised."""
        if self._drain is not None:
            self._drain.fault(error)

    # The drain's side: without the lock.

    def attend(self) -> None:
        """The drain is halted; if it is seated, it has to have its flag back."""
        ring = self._ring
        with ring.lock:
            if not self.seated or not ring.company.attend(self):
                return
        self.stand()

    def stand(self) -> None:
        """Give the flag back to the drain, and let it look."""
        drain = self._drain
        if drain is not None:
            drain.give_up()
            drain.signal()

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
        return 0 if drain is None else subtract(drain.demand, self._at - self._next)

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
            ring.loose = tuple(each for each in ring.loose if each is not self)
            if self.lag is Lag.DROP_LATEST:
                ring.choosy = tuple(each for each in ring.choosy if each is not self)
            gate = ring.gate
            ring.positions.leave(self._place)
            if self.lag is Lag.BLOCK:
                ring.gates.leave(self._next)
            ring.trim()
            self.count_blocked()
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
    def _at(self) -> int:
        return self._ring.company.place if self.seated else self._next

    @property
    def _place(self) -> int:
        return max(self._at, self._ring.start)

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
            self.count_blocked()
        self._next = to
        ring.trim()

    def _lose(self, count: int) -> None:
        self._missed += count
        self.dropped += count

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

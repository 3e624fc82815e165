"""The recent matching changes of one predicate.

Visibility
    Chunks are linked by the holder of the publish gate just before the watermark advances. A poll reads the watermark
    first and takes no chunk above it, so a chunk that is linked but not visible yet is never delivered.

Coverage
    ``start`` is the oldest position that the ring covers. A cursor whose ``next`` is at or after it is served by the
    ring alone. A ring starts and is trimmed at transaction boundaries.

Falling behind
    The ring is bounded in changes and bytes. Where the next chunk finds no room, eviction drops the oldest one and marks every
    cursor that had not taken it RESYNC, with the place from which it must read the WAL. A chunk above the bounds is
    refused: the ring restarts behind it, as if it had been linked and evicted at once.

Trimming
    What every LIVE cursor has taken leaves the ring at once. Places of chunks are numbers that only rise; the cursors
    that stand at a place are kept in a set there, so trimming and eviction cost what they remove.

Coming back
    While a cursor reads on in the WAL behind the ring, nothing is trimmed: it comes back when it reaches ``start``, which
    stays a whole ring behind the head. Else it had to catch up with the head itself, which beside a writer that never pauses
    it may never do. When the ring has turned over since the last of them read, they are given up, and it is trimmed again.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from publishers.blocks.slices import Slice
from publishers.fanout.chunk import Ahead, Asked, Chunk, Polled, RingStatistics, fitting
from publishers.fanout.state import Deed, Guard, Occurrence, Phase, StateRow, step
from publishers.model.position import Position

if TYPE_CHECKING:
    from publishers.wal import Location

__all__ = ["BEHIND", "NOWHERE", "TURN", "Ring", "RingCursor", "RingStatistics", "Round", "Waiting"]

# A member of an enum by its name costs a call before Python 3.12; these are asked for with every delivery.
_LIVE: Final = Phase.LIVE
_JOINING: Final = Phase.JOINING
_PAUSED: Final = Phase.PAUSED
_POLLED_MAX: Final = (
    8  # some 250 changes of a WebSocket: what a connection takes before the next one has its turn
)


class RingCursor:
    """What a ring knows of a cursor; every field is changed under the ring's lock only, while the cursor is in it.

    Attributes:
        next: The next position to read.
        phase: The state of its subscription; changed under the ring's lock only, by the table of states.
        held: Whether an operator has paused it.
        place: The number of the first chunk that it has not taken, while the ring keeps it for the cursor; else None.
        location: Where in the WAL ``next`` is, as far as it is known.
        owner: Its subscription.
        group: The cursors with which it may be served together.
        taken: What ``Ring.take`` took for it, until it is delivered.
    """

    __slots__ = ("group", "held", "location", "next", "owner", "phase", "place", "taken")

    def __init__(self, start: Position, owner: Any = None, group: Any = None) -> None:
        self.next = start
        self.phase = Phase.RESYNC
        self.held = False
        self.place: int | None = None
        self.location: Location | None = None
        self.owner = owner
        self.group = group
        self.taken: Ahead | None = None

    @property
    def live(self) -> bool:
        """Whether the ring serves this cursor, or would if it were not paused."""
        phase = self.phase  # once: readers without the lock may meet a change
        return phase is _LIVE or (phase is _PAUSED and self.place is not None)

    @property
    def more(self) -> bool:
        """Whether something is visible that it has not read."""
        return True

    @property
    def idle(self) -> bool:
        """Whether the ring serves it, and it has taken all that was linked; may be asked without the lock."""
        return False


class _Behind(Enum):
    BEHIND = "BEHIND"


TURN: Final = 64
"""As many cursors of a group take at a time."""

Waiting = deque[tuple[int, list[RingCursor]]]
"""Cursors, by the place where they stand."""

_NOBODY: Final[dict[Hashable, set[RingCursor]]] = {}


class Round:
    """Who of a group is served with what lies ahead, some at a time; the holder of the round changes it, by `Ring.take`.

    Attributes:
        place: Who stands there or behind it is to be found first; None if that was done.
        waiting: Who was found, and has not had its turn.
        ahead: What was taken last; None if that is nothing.
        lent: The owners of the cursors whose flags the group has for it.
        took: How many of these it was taken for.
        left: The cursors that could not take part.
        follows: Version of the chunk before which the others stand now, if one is linked.
    """

    __slots__ = ("ahead", "follows", "left", "lent", "place", "took", "waiting")

    def __init__(self, place: int) -> None:
        self.place: int | None = place
        self.waiting: Waiting = deque()
        self.ahead: Ahead | None = None
        self.lent: deque[Any] = deque()
        self.took = 0
        self.left: list[RingCursor] = []
        self.follows: int | None = None


NOWHERE: Final = Position(2**64, 0)
"""Where a ring starts that covers nothing."""

BEHIND: Final = _Behind.BEHIND
"""What ``Ring.poll`` answers to a cursor that the ring does not serve."""


class Ring:
    """A bounded window of chunks with the places of its cursors.

    Attributes:
        served: How many cursors are LIVE.

    Args:
        start: The oldest position that the ring covers at first.
        max_events: Most changes it keeps, at least 1.
        max_bytes: Most bytes it keeps, each block of which it has a change counted as a whole.
    """

    def __init__(self, start: Position, *, max_events: int, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self.start = start
        self.served = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._chunks: deque[Chunk] = deque()
        self._next = 0  # place of the first chunk that is linked when there is none
        self._standing: dict[int, dict[Hashable, set[RingCursor]]] = {}
        self._followers: set[RingCursor] = set()  # those that may come back
        self._followed = 0  # until so many events were linked
        self._events = 0
        self._nbytes = 0
        self._linked_events = 0
        self._evicted_events = 0
        self._refused_chunks = 0
        self._copied_events = 0
        self._polled: dict[Asked, Polled] = {}  # what was polled last, until a chunk leaves the ring

    def link(self, chunk: Chunk, visible: int) -> list[RingCursor]:
        """Appends a chunk, after it has evicted what leaves no room for it; answers the cursors that this overtook.

        A chunk above the bounds is refused. Either way it knows its place then: where it is, or where the next one will be.
        It is trimmed at once if no cursor stands in the ring.
        """
        overtaken: list[RingCursor] = []
        events, weight = chunk.events, chunk.weight
        with self.lock:
            if events > self._max_events or weight > self._max_bytes:
                chunk.place = self._next
                self._refused_chunks += 1
                return self._restart(chunk.version, visible)
            self._linked_events += events
            chunks = self._chunks
            while self._events + events > self._max_events or self._nbytes + weight > self._max_bytes:
                overtaken += self._evict(visible)
            chunk.place = chunks[0].place + len(chunks) if chunks else self._next
            chunks.append(chunk)
            self._next = chunk.place + 1
            self._events += events
            self._nbytes += weight
            if chunks[0].place not in self._standing:
                self._trim()
        return overtaken

    def restart(self, version: int, visible: int) -> list[RingCursor]:
        """Empties the ring and starts it behind ``version``; answers the cursors that this overtook."""
        with self.lock:
            return self._restart(version, visible)

    def detach(self, visible: int) -> list[RingCursor]:
        """Covers nothing from now on; answers the cursors that this overtook. Nothing is linked until ``attach``."""
        with self.lock:
            overtaken = self._restart(visible + 1, visible)
            self.start = NOWHERE
            return overtaken

    def attach(self, start: Position) -> None:
        """Covers what is linked from now on, all of which is at ``start`` or behind it."""
        with self.lock:
            self.start = start

    def move(self, cursor: RingCursor, event: Occurrence, at: Position | None = None) -> StateRow | None:
        """Changes the state of a cursor as the table says; None if the event means nothing now.

        Args:
            cursor: The cursor.
            event: What happens.
            at: The place that the event is about, if that is not ``next``.
        """
        with self.lock:
            row = self._move(cursor, event, at)
            self._trim()
            return row

    def _holds(self, guard: Guard, cursor: RingCursor, at: Position) -> bool:
        if guard is Guard.COVERED:
            return cursor.place is not None or self.start <= at
        return cursor.more if guard is Guard.MORE else cursor.held is (guard is Guard.HELD)

    def _move(self, cursor: RingCursor, event: Occurrence, at: Position | None = None) -> StateRow | None:
        at = cursor.next if at is None else at
        row = step(cursor.phase, event, lambda guard: self._holds(guard, cursor, at))
        if row is None:
            return None
        served = cursor.live
        for action in row.then:
            if action is Deed.LIFT:
                self._lift(cursor)
            elif action is Deed.GO:
                cursor.next, cursor.location = at, None
            elif action is Deed.STAND and cursor.place is None:
                chunk = bisect_left(self._chunks, at.version, key=lambda chunk: chunk.version)
                self._stand(cursor, self._base + chunk)
            elif action in (Deed.HOLD, Deed.RELEASE):
                cursor.held = action is Deed.HOLD
        cursor.phase = row.to
        self.served += cursor.live - served
        if cursor.live:
            cursor.location = None  # it would be that of a place where the WAL was read
        if row.to not in (Phase.RESYNC, Phase.JOINING) or event is Occurrence.SEEK:
            self._followers.discard(cursor)
        elif event in (Occurrence.EVICT, Occurrence.JOIN):
            self._followers.add(cursor)
            self._followed = self._linked_events + self._max_events
        return row

    def poll(
        self, cursor: RingCursor, upto: int, max_events: int, max_bytes: int, *, whole: bool = False
    ) -> Polled | _Behind:
        """Takes what comes next for a cursor, by reference. It is the same object for all that stand there and ask for as much.

        Args:
            cursor: Whose turn it is.
            upto: The watermark, read before this call, or a lower version at which the cursor shall stop.
            max_events: Most changes to take; 0 only moves ``next`` over versions in which nothing matches.
            max_bytes: Most bytes to take, but at least one change if there is one.
            whole: Whether a transaction that does not fit behind others is left for the next poll.

        Returns:
            The changes, and whether more are at hand; or ``BEHIND`` if the ring does not serve this cursor.
        """
        with self.lock:
            place = cursor.place
            if place is None or cursor.phase is _JOINING:
                return BEHIND
            asked = (place, cursor.next, max_events, max_bytes, whole)
            polled = self._polled.get(asked)
            if polled is None or not polled.holds(upto, self._next):
                if polled is None and len(self._polled) >= _POLLED_MAX:
                    del self._polled[next(iter(self._polled))]
                polled = self._polled[asked] = self._look(asked, upto)
            cursor.next = polled.next
            self._copied_events += polled.events
            if polled.place != place:
                self._lift(cursor)
                self._stand(cursor, polled.place)
                self._trim()
        return polled

    def _look(self, asked: Asked, upto: int) -> Polled:
        """What comes next for all cursors that stand at a place and ask for as much."""
        place, after, max_events, max_bytes, whole = asked
        taken: list[Slice] = []
        chunks = self._chunks
        base = chunks[0].place if chunks else self._next
        while (at := place - base) < len(chunks) and chunks[at].version <= upto:
            chunk = chunks[at]
            if max_events <= 0 or (max_bytes <= 0 and taken):
                break
            begins = not (after.index and after.version == chunk.version)
            if begins and chunk.events <= max_events and chunk.nbytes <= max_bytes:
                taken += chunk.slices
                max_events -= chunk.events
                max_bytes -= chunk.nbytes
            elif whole and begins and taken:
                break
            else:
                parts = chunk.slices if begins else chunk.since(after.index)
                pieces = fitting(parts, max_events, max_bytes, least=0 if taken else 1)
                taken += pieces
                max_events -= sum(map(len, pieces))
                max_bytes -= sum(piece.nbytes for piece in pieces)
                if sum(map(len, pieces)) < sum(map(len, parts)):
                    if pieces:
                        after = Position(chunk.version, pieces[-1].indices[-1] + 1)
                    break
            place += 1
            after = tuple.__new__(Position, (chunk.version + 1, 0))
        more = at < len(chunks) and chunks[at].version <= upto
        if not more:
            after = max(after, tuple.__new__(Position, (upto + 1, 0)))
        elif after.version < chunks[at].version:
            after = Position(chunks[at].version, 0)
        return Polled(tuple(taken), more, {}, upto, self._next, place, after, asked[2] - max_events)

    def groups(self, place: int) -> set[Any]:
        """The groups of the cursors that stand at a place or behind it: whom chunks linked there concern."""
        found: set[Any] = set()
        with self.lock:
            for number in self._places(place):
                found.update(self._standing.get(number, ()))
        return found

    def _places(self, first: int) -> range:
        """The places of the chunks from one on."""
        chunks = self._chunks
        if not chunks:
            return range(0)
        base = chunks[0].place
        return range(max(first, base), base + len(chunks))

    def standing(self, group: Hashable, place: int) -> Waiting:
        """The cursors of a group for whom chunks from ``place`` on are new, by the place where they stand."""
        with self.lock:
            return self._waiting(group, place)

    def _waiting(self, group: Hashable, place: int) -> Waiting:
        found: Waiting = deque()
        chunks = self._chunks
        if chunks:
            base = chunks[0].place
            for number in range(max(place, base), base + len(chunks)):
                cursors = self._standing.get(number, _NOBODY).get(group)
                if cursors:
                    found.append((number, list(cursors)))
        return found

    def take(self, group: Hashable, some: Round, upto: int, max_events: int, max_bytes: int) -> Ahead | None:
        """Takes what lies ahead of some LIVE cursors of a group, once for all of them, as ``poll`` does for one.

        Those that can take part lend the flags of their drains, whose locks are taken inside the ring's, and move. If this
        is interrupted they leave the ring, so that each goes on in the WAL from its ``next``.

        Args:
            group: Whose round it is.
            some: Who waits; it is told what became of them. Whoever moved them reads the watermark after this: a commit
                that has looked for cursors before the chunk that follows, before they came there, has advanced it already.
            upto: The watermark, read before this call.
            max_events: Most changes.
            max_bytes: Most bytes; only whole chunks are taken.
        """
        with self.lock:
            if some.place is not None:
                some.waiting, some.place = self._waiting(group, some.place), None
            if not some.waiting:
                some.ahead, some.left = None, []
                return None
            place, cursors = some.waiting[0]
            left = some.left = cursors[-TURN:]
            del cursors[-TURN:]
            if not cursors:
                some.waiting.popleft()
            ahead = some.ahead = self._ahead(place, upto, max_events, max_bytes)
            if ahead is None:
                return None
            some.took = self._lend(group, left, ahead, some.lent)
            chunks = self._chunks
            if chunks[0].place not in self._standing:
                self._trim()
            at = ahead.end - chunks[0].place if chunks else -1
            some.follows = chunks[at].version if 0 <= at < len(chunks) else None
            return ahead

    def _ahead(self, place: int, upto: int, max_events: int, max_bytes: int) -> Ahead | None:
        """What lies from a place on, up to the watermark: as many whole chunks as fit both bounds, or None."""
        slices: tuple[Slice, ...] = ()
        events = nbytes = 0
        chunks = self._chunks
        base = chunks[0].place if chunks else self._next
        at = place - base
        if at < 0:
            return None
        for chunk in islice(chunks, at, None):
            if (
                chunk.version > upto
                or events + chunk.events > max_events
                or nbytes + chunk.nbytes > max_bytes
            ):
                break
            slices += chunk.slices
            events += chunk.events
            nbytes += chunk.nbytes
            at += 1
        if not slices:
            return None
        more = at < len(chunks) and chunks[at].version <= upto
        # For every chunk: without a call of Python code.
        after = tuple.__new__(Position, (chunks[at].version if more else upto + 1, 0))
        fields = (place, at + base, slices[0].block.version, after, slices, events, nbytes, more)
        return tuple.__new__(Ahead, fields)

    def _lend(self, group: Hashable, cursors: list[RingCursor], ahead: Ahead, lent: deque[Any]) -> int:
        """Moves those behind what lies ahead that stand before it and can take it, and leaves the others in the list."""
        try:
            moved: set[RingCursor] = set()
            left = []
            for cursor in cursors:
                at, owner = cursor.next, cursor.owner
                lent.append(owner)  # first, so that no interrupt leaves a flag behind
                within = at.index and at.version >= ahead.first
                if cursor.place != ahead.place or within or not owner.lend(ahead):
                    lent.pop()
                    left.append(cursor)
                elif cursor.taken is ahead:  # else it only gets its flag back
                    moved.add(cursor)
                    cursor.place, cursor.next = ahead.end, ahead.next
            if moved:
                self._copied_events += ahead.events * len(moved)
                groups = self._standing[ahead.place]
                groups[group] -= moved
                if not groups[group]:
                    del groups[group]
                    if not groups:
                        del self._standing[ahead.place]
                there = self._standing.setdefault(ahead.end, {})
                there[group] = there[group] | moved if group in there else moved
            cursors[:] = left
            return len(moved)
        except BaseException:
            # Those that were moved, or half so, leave; the others stand where they stood.
            gone = [cursor for cursor in cursors if cursor.taken is ahead]
            for cursor in gone:
                self._move(cursor, Occurrence.EVICT, ahead.next)
            for groups in self._standing.values():
                groups.get(group, set()).difference_update(gone)
            for place in (ahead.place, ahead.end):
                self._tidy(place, group)
            raise

    def _tidy(self, place: int, group: Hashable) -> None:
        """Forgets a set of cursors that is empty."""
        groups = self._standing.get(place)
        if groups is not None and not groups.get(group):
            groups.pop(group, None)
            if not groups:
                del self._standing[place]

    def fullness(self) -> tuple[int, int, float]:
        """Changes and bytes that are present, and their share of that bound which is nearer."""
        events, nbytes = self._events, self._nbytes
        return events, nbytes, max(events / self._max_events, nbytes / self._max_bytes)

    @property
    def end(self) -> int:
        """The place behind the last chunk: where a cursor stands that has taken all of them."""
        return self._next

    def statistics(self) -> RingStatistics:
        """What the ring holds now."""
        with self.lock:
            return RingStatistics(
                start=self.start,
                chunks=len(self._chunks),
                events=self._events,
                nbytes=self._nbytes,
                live=sum(len(group) for groups in self._standing.values() for group in groups.values()),
                linked_events=self._linked_events,
                evicted_events=self._evicted_events,
                refused_chunks=self._refused_chunks,
                copied_events=self._copied_events,
                available_events=self._max_events - self._events,
            )

    def _restart(self, version: int, visible: int) -> list[RingCursor]:
        overtaken: list[RingCursor] = []
        while self._chunks:
            overtaken += self._evict(visible)
        overtaken += self._overtake(self._base, Position(version, 0), visible)
        # A ring made while this version is being published starts behind the whole commit group already.
        self.start = max(self.start, Position(version + 1, 0))
        return overtaken

    def _evict(self, visible: int) -> list[RingCursor]:
        """Drops the oldest chunk; answers the cursors that this overtook."""
        chunk = self._chunks[0]
        if chunk.place in self._standing:  # else all LIVE cursors have taken it
            self._evicted_events += chunk.events
        overtaken = self._overtake(chunk.place, Position(chunk.version, 0), visible)
        self._drop_oldest()
        return overtaken

    def _overtake(self, place: int, resume: Position, visible: int) -> list[RingCursor]:
        """Marks the cursors at a place RESYNC; they have read everything before ``resume`` that matches."""
        standing = self._standing.pop(place, {})
        resume = min(resume, Position(visible + 1, 0))
        overtaken = []
        for cursor in chain.from_iterable(standing.values()):
            if cursor.live:  # a cursor that only joins knows its own place better
                overtaken.append(cursor)
            self._move(cursor, Occurrence.EVICT, max(cursor.next, resume))
        return overtaken

    @property
    def _base(self) -> int:
        """Place of the oldest chunk."""
        return self._chunks[0].place if self._chunks else self._next

    def _stand(self, cursor: RingCursor, place: int) -> None:
        there = self._standing.setdefault(place, {}).setdefault(cursor.group, set())
        cursor.place = place  # no interrupt comes between this and the next
        there.add(cursor)

    def _lift(self, cursor: RingCursor) -> None:
        if cursor.place is not None:
            self._standing.get(cursor.place, {}).get(cursor.group, set()).discard(cursor)
            self._tidy(cursor.place, cursor.group)
            cursor.place = None

    def _trim(self) -> None:
        if self._followers:
            if self._linked_events < self._followed:
                return
            self._followers.clear()
        while self._chunks and self._chunks[0].place not in self._standing:
            # No cursor stands at the oldest chunk, and none can stand before it.
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        # Each line by itself leaves the ring sound, in case an interrupt comes between them.
        self._polled.clear()
        self.start = tuple.__new__(Position, (self._chunks[0].version + 1, 0))
        chunk = self._chunks.popleft()
        self._events = self._events - chunk.events if self._chunks else 0
        self._nbytes = self._nbytes - chunk.weight if self._chunks else 0

"""The recent matching changes of one predicate.

Visibility
    The holder of the publish gate links chunks just before it advances the watermark. A poll reads the watermark first
    and takes no chunk above it, so a chunk that is linked but not visible yet is never delivered.

Coverage
    ``start`` is the oldest position that the ring covers. The ring alone serves a cursor whose ``next`` is at or after it.
    A ring starts and is trimmed at transaction boundaries.

Eviction
    The ring is bounded in changes and bytes. If the next chunk finds no room, the ring evicts the oldest chunk and marks
    every cursor that had not taken it RESYNC, with the position from which it must read the WAL. A chunk above the bounds
    is refused: the ring restarts behind it, as if the chunk had been linked and evicted at once.

Trimming
    A chunk that every LIVE cursor has taken leaves the ring at once. Places of chunks are numbers that only rise. The ring
    keeps the cursors at each place in a set, so trimming and eviction cost only what they remove.

Coming back
    While a follower (a cursor that reads the WAL behind the ring) approaches, nothing is trimmed. The follower is LIVE again
    when it reaches ``start``, which stays a whole ring behind the head. Without this it would have to catch up with the
    head itself, which it may never do beside a writer that does not pause. Once a whole ring of changes has been linked
    since the last follower joined or was evicted, the ring forgets its followers and is trimmed again.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from enum import Enum
from itertools import chain, islice
from typing import Any, Final

from publishers.blocks.slices import Slice
from publishers.fanout.bench import TURN, Bench, RingCursor, Round
from publishers.fanout.chunk import Ahead, Chunk, DeliveryKind, Polled, PollQuery, RingStatistics, polled_from
from publishers.fanout.state import SUBSCRIPTIONS, Guard, Occurrence, Phase, PhaseAction, PhaseRow
from publishers.model.position import Position

__all__ = ["BEHIND", "NOWHERE", "Ring", "RingStatistics"]

# Access to an enum member by its name costs a call before Python 3.12; every delivery compares with these.
_LIVE: Final = Phase.LIVE
_JOINING: Final = Phase.JOINING
_POLLED_MAX: Final = 8  # results kept: some 250 changes of a WebSocket, as many as one connection takes before the next one has its turn


class _Behind(Enum):
    BEHIND = "BEHIND"


_NOBODY: Final[dict[Hashable, set[RingCursor]]] = {}


NOWHERE: Final = Position(2**64, 0)
"""The start of a ring that covers nothing."""

BEHIND: Final = _Behind.BEHIND
"""The result of ``Ring.poll`` for a cursor that the ring does not serve."""


class Ring:
    """A bounded window of chunks with the places of its cursors.

    One lock guards all of it. The locks of drains and of benches are acquired inside it, never the other way round.

    Attributes:
        served: Number of LIVE cursors, paused ones that keep a place included.

    Args:
        start: The oldest position that the ring covers at first.
        max_events: Most changes it keeps, at least 1.
        max_bytes: Most bytes it keeps. A block counts as a whole, however few of its changes match.
    """

    def __init__(self, start: Position, *, max_events: int, max_bytes: int) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.start: Position = start
        self.served: int = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._chunks: deque[Chunk] = deque()
        self._next = 0  # place of the next chunk to be linked
        self._standing: dict[int, dict[Hashable, set[RingCursor]]] = {}
        self._followers: set[RingCursor] = set()  # cursors in RESYNC or JOINING that may come back
        self._followed = 0  # the count of linked events at which the ring forgets its followers
        self._events = 0
        self._nbytes = 0
        self._linked_events = 0
        self._evicted_events = 0
        self._refused_chunks = 0
        self._copied_events = 0
        self._polled: dict[PollQuery, Polled] = {}  # results of the last polls, until a chunk leaves the ring

    def link(self, chunk: Chunk, visible: int) -> list[RingCursor]:
        """Appends a chunk and evicts older ones until it fits; returns the cursors that this overtook.

        A chunk above the bounds is refused. Either way its place is set: its own, or that of the next chunk. If no cursor
        stands in the ring, the chunk is trimmed at once.
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
        """Empties the ring and starts it behind ``version``; returns the cursors that this overtook."""
        with self.lock:
            return self._restart(version, visible)

    def detach(self, visible: int) -> list[RingCursor]:
        """Makes the ring cover nothing; returns the cursors that this overtook. No chunk is linked until ``attach``."""
        with self.lock:
            overtaken = self._restart(visible + 1, visible)
            self.start = NOWHERE
            return overtaken

    def attach(self, start: Position) -> None:
        """Makes the ring cover positions from ``start`` on. Every chunk linked from now on is at or after it."""
        with self.lock:
            self.start = start

    def move(self, cursor: RingCursor, event: Occurrence, at: Position | None = None) -> PhaseRow | None:
        """Changes the state of a cursor as the table says; returns the row, None if the table has none for the event.

        Args:
            cursor: The cursor.
            event: The event.
            at: The position that the event concerns; None for ``next``.
        """
        with self.lock:
            row = self._move(cursor, event, at)
            self._trim()
            return row

    def _holds(self, guard: Guard, cursor: RingCursor, at: Position) -> bool:
        if guard is Guard.COVERED:
            return cursor.place is not None or self.start <= at
        return cursor.more if guard is Guard.MORE else cursor.held is (guard is Guard.HELD)

    def _move(self, cursor: RingCursor, event: Occurrence, at: Position | None = None) -> PhaseRow | None:
        at = cursor.next if at is None else at
        row = SUBSCRIPTIONS.row(cursor.phase, event, lambda guard: self._holds(guard, cursor, at))
        if row is None:
            return None
        served = cursor.live
        self._unseat(cursor)
        for action in row.then:
            if action is PhaseAction.LIFT:
                self._lift(cursor)
            elif action is PhaseAction.GO:
                cursor.next, cursor.location = at, None
            elif action is PhaseAction.STAND and cursor.place is None:
                chunk = bisect_left(self._chunks, at.version, key=lambda chunk: chunk.version)
                self._stand(cursor, self._base + chunk)
            elif action in (PhaseAction.HOLD, PhaseAction.RELEASE):
                cursor.held = action is PhaseAction.HOLD
        cursor.phase = row.to
        self.served += cursor.live - served
        if cursor.live:
            cursor.location = None  # it belongs to a position that was read from the WAL
        if row.to not in (Phase.RESYNC, Phase.JOINING) or event is Occurrence.SEEK:
            self._followers.discard(cursor)
        elif event in (Occurrence.EVICT, Occurrence.JOIN):
            self._followers.add(cursor)
            self._followed = self._linked_events + self._max_events
        return row

    def poll(
        self, cursor: RingCursor, upto: int, max_events: int, max_bytes: int, *, whole: bool = False
    ) -> Polled | _Behind:
        """Takes the next changes for a cursor, by reference, and moves it behind them.

        Cursors that poll from the same place with the same bounds get the same object.

        Args:
            cursor: The cursor to move.
            upto: The watermark, read before this call, or a lower version at which the cursor stops.
            max_events: Most changes to take; 0 only moves ``next`` over versions in which nothing matches.
            max_bytes: Most bytes to take, but at least one change if there is one.
            whole: Whether to leave a transaction that does not fit behind others for the next poll.

        Returns:
            The changes, and whether more are visible; or ``BEHIND`` if the ring does not serve this cursor.
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
                polled = self._polled[asked] = polled_from(self._chunks, self._next, asked, upto)
            cursor.next = polled.next
            self._copied_events += polled.events
            if polled.place != place:
                self._lift(cursor)
                self._stand(cursor, polled.place)
                self._trim()
        return polled

    def groups(self, place: int) -> set[Any]:
        """The groups of the cursors at ``place`` or a later one: the groups that chunks linked there concern."""
        found: set[Any] = set()
        with self.lock:
            for number in self._places(place):
                found.update(self._standing.get(number, ()))
        return found

    def _places(self, first: int) -> range:
        """The places of the chunks from ``first`` on."""
        chunks = self._chunks
        return range(max(first, chunks[0].place), self._next) if chunks else range(0)

    def standing(self, group: Hashable, place: int) -> list[RingCursor]:
        """The cursors of a group that have not taken the chunks from ``place`` on, members of benches included."""
        found: list[RingCursor] = []
        with self.lock:
            for number in self._places(place):
                for one in self._standing.get(number, _NOBODY).get(group, ()):
                    found += one.members if type(one) is Bench else (one,)
        return found

    def take(self, group: Hashable, group_round: Round, upto: int) -> None:
        """Takes the chunks ahead of several LIVE cursors of a group once for all of them, as ``poll`` does for one cursor.

        Cursors that can take part lend their drains' flags and join a bench, which from then on moves in their stead. The
        locks of the drains are acquired inside the ring's lock.

        The caller reads the watermark again after this call, and compares it with ``follows``. A commit advances first and
        then looks for the groups to wake. If it looked at the place behind these chunks before the bench came there, it did
        not note this group, but it has advanced the watermark already.

        Args:
            group: The group of the round.
            group_round: The round. This sets its bench to serve, the changes (``ahead``), the cursors that must poll by themselves
                (``left``) and the version of the next chunk (``follows``).
            upto: The watermark, read before this call; -1 to take nothing.
        """
        with self.lock:
            if group_round.place is not None:
                self._find(group, group_round, group_round.place)
                group_round.place = None
            if not group_round.waiting:
                return
            place, kind, singles, benches = group_round.waiting[-1]
            group_round.ahead = ahead = self._ahead(group_round.ahead, place, upto, kind)
            if ahead is None:
                singles += self._dissolve(benches, place)
                group_round.left = singles[-TURN:]
                del singles[-TURN:], benches[:]
            else:
                bench = self._bench(group, group_round, ahead)
                if bench is not None:
                    self._advance(bench, group_round, ahead)
            if not singles and not benches:
                group_round.waiting.pop()
            chunks = self._chunks
            at = ahead.end - chunks[0].place if chunks and ahead is not None else -1
            group_round.follows = chunks[at].version if 0 <= at < len(chunks) else None

    def _dissolve(self, benches: list[Bench], place: int) -> list[RingCursor]:
        """Takes all members off these benches, so that each stands in the ring by itself; returns them."""
        found: list[RingCursor] = []
        for bench in benches:
            if bench.free_at(place):
                found += bench.members
                for cursor in tuple(bench.members):
                    self._unseat(cursor)
        return found

    def _bench(self, group: Hashable, group_round: Round, ahead: Ahead) -> Bench | None:
        """Returns the next bench to serve, after cursors joined it and unfit members left it; None if none is left."""
        place, kind, singles, benches = group_round.waiting[-1]
        bench = benches[-1] if benches and benches[-1].free_at(place) else None
        if not singles:
            benches.pop()
        elif bench is None or len(bench.members) >= group_round.most:
            bench = Bench(group, kind, place)
        else:
            benches.pop()
        if bench is None:
            return None
        if singles:
            room = min(TURN, group_round.most - len(bench.members))
            group_round.left = self._seat(bench, singles[-room:], ahead)
            del singles[-room:]
        elif benches:
            self._merge(bench, group_round)
        if kind.asks or bench.credit < ahead.events:
            group_round.left += self._unfit(bench, ahead)
        return bench if bench.members else None

    def _find(self, group: Hashable, group_round: Round, first: int) -> None:
        found: dict[Hashable, tuple[int, Any, list[RingCursor], list[Bench]]] = {}
        for place in self._places(first):
            for one in self._standing.get(place, _NOBODY).get(group, ()):
                same = place, one.kind
                if same not in found:
                    found[same] = place, one.kind, [], []
                if type(one) is Bench:
                    found[same][3].append(one)
                else:
                    found[same][2].append(one)
        group_round.waiting = [*reversed(found.values())]

    def _ahead(self, known: Ahead | None, place: int, upto: int, kind: DeliveryKind | None) -> Ahead | None:
        """The chunks from a place up to the watermark: as many whole chunks as fit both bounds, None if there is none."""
        chunks = self._chunks
        base = chunks[0].place if chunks else self._next
        at = place - base
        if kind is None or at < 0:
            return None
        slices: tuple[Slice, ...] = ()
        events, nbytes = 0, 0
        for chunk in islice(chunks, at, None):
            events += chunk.events
            nbytes += chunk.nbytes
            if chunk.version > upto or events > kind.max_events or nbytes > kind.max_bytes:
                events -= chunk.events
                break
            slices += chunk.slices
            at += 1
        if not slices:
            return None
        if known is not None and (known.place, known.end) == (place, at + base):
            return known
        more = at < len(chunks) and chunks[at].version <= upto
        # Runs for every chunk, so it builds the tuples without calling Python code.
        after = tuple.__new__(Position, (chunks[at].version if more else upto + 1, 0))
        return tuple.__new__(Ahead, (place, at + base, slices[0].block.version, after, slices, events, {}))

    def _seat(self, bench: Bench, cursors: list[RingCursor], ahead: Ahead) -> list[RingCursor]:
        """Seats on a bench the cursors that can be served with ``ahead``; returns the others."""
        left = []
        for cursor in cursors:
            at = cursor.next
            if (
                cursor.place == ahead.place
                and not (at.index and at.version >= ahead.first)
                and not cursor.bench
            ):
                cursor.bench = (
                    bench  # before the loan: an interrupt in between leaves a flag that can be recalled
                )
                drain = cursor.owner.lend(ahead.events)
                if drain is None:
                    cursor.bench = None
                elif (
                    not cursor.owner.queued
                ):  # asked while holding the flag: its previous holder may have left changes in the queue
                    self._lift(cursor)
                    cursor.place = ahead.place
                    bench.members[cursor] = drain
                    bench.credit = min(bench.credit, drain.demand)
                    continue
            left.append(cursor)
        if bench.members:
            self._stand(bench, ahead.place)
        return left

    def _unfit(self, bench: Bench, ahead: Ahead) -> list[RingCursor]:
        """Takes off a bench the members that are busy or lack demand for ``ahead``; returns them."""
        members, events = bench.members, ahead.events
        unfit: list[RingCursor] = []
        if bench.kind.asks:
            unfit += [cursor for cursor in members if cursor.owner.busy()]
        if bench.credit < events:
            unfit += [cursor for cursor, drain in members.items() if drain.demand < events]
            bench.credit = min((one.demand for one in members.values() if one.demand >= events), default=0)
        for cursor in unfit:
            self._unseat(cursor)
        return unfit

    def _merge(self, bench: Bench, group_round: Round) -> None:
        """Merges the next benches into this one while there is room, so that benches stay few as cursors come and go."""
        place, _, _, benches = group_round.waiting[-1]
        while (
            benches
            and len(bench.members) + len(benches[-1].members) <= group_round.most
            and benches[-1].free_at(place)
        ):
            other = benches.pop()
            for cursor in other.members:
                cursor.bench = bench
            bench.members |= other.members
            bench.next, bench.credit = max(bench.next, other.next), min(bench.credit, other.credit)
            other.members.clear()
            self._lift(other)

    def _advance(self, bench: Bench, group_round: Round, ahead: Ahead) -> None:
        """Moves a bench behind ``ahead``; from now on only this round delivers to its members."""
        group_round.bench, group_round.drain_count = bench, len(bench.members)
        group_round.lent = iter(tuple(bench.members.values()))
        bench.serving = group_round
        bench.credit -= ahead.events
        self._copied_events += ahead.events * group_round.drain_count
        self._lift(bench)
        bench.next = ahead.next
        self._stand(bench, ahead.end)
        if self._chunks and self._chunks[0].place not in self._standing:
            self._trim()

    def _unseat(self, cursor: RingCursor) -> None:
        """Takes a cursor off its bench and puts it at the same place; its flag stays lent until ``recall``."""
        bench = cursor.bench
        if bench is not None and bench.place is not None and bench.members.pop(cursor, None) is not None:
            cursor.next = max(cursor.next, bench.next)
            self._stand(cursor, bench.place)
            if not bench.members:
                self._lift(bench)

    def recall(self, cursor: RingCursor) -> bool:
        """Ends the loan of a cursor's flag; returns whether the caller must release the flag, instead of the round."""
        with self.lock:
            bench = cursor.bench
            if bench is None:
                return False
            self._unseat(cursor)
            cursor.bench = None
            return not bench.leave(cursor)

    def fullness(self) -> tuple[int, int, float]:
        """Changes and bytes present, and the larger of their shares of the bounds; reads without the lock."""
        events, nbytes = self._events, self._nbytes
        return events, nbytes, max(events / self._max_events, nbytes / self._max_bytes)

    @property
    def end(self) -> int:
        """The place behind the last chunk, where a cursor stands that has taken all chunks."""
        return self._next

    def statistics(self) -> RingStatistics:
        """What the ring holds now."""
        with self.lock:
            return RingStatistics(
                start=self.start,
                chunks=len(self._chunks),
                events=self._events,
                nbytes=self._nbytes,
                live=sum(
                    len(one.members) if type(one) is Bench else 1
                    for groups in self._standing.values()
                    for one in chain.from_iterable(groups.values())
                ),
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
        # A ring created while this version is being published already starts behind the whole commit group.
        self.start = max(self.start, Position(version + 1, 0))
        return overtaken

    def _evict(self, visible: int) -> list[RingCursor]:
        """Drops the oldest chunk; returns the cursors that this overtook."""
        chunk = self._chunks[0]
        if chunk.place in self._standing:  # else all LIVE cursors have taken it
            self._evicted_events += chunk.events
        overtaken = self._overtake(chunk.place, Position(chunk.version, 0), visible)
        self._drop_oldest()
        return overtaken

    def _overtake(self, place: int, resume: Position, visible: int) -> list[RingCursor]:
        """Marks the cursors at a place RESYNC; they have taken every match before ``resume``. Returns the LIVE ones."""
        standing = self._standing.pop(place, {})
        resume = min(resume, Position(visible + 1, 0))
        overtaken = []
        found: list[RingCursor] = []
        for one in chain.from_iterable(standing.values()):
            if type(one) is Bench:
                one.place = None
                for cursor in one.members:
                    cursor.next, cursor.place = max(cursor.next, one.next), None
                found += one.members
                one.members.clear()
            else:
                found.append(one)
        for cursor in found:
            if cursor.live:  # a JOINING cursor keeps its own position
                overtaken.append(cursor)
            self._move(cursor, Occurrence.EVICT, max(cursor.next, resume))
        return overtaken

    @property
    def _base(self) -> int:
        """Place of the oldest chunk."""
        return self._chunks[0].place if self._chunks else self._next

    def _stand(self, cursor: RingCursor, place: int) -> None:
        there = self._standing.setdefault(place, {}).setdefault(cursor.group, set())
        cursor.place = place  # no interrupt can come between this statement and the next
        there.add(cursor)

    def _lift(self, cursor: RingCursor) -> None:
        place, group = cursor.place, cursor.group
        if place is None:
            return
        groups = self._standing.get(place)
        if groups is not None and group in groups:
            groups[group].discard(cursor)
            if not groups[group]:
                del groups[group]
                if not groups:
                    del self._standing[place]
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
        # The ring is consistent after every line, so an interrupt between them does no harm.
        self._polled.clear()
        self.start = tuple.__new__(Position, (self._chunks[0].version + 1, 0))
        chunk = self._chunks.popleft()
        self._events = self._events - chunk.events if self._chunks else 0
        self._nbytes = self._nbytes - chunk.weight if self._chunks else 0

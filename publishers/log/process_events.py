"""Events of this process (area HOST), delivered with the changes of a log and never stored.

Subscribers that ask for area HOST receive the events that happen while they are subscribed. An event carries the version
that was current when it happened. Each subscriber receives it after everything up to that version and before anything
later: never before its cause, and in order, whichever executor runs the subscriber. It has index 0 and no position of its own.

A subscriber may be slow. The newest ``WAITING`` events wait for it; the number dropped before an event is its ``missed``
in ``meta``. A subscriber with ``on_lagged(total)`` is also notified of a drop at once and without demand.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from publishers.blocks.block import Block
from publishers.blocks.decode import Attached, attached_of, decode_one
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.batch import Batch
from publishers.fanout.state import Phase
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.change import Area, Change, time_of
from publishers.model.position import Position
from publishers.mutations.mutation import columns_of, upsert
from publishers.views.view import Content, View
from publishers.wal import Column

__all__ = ["WAITING", "HostBoard", "HostEvent", "HostingSubscription"]

WAITING: Final = 256
"""Most events of this process that wait for one subscriber."""


class _HostBlock(Block):
    """The block of a single event of this process, whose only row has index 0."""

    __slots__ = ()

    def kind(self, _index: int) -> int:
        """Area and operation."""
        return self.columns.kinds[0]

    def entity_type(self, _index: int) -> str | None:
        """Type of the event's subject."""
        return self.columns.entity_types[0]

    def key(self, _index: int) -> bytes | None:
        """Key of the event's subject."""
        return self.columns.key[0]

    def body(self, _index: int) -> bytes | None:
        """The details of the event."""
        return self._stored(self.columns.body, 0)

    def attached(self, _index: int) -> Attached:
        """The event's ``meta``."""
        return attached_of(self._stored(self.columns.meta, 0))

    def _stored(self, column: Column | None, _index: int) -> bytes | None:
        return None if column is None else column[0]

    def _make(self, _index: int, view: View) -> Change:
        bodies = view.content is Content.BODY
        return decode_one(
            self.columns, 0, at=(self.version, 0, 1), time=time_of(self.committed_at), bodies=bodies
        )


class HostEvent:
    """Something that happened in this process.

    Args:
        version: The version that was current.
        at: Microseconds since the Unix epoch.
        key: Key of its subject.
        what: Its kind, an upper-case word.
        body: Its details.
    """

    __slots__ = ("at", "block", "body", "key", "version", "what")

    def __init__(self, version: int, at: int, key: str, what: str, body: Mapping[str, Any]) -> None:
        self.version: int = version
        self.at: int = at
        self.key: str = key
        self.what: str = what
        self.body: Mapping[str, Any] = body
        self.block: Block = self.render(version, 0)

    def render(self, version: int, missed: int) -> Block:
        """Renders the event for a subscriber at ``version`` that has missed ``missed`` events before it."""
        meta = {"event": self.what} | ({"missed": missed} if missed else {})
        row = replace(upsert("log", self.key, self.body, meta=meta), area=int(Area.HOST))
        return _HostBlock(
            columns_of([row]),
            version=version,
            first_index=0,
            leads=False,
            ends=True,
            transaction_count=1,
            transaction_bytes=0,
            committed_at=self.at,
        )


class HostBoard:
    """Distributes the events of this process to the subscriptions that receive them.

    Args:
        version: Returns the current version.
        now: Returns microseconds since the Unix epoch.
    """

    def __init__(self, version: Callable[[], int], now: Callable[[], int]) -> None:
        self._version = version
        self._now = now
        self._lock = threading.Lock()
        self._readers: dict[HostingSubscription, None] = {}

    def add(self, reader: "HostingSubscription") -> None:
        """Registers a subscription for the events that happen from now on."""
        with self._lock:
            self._readers[reader] = None

    def remove(self, reader: "HostingSubscription") -> None:
        """Unregisters a subscription. Idempotent."""
        with self._lock:
            self._readers.pop(reader, None)

    def publish(self, key: str, what: str, body: Mapping[str, Any]) -> None:
        """Publishes an event. The caller must hold no lock, because user code may run here."""
        with self._lock:  # all subscriptions receive the events in the same order
            readers = list(self._readers)
            if not readers:
                return
            event = HostEvent(self._version(), self._now(), key, what, body)
            concerned = [reader for reader in readers if reader.offer(event)]
        for reader in concerned:
            reader.heed()


class HostingSubscription(ChangeSubscription):
    """A subscription that receives events of this process between the changes of the log.

    Args:
        board: Distributes the events.
        wanted: Selects the events to receive.
    """

    _joins = False  # an event may have to come before the changes

    def __init__(self, *args: Any, board: HostBoard, wanted: Predicate, **named: Any) -> None:
        self._board = board
        self._wanted = wanted
        self._guard = threading.Lock()
        self._waiting: deque[HostEvent] = deque()
        self._missed = 0  # before the first waiting event
        self._missed_ever = 0
        self._passed = 0  # the newest version of which a change or event was delivered
        super().__init__(*args, **named)
        # No other subscription may share what it reads: _filled is also the rest of a batch.
        self._reader.alone = True
        self._lags = callable(getattr(args[2], "on_lagged", None))
        board.add(self)

    # On the thread that publishes an event.

    def offer(self, event: HostEvent) -> bool:
        """Queues an event if the subscription wants it; returns whether it does. Runs no user code."""
        if not self._wanted.select(event.block):
            return False
        with self._guard:
            if len(self._waiting) == WAITING:
                self._waiting.popleft()
                self._missed += 1
                self._missed_ever += 1
            self._waiting.append(event)
        return True

    def heed(self) -> None:
        """Wakes the drain for a queued event."""
        if self._missed_ever and self._lags:
            self._run(partial(self.drain.notify, "lagged", self._deliver_lagged))
        self._run(self.drain.signal)

    def _deliver_lagged(self, subscriber: Any) -> None:
        subscriber.on_lagged(self._missed_ever)

    # On the drain.

    def _pull(self, limit: int) -> Sequence[Change]:
        """Returns changes up to the version of the first waiting event, then that event, then later changes."""
        if not self._ready():
            return ()
        batch, self._filled = self._filled, None
        if batch is None:
            found = super()._pull(limit)
            if not isinstance(found, Batch) or not found:
                reading = self.cursor.phase is Phase.JOINING or self._filled is not None
                return () if reading else self._hosted(limit, self.cursor.next)
            batch = found
        if not self._waiting:
            return self._pass(*batch.cut(limit))
        due = max(self._waiting[0].version, self._passed)
        before = tuple(part for part in batch.slices if part.block.version <= due)
        if len(before) == len(batch.slices):
            return self._pass(*batch.cut(limit))
        later = batch.slices[len(before) :]
        bound = Position(later[0].block.version, 0)
        if not before:
            self._filled = batch
            return self._hosted(limit, bound) or self._pass(*batch.cut(limit))
        self._filled = Batch(later, batch.end, batch.view)
        given, rest = Batch(before, bound, batch.view).cut(limit)
        if rest is not None:
            self._filled = Batch((*rest.slices, *later), batch.end, batch.view)
        return self._pass(given, self._filled)

    def release(self) -> None:
        """Also leaves the board."""
        self._board.remove(self)
        super().release()

    def _pass(self, given: Batch, rest: Batch | None) -> Batch:
        self._filled = rest
        self._passed = given.slices[-1].block.version
        return given

    def _hosted(self, limit: int, bound: Position) -> Sequence[Change]:
        """Returns the waiting events of versions before ``bound``, up to which every change has been delivered."""
        slices: list[Slice] = []
        with self._guard:
            while self._waiting and len(slices) < limit:
                version = max(self._waiting[0].version, self._passed)
                if version >= bound.version:
                    break
                event = self._waiting.popleft()
                missed, self._missed = self._missed, 0
                unchanged = version == event.version and not missed
                slices.append(Slice(event.block if unchanged else event.render(version, missed), (0,)))
        if not slices:
            return ()
        return self._pass(Batch(tuple(slices), bound, self.view), self._filled)

"""The state first, then every change, exactly: against the model, with writers, crashes and resumptions at any message."""

import json
import random
import threading

import pytest

import flow
from publishers import ChangeLog, Content, Criterion, Operation, PageSource, remove, truncate, upsert
from publishers.mutations.mutation import flattened
from publishers.snapshots import SnapshotChange
from publishers.snapshots.delivery import RowDelivery
from tests.harness.constants import set_constant, without_bounds
from tests.harness.entities import apply, replayed, some, state_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, scratch

pytestmark = pytest.mark.timeout(600)

OPTIONS = {**QUICK, "state": True, "frame_bytes": 1024}


class Consumer:
    """Keeps entities, and the cursor behind the last message that it has stored."""

    def __init__(self):
        self.entities = {}
        self.cursor = None
        self.version = 0
        self.samples = {}
        self.ended = False
        self.rows = self.resumed = self.agains = 0

    def take(self, log, change):
        read = change.operation is Operation.READ
        if not isinstance(change, SnapshotChange):
            self.ended = True
            if change.version != self.version:  # all that is before it was given
                self.samples[change.version - 1] = dict(self.entities)
        elif self.ended:
            assert self.agains, "something of a snapshot came after its end"
            if read:  # as new as what was given before it, and no newer
                assert self.entities[change.entity_type, change.key] == change.body
        else:
            self.rows += read
        apply(self.entities, change)
        self.cursor = log.cursor(change)
        self.version = change.version - (change.operation.name == "READ")

    def stored(self):
        return dict(self.entities), self.cursor, self.version, self.ended

    def crash(self, stored):
        self.entities, (self.cursor, self.version, self.ended) = dict(stored[0]), stored[1:]
        self.resumed += 1


class Captured:
    """A feed whose subscription can be got at."""

    def __init__(self, feed):
        self.feed = feed

    def subscribe(self, subscriber, /, **serving):
        self.subscriber = subscriber
        self.feed.subscribe(self, **serving)

    def __getattr__(self, name):
        return getattr(self.subscriber, name)

    def on_subscribe(self, subscription, /):
        self.subscription = subscription
        self.subscriber.on_subscribe(subscription)


class Life:
    """A log with writers, a database that they write first, and a consumer that dies now and then.

    Rows come from the state of the log, or from the database: as of a version, as it is now, or as it is now while the log
    gets what it has by a way of its own (``outbox``).
    """

    def __init__(self, seed, kind):
        self.chance = chance = random.Random(f"{seed} {kind}")
        self.kind = kind
        self.options = {**OPTIONS, "state": kind == "state", "state_interval": chance.choice([0.0, 0.001])}
        self.path = scratch() / "log"
        self.types = chance.choice(["abc", "ab", "c"])
        self.wishes = (Criterion(entity_types=set(self.types)),)
        if self.types == "abc" and chance.random() < 0.5:
            self.wishes = ()
        self.writing = threading.RLock()
        self.database = {}
        self.outbox = []
        self.source = None
        if kind != "state":
            rows = chance.choice([1, 3, 7, 1000])
            self.source = [self.table(name, rows, chance.choice([80, 500, 2**20])) for name in "abc"]
        self.log = ChangeLog.open(self.path, **without_bounds(self.options))
        self.number = 0
        self.pasts = {}  # the state at a version, which never changes
        self.left = 60  # commits of writers
        self.consumer = Consumer()
        for _ in range(chance.choice([0, 5, 60])):
            self.write()
        self.kept = self.consumer.stored()

    def table(self, name, rows, nbytes):
        if self.kind == "as_of":
            return PageSource(entity_type=name, pages=lambda request: self.past(name, request), as_of=True,
                              page_rows=rows, page_bytes=nbytes)  # fmt: skip
        marker = self.flush if self.kind == "outbox" else None
        return PageSource(entity_type=name, pages=lambda request: self.present(name, request), marker=marker,
                          page_rows=rows, page_bytes=nbytes)  # fmt: skip

    def past(self, name, request):
        state = self.pasts.get(request.version)
        if state is None:
            state = self.pasts[request.version] = state_of(self.log, request.version)
        for kind, key in sorted(state):
            if kind == name and key > (request.after or ""):
                yield key, state[kind, key]

    def present(self, name, request):
        """Row by row, while writers go on."""
        key, given, chance = request.after or "", [], random.Random(self.number)
        while True:
            with self.writing:
                keys = [key for kind, key in self.database if kind == name]
                key = min((one for one in keys if one > key), default=None)
                if key is None:
                    return
                row = key, self.database[name, key]
            yield row
            given.append(key)
            if chance.random() < 0.3 and self.left > 0:
                self.left -= 1
                self.write()
                self.touch(name, chance.choice(given), chance)

    def touch(self, name, key, chance):
        """Changes a row that was read just now."""
        dice = chance.random()
        with self.writing:
            self.number += 1
            made = upsert(name, key, {"n": self.number}) if dice < 0.5 else remove(name, key)
            self.put([truncate(name) if dice > 0.9 else made])

    def put(self, mutations):
        with self.writing:
            for row in flattened(mutations):
                self.perform(row)
            self.outbox.append(mutations)
            if self.kind != "outbox" or self.number % 3 == 0:
                self.flush()

    def perform(self, row):
        place = row.entity_type, row.key.decode()
        if row.operation == Operation.TRUNCATE:
            for one in [one for one in self.database if one[0] == row.entity_type]:
                del self.database[one]
        elif row.operation in {Operation.REMOVE, Operation.EXPIRE}:
            self.database.pop(place, None)
        elif row.meta is None or b'"field"' not in row.meta:
            self.database[place] = json.loads(row.body)

    def flush(self):
        with self.writing:
            for mutations in self.outbox:
                self.log.commit(mutations)
            self.outbox.clear()
            return self.log.visible

    def write(self):
        with self.writing:
            self.number += 1
            self.put(some(self.chance, self.number))

    def mark(self):
        """Commits something that the consumer waits for."""
        with self.writing:
            self.put([upsert(self.types[0], "marker", {"n": self.number})])
            self.flush()

    def consume(self):
        """Takes messages until it dies, or everything was written and the rows have ended."""
        chance, log, consumer = self.chance, self.log, self.consumer
        self.mark()
        feed = Captured(
            log.changes(
                *self.wishes, since=consumer.cursor or "state", source=self.source, content=Content.BODY
            )
        )
        with flow.iter_blocking(feed, prefetch=chance.choice([1, 2, 32])) as changes:
            for change in changes:
                consumer.take(log, change)
                dice = chance.random()
                if dice < 0.4 and self.left > 0:
                    self.left -= 1
                    self.write()
                    self.mark()
                if dice > 0.8:
                    self.kept = consumer.stored()
                if dice > 0.9 and consumer.ended and hasattr(feed.subscription, "refresh"):
                    consumer.agains += 1
                    feed.subscription.refresh(Criterion(entity_types={chance.choice(self.types)}))
                if 0.7 < dice < 0.75 or (self.left <= 0 and consumer.ended):
                    return
                if change.version >= log.visible:
                    self.mark()

    def die(self):
        """The consumer may go on with what it had stored a while ago, and the log may be opened anew."""
        if self.chance.random() < 0.5:
            self.consumer.crash(self.kept)
        if self.chance.random() < 0.2:
            self.log.close()
            self.log = ChangeLog.open(self.path, **without_bounds(self.options))

    def judge(self):
        history = self.log.history(since=self.log.oldest, limit=1_000_000, content=Content.BODY).changes
        assert self.consumer.samples
        for version, found in self.consumer.samples.items():
            there = replayed(change for change in history if change.version <= version)
            wanted = {place: body for place, body in there.items() if place[0] in self.types}
            assert found == wanted, version


def robbed(real, thief):
    """Half of the times, what was read and is not delivered yet is given up before."""

    def call(self, *given):
        if real.__name__ == "replay_stopped":
            self._reading = False
        if thief.random() < 0.5:
            self.give_up()
        return real(self, *given)

    return call


@pytest.mark.parametrize("kind", ["state", "as_of", "now", "outbox"])
@pytest.mark.parametrize("seed", range(scaled(8)))
def test_rows_and_changes_are_the_state_at_every_position_after_the_end(seed, kind, monkeypatch):
    """F88, F89, F91, F93, F146: whatever happens between any two messages.

    Writers go on, with TRUNCATE, EXPIRE, key changes and field-level changes; pages are of a few rows, and writers write while
    one is read; rows are asked for again; the consumer dies and goes on by the cursor of any message, the last or an older one
    with the entities of then; the log is closed and opened. Of half of the logs others need the memory: pages are read
    sparingly, and given up while they are delivered and before.
    """
    life = Life(seed, kind)
    if seed % 2:
        life.options["snapshot_bytes"] = 0
        thief = random.Random(seed)
        for name in ("pull", "replay_stopped"):
            monkeypatch.setattr(RowDelivery, name, robbed(getattr(RowDelivery, name), thief))
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", life.chance.choice([1, 3, 7, 1000]))
    set_constant(monkeypatch, "publishers.snapshots.reader._FRAMES", life.chance.choice([1, 2, 64]))
    try:
        while life.left > 0 or not life.consumer.ended:
            life.consume()
            life.die()
        life.judge()
    finally:
        life.log.close()

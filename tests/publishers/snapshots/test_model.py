"""The state first, then every change, exactly: against the model, with writers, crashes and resumptions at any message."""

import random

import pytest

import flow
from publishers import ChangeLog, Content, Criterion, upsert
from publishers.snapshots import SnapshotChange
from tests.harness.entities import apply, replayed, some
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
        self.rows = self.resumed = 0

    def take(self, log, change):
        if not isinstance(change, SnapshotChange):
            self.ended = True
            if change.version != self.version:  # all that is before it was given
                self.samples[change.version - 1] = dict(self.entities)
        else:
            assert not self.ended, "something of a snapshot came after its end"
            self.rows += change.operation.name == "READ"
        apply(self.entities, change)
        self.cursor = log.cursor(change)
        self.version = change.version - (change.operation.name == "READ")

    def stored(self):
        return dict(self.entities), self.cursor, self.version, self.ended

    def crash(self, stored):
        self.entities, (self.cursor, self.version, self.ended) = dict(stored[0]), stored[1:]
        self.resumed += 1


class Life:
    """A log with writers, and a consumer that dies now and then."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        self.options = {**OPTIONS, "state_interval": chance.choice([0.0, 0.001])}
        self.path = scratch() / "log"
        self.types = chance.choice(["abc", "ab", "c"])
        self.wishes = (Criterion(entity_types=set(self.types)),)
        if self.types == "abc" and chance.random() < 0.5:
            self.wishes = ()
        self.log = ChangeLog.open(self.path, **self.options)
        self.number = 0
        self.left = 60  # commits of writers
        self.consumer = Consumer()
        for _ in range(chance.choice([0, 5, 60])):
            self.write()
        self.kept = self.consumer.stored()

    def write(self):
        self.number += 1
        self.log.commit(some(self.chance, self.number))

    def mark(self):
        """Commits something that the consumer waits for."""
        self.log.commit([upsert(self.types[0], "marker", {"n": self.number})])

    def consume(self):
        """Takes messages until it dies, or everything was written and the rows have ended."""
        chance, log, consumer = self.chance, self.log, self.consumer
        self.mark()
        feed = log.changes(*self.wishes, since=consumer.cursor or "state", content=Content.BODY)
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
            self.log = ChangeLog.open(self.path, **self.options)

    def judge(self):
        history = self.log.history(since=self.log.oldest, limit=1_000_000, content=Content.BODY).changes
        assert self.consumer.samples
        for version, found in self.consumer.samples.items():
            there = replayed(change for change in history if change.version <= version)
            wanted = {place: body for place, body in there.items() if place[0] in self.types}
            assert found == wanted, version


@pytest.mark.parametrize("seed", range(scaled(8)))
def test_rows_and_changes_are_the_state_at_every_position_after_the_end(seed, monkeypatch):
    """F88, F89, F93, F146: whatever happens between any two messages.

    Writers go on, with TRUNCATE, EXPIRE, key changes and field-level changes; pages are of a few rows; the consumer dies and
    goes on by the cursor of any message, the last or an older one with the entities of then; the log is closed and opened.
    """
    life = Life(seed)
    monkeypatch.setattr("publishers.snapshots.reader._ROWS", life.chance.choice([1, 3, 7, 1000]))
    monkeypatch.setattr("publishers.snapshots.reader._FRAMES", life.chance.choice([1, 2, 64]))
    try:
        while life.left > 0 or not life.consumer.ended:
            life.consume()
            life.die()
        life.judge()
    finally:
        life.log.close()

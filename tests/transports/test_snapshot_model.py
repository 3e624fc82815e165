"""The state first, then every change, over the wire: against the model, with writers, lost connections and crashes at any message.

Both machines run here, with a link of the test between them: what was sent may be lost from any message on.
"""

import asyncio
import json
import random

import pytest

from publishers import ChangeLog, Content, Operation, upsert
from tests.harness.entities import apply, replayed, some
from tests.harness.scale import scaled
from tests.publishers.support import QUICK
from tests.transports.server.test_change_driver import FakeLink
from transports.codec.replies import RemoteChange
from transports.limits import Limits
from transports.protocol.client import ClientSession, Deliver, Ended, Retry
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Send
from transports.server.change_driver import ChangeDriver

pytestmark = pytest.mark.timeout(600)

TYPES = "ab"


class Wires:
    """A client over connections that the test cuts, and its entities."""

    def __init__(self, log, chance):
        self.log, self.chance = log, chance
        self.session = ClientSession(None, lambda _: 0.0)
        self.cut_off()
        self.begin("state")

    def begin(self, since):
        """A client that was started anew, and goes on by a cursor that it has stored."""
        place = {"start": "state"} if since == "state" else {"since": since}
        wish = {
            "criteria": [{"entity_types": list(TYPES)}],
            "content": "BODY",
            "batch": {"maxEvents": 3},
            **place,
        }
        self.entry = ClientSubscription(self.session.name(), wish)
        self.credit(self.chance.randint(1, 5))
        self.do(self.session.subscribe(self.entry))

    def credit(self, n):
        self.entry.wanted += n

    def cut_off(self):
        """There is no connection, and what was on its way is gone."""
        self.link = None

    def dial(self):
        self.link = link = FakeLink()
        link.taken = 0
        limits = Limits(resync_checkpoint=0.001)
        link.receiver = ChangeDriver(
            {"shop": self.log}, link, limits=limits, loop=asyncio.get_running_loop(), server="test"
        )
        self.do(self.session.begin())

    def do(self, effects):
        for effect in effects:
            if isinstance(effect, Send) and self.link is not None:
                self.link.receiver.received(effect.data)
            assert not isinstance(effect, (Ended, Retry)), effect

    def receive(self):
        """One message of the server, if one has come; answers what it tells, or None."""
        if self.link.taken == len(self.link.messages):
            return None
        message = self.link.messages[self.link.taken]
        self.link.taken += 1
        effects = self.session.receive(json.dumps(message))
        self.do(effects)
        found = [one for effect in effects if isinstance(effect, Deliver) for one in effect.events]
        return message["type"], [one for one in found if isinstance(one, RemoteChange)]

    def lose(self):
        """The connection is lost, if there is one, with what the client has not read of it."""
        if self.link is None:
            return
        self.link.receiver.lost()
        self.session.lost()
        self.cut_off()


class Consumer:
    """Entities, and how far they are: all that is stored together."""

    def __init__(self):
        self.entities, self.samples, self.version, self.ended = {}, {}, 0, False
        self.rows = 0

    def take(self, change):
        if change.cursor.startswith("n1:"):
            assert not self.ended, "something of a snapshot came after its end"
        else:
            self.ended = True
            if change.version != self.version:
                self.samples[change.version - 1] = dict(self.entities)
        self.rows += change.operation is Operation.READ
        apply(self.entities, change)
        self.version = change.version - (change.operation is Operation.READ)

    def stored(self, cursor):
        return dict(self.entities), self.version, self.ended, cursor

    def crash(self, stored):
        self.entities, (self.version, self.ended) = dict(stored[0]), stored[1:3]


class Life:
    """Writers, and what becomes of connections and of the client, until all was written and the rows have ended."""

    def __init__(self, log, chance, wires, consumer):
        self.log, self.chance, self.wires, self.consumer = log, chance, wires, consumer
        self.left = 40
        self.kept = consumer.stored("state")

    async def live(self):
        async with asyncio.timeout(120):
            while self.left > 0 or not self.consumer.ended:
                if self.wires.link is None:
                    self.wires.dial()
                told = self.wires.receive()
                if told is None:
                    await self.wait()
                    continue
                for change in told[1]:
                    self.consumer.take(change)
                if told[0] != "connection_ack":
                    self.happen(self.chance.random())

    async def wait(self):
        """Nothing has come: the client may want more, and writers go on."""
        await asyncio.sleep(0)
        if self.chance.random() < 0.1 and not (self.wires.entry.cursor or "n1:").startswith("n1:"):
            self.write([])
        self.wires.credit(self.chance.randint(0, 4))
        self.wires.do(self.wires.session.request(self.wires.entry))

    def write(self, mutations):
        self.left -= 1
        self.log.commit([*mutations, upsert(TYPES[0], "marker", {"n": self.left})])

    def happen(self, dice):
        wires = self.wires
        if dice < 0.3 and self.left > 0:
            self.write(some(self.chance, 1000 + self.left))
        elif dice < 0.5:
            self.kept = self.consumer.stored(wires.entry.cursor or "state")
        elif dice < 0.6:
            wires.lose()
        elif dice < 0.65:  # it was killed, and goes on with what it had stored
            wires.do(wires.session.cancel(wires.entry))
            self.consumer.crash(self.kept)
            wires.begin(self.kept[3])


@pytest.mark.parametrize("seed", range(scaled(30)))
async def test_rows_and_changes_are_the_state_at_every_position_over_lost_connections(
    seed, monkeypatch, tmp_path
):
    """F39, F88, F89, F93, F146: the client goes on by itself, or was killed and goes on by any cursor that it had stored."""
    chance = random.Random(seed)
    monkeypatch.setattr("publishers.snapshots.reader._ROWS", chance.choice([1, 3, 7, 1000]))
    monkeypatch.setattr("publishers.snapshots.reader._FRAMES", chance.choice([1, 2, 64]))
    with ChangeLog.open(tmp_path / "shop", **QUICK, state=True, state_interval=0.0) as log:
        for number in range(chance.choice([0, 5, 40])):
            log.commit(some(chance, number))
        wires, consumer = Wires(log, chance), Consumer()
        await Life(log, chance, wires, consumer).live()
        wires.lose()
        history = log.history(since=log.oldest, limit=1_000_000, content=Content.BODY).changes
        assert consumer.samples
        for version, found in consumer.samples.items():
            there = replayed(change for change in history if change.version <= version)
            assert found == {place: body for place, body in there.items() if place[0] in TYPES}, version

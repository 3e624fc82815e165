"""The state first, then every change, over the wire: against the model, with writers, lost connections and crashes at any message.

Both machines run here, with a link of the test between them: what was sent may be lost from any message on.
"""

import asyncio
import itertools
import json
import random
from datetime import UTC, datetime

import pytest

from publishers import Area, ChangeLog, Content, Operation, PageSource, upsert
from tests.harness.constants import set_bounds, set_constant, without_bounds
from tests.harness.entities import apply, replayed, some, state_of
from tests.harness.scale import LONG, scaled
from tests.publishers.support import QUICK
from tests.transports.server.test_change_driver import FakeLink
from transports.codec.replies import RemoteChange
from transports.graphql.execution import Engine
from transports.limits import Limits
from transports.protocol.client import ClientSession, Deliver, Ended, Retry
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Send
from transports.server.change_driver import ChangeDriver
from transports.server.graphql_driver import GraphQLDriver

pytestmark = pytest.mark.timeout(600)

TYPES = "ab"
BOUNDS = {
    "resync_checkpoint": 0.001,
    "snapshots": 100,
    "messages_per_second": 10**9,
}


class Wires:
    """A client over connections that the test cuts: of ``penstock.v1+json``, by the machine of the Python client.

    Attributes:
        cursor: The place behind what has come; None before that is known.
    """

    def __init__(self, log, chance):
        self.log, self.chance = log, chance
        self.session = ClientSession(lambda _: 0.0)
        self.cut_off()
        self.begin("state")

    @property
    def cursor(self):
        return self.entry.cursor

    def begin(self, since):
        """A client that was started anew, and goes on by a cursor that it has stored."""
        place = {"start": "state"} if since == "state" else {"since": since, "snapshot": "initial"}
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
        self.do(self.session.request(self.entry))

    def again(self, kind, after):
        """Asks for rows once more."""
        self.entry.ask_again({"criteria": [{"entity_types": [kind]}], "after": after})
        self.do(self.session.ask_rows(self.entry))

    def cut_off(self):
        """There is no connection, and what was on its way is gone."""
        self.link = None

    def dial(self):
        self.link = link = FakeLink()
        link.taken = 0
        link.receiver = self.driver(link, Limits(**without_bounds(BOUNDS)))
        self.greet()

    def driver(self, link, limits):
        loop = asyncio.get_running_loop()
        return ChangeDriver({"shop": self.log}, link, limits=limits, loop=loop, server="test")

    def greet(self):
        self.do(self.session.begin())

    def do(self, effects):
        for effect in effects:
            if isinstance(effect, Send) and self.link is not None:
                self.link.receiver.received(effect.data)
            assert not isinstance(effect, (Ended, Retry)), effect

    def receive(self):
        """One message of the server, if one has come; answers its type and its changes, or None."""
        if self.link.taken == len(self.link.messages):
            assert self.link.closed is None
            return None
        message = self.link.messages[self.link.taken]
        self.link.taken += 1
        return message["type"], self.read(message)

    def read(self, message):
        effects = self.session.receive(json.dumps(message))
        self.do(effects)
        found = [one for effect in effects if isinstance(effect, Deliver) for one in effect.events]
        return [one for one in found if isinstance(one, RemoteChange)]

    def forget(self):
        """The client was killed, and its server notices."""
        self.do(self.session.cancel(self.entry))

    def lose(self):
        """The connection is lost, if there is one, with what the client has not read of it."""
        if self.link is None:
            return
        self.link.receiver.lost()
        self.hear()
        self.cut_off()

    def hear(self):
        self.session.lost()


class GraphQLWires(Wires):
    """A client of ``graphql-transport-ws`` that keeps the cursor of the last event, and asks for what follows it."""

    DOCUMENT = """subscription ($since: Cursor, $start: Start, $snapshot: Snapshot) {
      onChange(criteria: [{entityTypes: ["a", "b"]}], since: $since, start: $start, snapshot: $snapshot) {
        cursor version index area operation entityType key field body
      }
    }"""

    def __init__(self, log, chance):
        self.log, self.chance = log, chance
        self.ids, self.id, self.place = itertools.count(), None, None
        self.cut_off()
        self.begin("state")

    @property
    def cursor(self):
        return self.place

    def begin(self, since):
        self.place = None if since == "state" else since
        self.subscribe()

    def subscribe(self):
        self.id = str(next(self.ids))
        place = {"start": {"place": "STATE"}} if self.place is None else {"since": self.place}
        payload = {
            "query": self.DOCUMENT,
            "variables": {**place, "snapshot": "INITIAL"},
            "extensions": {"flow": {"credits": self.chance.randint(1, 5)}},
        }
        self.say(type="subscribe", id=self.id, payload=payload)

    def say(self, **message):
        if self.link is not None:
            self.link.receiver.received(json.dumps(message))

    def credit(self, n):
        if n:
            self.say(type="ping", payload={"request": {self.id: n}})

    def again(self, kind, after):
        if self.place is not None:  # an event has come
            self.say(type="ping", payload={"again": {self.id: {"entityTypes": [kind], "after": after}}})

    def driver(self, link, limits):
        loop = asyncio.get_running_loop()
        return GraphQLDriver(Engine({"shop": self.log}, limits), link, limits=limits, loop=loop)

    def greet(self):
        self.say(type="connection_init")
        self.subscribe()

    def read(self, message):
        if message["type"] == "ping":
            self.say(type="pong", payload=message["payload"])
        if message.get("id") != self.id:
            return []
        assert message["type"] == "next", message
        event = message["payload"]["data"]["onChange"]
        self.place = event["cursor"]
        return [
            RemoteChange(
                int(event["version"]),
                event["index"],
                0,
                datetime.now(UTC),
                Area[event["area"]],
                Operation[event["operation"]],
                event["entityType"],
                event["key"],
                json.dumps(event["body"]).encode(),
                field=event["field"],
                cursor=event["cursor"],
            )
        ]

    def forget(self):
        self.say(type="complete", id=self.id)

    def hear(self):
        """Nothing: it subscribes again when it has dialled."""


class Consumer:
    """Entities, and how far they are: all that is stored together."""

    def __init__(self):
        self.entities, self.samples, self.version, self.ended = {}, {}, 0, False
        self.rows = self.agains = 0

    def take(self, change):
        if not change.cursor.startswith("n1:"):
            self.ended = True
            if change.version != self.version:
                self.samples[change.version - 1] = dict(self.entities)
        elif self.ended:
            assert self.agains, "something of a snapshot came after its end"
            if change.operation is Operation.READ:  # as new as what was given before it, and no newer
                assert self.entities[change.entity_type, change.key] == change.body
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
                if told[0] not in ("connection_ack", "ping", "pong"):
                    self.happen(self.chance.random())

    async def wait(self):
        """Nothing has come: the client may want more, and writers go on."""
        await asyncio.sleep(0)
        # GraphQL tells the end of rows with the next change only, so one has to come.
        inside = (self.wires.cursor or "n1:").startswith("n1:")
        if self.chance.random() < (0.002 if inside else 0.1):
            self.write([])
        self.wires.credit(self.chance.randint(0, 4))

    def write(self, mutations):
        self.left -= 1
        self.log.commit([*mutations, upsert(TYPES[0], "marker", {"n": self.left})])

    def happen(self, dice):
        wires = self.wires
        if dice < 0.3 and self.left > 0:
            self.write(some(self.chance, 1000 + self.left))
        elif dice < 0.5:
            self.kept = self.consumer.stored(wires.cursor or "state")
        elif dice < 0.6:
            wires.lose()
        elif dice < 0.65:  # it was killed, and goes on with what it had stored
            wires.forget()
            self.consumer.crash(self.kept)
            wires.begin(self.kept[3])
        elif dice < 0.7 and self.consumer.ended:
            self.consumer.agains += 1
            wires.again(self.chance.choice(TYPES), f"{self.chance.randrange(40):03}")


def table(log, kind, rows):
    """A source that reads what is there now."""

    def pages(request):
        found = state_of(log)
        return (
            (key, found[kind, key])
            for one, key in sorted(found)
            if one == kind and key > (request.after or "")
        )

    return PageSource(entity_type=kind, pages=pages, page_rows=rows)


@pytest.mark.parametrize("given", ["state", "source"])
@pytest.mark.parametrize("kind", [Wires, GraphQLWires])
@pytest.mark.parametrize("seed", range(scaled(10) if LONG else 2))
async def test_rows_and_changes_are_the_state_at_every_position_over_lost_connections(
    seed, kind, given, monkeypatch, tmp_path
):
    """F39, F88, F89, F91, F93, F146, F158: over each protocol, from the state and from a source of rows.

    The client goes on by itself, or was killed and goes on by any cursor that it had stored; and it asks for rows again.
    """
    chance = random.Random(seed)
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", chance.choice([1, 3, 7, 1000]))
    set_constant(monkeypatch, "publishers.snapshots.reader._FRAMES", chance.choice([1, 2, 64]))
    set_bounds(state_interval=0.0)
    with ChangeLog.open(tmp_path / "shop", **QUICK, state=given == "state") as log:
        if given == "source":
            log.snapshots_from(*(table(log, name, chance.choice([1, 3, 1000])) for name in "abc"))
        for number in range(chance.choice([0, 5, 40])):
            log.commit(some(chance, number))
        wires, consumer = kind(log, chance), Consumer()
        await Life(log, chance, wires, consumer).live()
        wires.lose()
        history = log.history(since=log.oldest, limit=1_000_000, content=Content.BODY).changes
        assert consumer.samples
        for version, found in consumer.samples.items():
            there = replayed(change for change in history if change.version <= version)
            assert found == {place: body for place, body in there.items() if place[0] in TYPES}, version

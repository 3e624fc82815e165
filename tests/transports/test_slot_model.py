"""Slots over connections, against a model: any order of opening, losing, resuming, taking over, acknowledging and restarting."""

import asyncio
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from publishers import ChangeLog, Criterion, Position, upsert
from publishers.slots import SlotState
from tests.transports.server.test_change_driver import FakeLink, kinds, say
from transports import Access, Grant, Limits, LogAction
from transports.quotas.pool import Pools
from transports.server.change_driver import ChangeDriver
from transports.server.slot_leases import SlotLeases

LIMITS = Limits(grace=3_600.0)
ACCESS = Access(authorise=Grant({LogAction.CONSUME}, slots=["stock"]))
DEADLINE = 60.0
STEP = st.tuples(
    st.sampled_from(["commit", "open", "take over", "resume", "lose", "acknowledge", "complete", "restart"]),
    st.integers(0, 2),
    st.integers(0, 5),
)


class Consumer:
    """A client: what it was told of its last opening, and what came of it."""

    def __init__(self):
        self.link = None
        self.open = False
        self.generation = None
        self.first = 0  # the place of the opening
        self.before = []  # what came on connections that were lost
        self.since = None

    @property
    def events(self):
        """Of this opening."""
        messages = [] if self.link is None else self.link.messages
        came = [event for one in messages if one["type"] == "next" for event in one["events"]]
        return [*self.before, *came]


class World:
    """A log with a slot, the server's leases, three consumers, and the model: place, generation and holder."""

    def __init__(self, path):
        self.path = path
        self.log = ChangeLog.open(path, sync="os")
        self.log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
        self.begin()
        self.consumers = [Consumer() for _ in range(3)]
        self.holder = None
        self.generation, self.place, self.head = 0, 1, 1

    def begin(self):
        self.pools = Pools(LIMITS)
        self.leases = SlotLeases(LIMITS, self.pools)

    async def until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            await asyncio.sleep(0)

    async def ask(self, consumer, payload=None, **slot):
        """Subscribes on a connection of its own; answers what came of it."""
        link = consumer.link = FakeLink()
        link.receiver = ChangeDriver(
            {"shop": self.log},
            link,
            limits=LIMITS,
            loop=asyncio.get_running_loop(),
            server="test",
            access=ACCESS,
            pools=self.pools,
            leases=self.leases,
        )
        say(link, type="connection_init")
        wish = {"slot": {"name": "stock", **slot}, "credits": 10**6, **(payload or {})}
        say(link, type="subscribe", id="a", payload=wish)
        await self.until(lambda: {"subscribed", "error"} & set(kinds(link)))
        return next(one for one in link.messages if one["type"] in ("subscribed", "error"))

    def lose(self, consumer):
        consumer.before, link = consumer.events, consumer.link
        if link is not None:
            consumer.link = None
            link.receiver.lost()
        consumer.open = False

    async def settle(self):
        """The one that has the slot gets everything; all others nothing."""
        for consumer in self.consumers:
            if consumer.open and consumer is not self.holder:
                await self.until(lambda c=consumer: "error" in kinds(c.link))
                assert consumer.link.messages[-1]["payload"]["code"] == "FENCED"
                consumer.open = False
        holder = self.holder
        if holder is not None and holder.open:
            await self.until(lambda: len(holder.events) >= self.head - holder.first)
            keys = [event["version"] for event in holder.events]
            assert keys == list(range(holder.first, self.head))
        told = self.log.slots.info("stock")
        assert told.position == Position(self.place)
        assert told.generation == self.generation
        assert (told.state is SlotState.SERVED) is (holder is not None)

    def opened(self, consumer, answer, *, new):
        assert answer["type"] == "subscribed", answer
        self.generation += new
        assert answer["slot"]["generation"] == self.generation
        assert answer["slot"]["cursor"] == str(self.log.token(Position(self.place)))
        self.holder, consumer.open, consumer.generation = consumer, True, self.generation

    async def step(self, kind, who, which):
        consumer = self.consumers[who]
        match kind:
            case "commit":
                self.head = self.log.commit([upsert("order", str(self.head), {})]).version + 1
            case "open" | "take over" if consumer.link is None:
                took = kind == "take over"
                answer = await self.ask(consumer, takeOver=took)
                if took or self.holder is None:
                    consumer.before, consumer.first = [], self.place
                    self.opened(consumer, answer, new=True)
                else:
                    assert answer["payload"]["code"] == "SLOT_BUSY"
                    self.lose(consumer)
            case "resume" if consumer.link is None and consumer.generation is not None:
                events = consumer.events
                place = max(consumer.first + len(events), self.place)
                since = str(self.log.token(Position(place)))
                answer = await self.ask(consumer, {"since": since}, generation=consumer.generation)
                if consumer.generation == self.generation:
                    self.opened(consumer, answer, new=self.holder is None)
                else:
                    assert answer["payload"]["code"] == "FENCED"
                    assert answer["payload"]["current"] == self.generation
                    consumer.generation = None
                    self.lose(consumer)
            case "lose":
                self.lose(consumer)
            case "acknowledge" if consumer.open and consumer.events:
                event = consumer.events[which % len(consumer.events)]
                say(consumer.link, type="ack", id="a", cursor=event["cursor"], n=1, durable=which % 2 == 0)
                await self.until(lambda: kinds(consumer.link)[-1] == "acked")
                answer = consumer.link.messages[-1]
                self.place = max(self.place, event["version"] + 1)
                assert "error" not in answer
                assert answer["cursor"] == str(self.log.token(Position(self.place)))
            case "complete" if consumer.open:
                say(consumer.link, type="complete", id="a")
                self.holder = None
                self.lose(consumer)
                await self.until(lambda: self.log.slots.info("stock").state is SlotState.FREE)
            case "restart":
                for each in self.consumers:
                    self.lose(each)
                self.leases.close()
                self.pools.close()
                self.log.close()
                self.log = ChangeLog.open(self.path, sync="os")
                self.begin()
                self.holder = None
        await self.settle()


async def play(path, steps):
    world = World(path)
    try:
        for step in steps:
            await world.step(*step)
    finally:
        world.leases.close()
        world.pools.close()
        world.log.close()


@given(st.lists(STEP, max_size=25))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_in_any_order_one_consumer_has_the_slot_and_what_it_acknowledges_counts(steps):
    """F74, F85: whoever has lost it is told, gets nothing, and changes nothing; who comes back gets what is missing, once."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        asyncio.run(play(Path(folder) / "shop", steps))

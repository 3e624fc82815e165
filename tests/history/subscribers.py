"""Subscribers that write down what they get, and the driver that makes them stall, cancel and seek."""

import asyncio
import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import flow
from penstock_cdc.types import Slot
from publishers import Area, ChangeLog, Content, Criterion, Position
from publishers.errors import PenstockError, PositionError
from tests.flow.probes import run_whole
from tests.history.record import KEYS, History, Recorder, Wish

__all__ = ["PLENTY", "Company", "Witness", "criteria", "draw_wish", "items_of", "last_places"]

PLENTY = 1 << 40
KINDS = ("fast", "steady", "slow", "stalled", "cancelling", "seeking")


def draw_wish(chance: random.Random) -> Wish:
    return chance.choice(
        [
            ["all"],
            ["all"],
            ["infra"],
            ["key", f"k{chance.randrange(KEYS)}"],
            ["type", f"p{chance.randrange(3)}"],
        ]
    )


def criteria(wish: Wish) -> list[Criterion]:
    match wish:
        case ["infra"]:
            return [Criterion(areas={Area.INFRASTRUCTURE})]
        case ["key", key]:
            return [Criterion(key_globs={f"{key}/*"})]
        case ["type", producer]:
            return [Criterion(entity_types={producer})]
    return []


def items_of(changes: Any) -> list[list[Any]]:
    """What of changes goes into the history."""
    found = []
    for change in changes:
        body = change.body if change.index else None
        found.append([change.version, change.index, change.count, change.key, body and body["id"]])
    return found


def last_places(path: Path) -> dict[str, dict[str, Any]]:
    """Where the subscriptions of a life were when it ended, by name: wish, place and cursor."""
    found: dict[str, dict[str, Any]] = {}
    for line in History(path):
        name = line.get("sub")
        if line["e"] == "subscribe":
            found[name] = {"wish": line["wish"], "at": line["since"], "cursor": None}
        elif line["e"] in ("end", "cancelled"):
            found.pop(name, None)
        elif name not in found:
            continue
        elif line["e"] in ("started", "sought"):
            found[name]["at"] = line.get("at", line.get("to"))
        elif line["e"] == "next":
            version, index, size, *_ = line["items"][-1]
            found[name]["at"] = [version + 1, 0] if index + 1 == size else [version, index + 1]
            found[name]["cursor"] = line.get("cursor")
    return found


class Witness:
    """A subscriber of a log in this process."""

    def __init__(self, company: "Company", name: str, kind: str, wish: Wish) -> None:
        self.company = company
        self.record = company.record
        self.name = name
        self.kind = kind
        self.wish = wish
        self.subscription: Any = None
        self.ended = False
        self.started = threading.Event()
        self._unasked = 0

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription
        self.record("started", sub=self.name, at=getattr(subscription, "position", None))
        first = {"fast": PLENTY, "seeking": PLENTY, "steady": 8}.get(self.kind)
        self.started.set()
        if first:
            self.request(first)

    def request(self, n: int) -> None:
        self.record("request", sub=self.name, n=n)
        self.subscription.request(n)

    def on_next(self, change: Any, /) -> None:
        self.take([change])

    def take(self, changes: Any) -> None:
        # The watermark is read after the signal has come.
        self.record("next", sub=self.name, items=items_of(changes), visible=self.company.log.visible)
        self._unasked += len(changes)
        if self.kind == "steady" and self._unasked >= 8:
            more, self._unasked = self._unasked, 0
            self.request(more)

    def on_gap(self, gap: Any) -> None:
        self.record("gap", sub=self.name, begin=gap.begin, end=gap.end)

    def on_seek(self, position: Position) -> None:
        self.record("sought", sub=self.name, to=position)

    def on_error(self, error: Exception, /) -> None:
        self.record("end", sub=self.name, error=type(error).__name__, oldest=getattr(error, "oldest", None))
        self.ended = True
        self.started.set()

    def on_complete(self) -> None:
        self.record("end", sub=self.name, error=None)
        self.ended = True


class BatchWitness(Witness):
    """One that takes batches, and is told of its state."""

    def on_next_batch(self, batch: Any, /) -> None:
        self.take(batch)

    def on_state(self, state: Any) -> None:
        self.record("state", sub=self.name, state=state.value)


class SlotWitness(BatchWitness):
    """One that acknowledges to its slot what it has written down."""

    def __init__(self, company: "Company", name: str, slot: Slot) -> None:
        super().__init__(company, name, "fast", ["all"])
        self._slot = slot

    def take(self, changes: Any) -> None:
        super().take(changes)
        self._slot.ack(changes[-1])


class Company:
    """All subscribers of one log in one process.

    Args:
        log: What they subscribe to.
        record: Where they write.
        life: Names them apart from those of every other life.
        seed: Of all chance.
        executors: Whether they run on executors of their own too.
    """

    def __init__(self, log: ChangeLog, record: Recorder, life: str, seed: int) -> None:
        self.log = log
        self.record = record
        self.life = life
        self.chance = random.Random(seed)
        self.numbers = count()
        self.witnesses: list[Witness] = []
        self.stopping = threading.Event()
        self._threads = ThreadPoolExecutor(2, "witness")
        self._loop = asyncio.new_event_loop()
        self._places: list[Any] = [None, flow.INLINE, self._threads, self._loop]
        self._running = threading.Thread(target=run_whole, args=(self._loop,), daemon=True)
        self._running.start()
        self._driver = threading.Thread(target=self._drive, daemon=True)

    def fill(self, number: int, places: dict[str, dict[str, Any]]) -> None:
        """Subscribes those who were there in the last life, where they were, and others up to a number."""
        for name, place in list(places.items())[:number]:
            self.subscribe(self.chance.choice(KINDS), place["wish"], place["at"], after=name)
        while len(self.witnesses) < number:
            self.subscribe(KINDS[len(self.witnesses) % len(KINDS)], draw_wish(self.chance))
        self._driver.start()

    def subscribe(self, kind: str, wish: Wish, at: list[int] | None = None, after: str | None = None) -> None:
        """One more; ``at`` is where it begins, drawn if it is not given."""
        chance, log = self.chance, self.log
        number = next(self.numbers)
        name = f"{self.life}.{number}.{kind}"
        since: Any = None
        if at is not None:
            since = Position(*at)
        elif chance.random() < 0.5:
            since = Position(chance.randint(log.oldest.version, log.head.version))
        witness = chance.choice([Witness, BatchWitness])(self, name, kind, wish)
        content = chance.choice([Content.HEADER, Content.BODY])
        where = self._places[number % len(self._places)]  # four at once have one of each
        self.record("subscribe", sub=name, wish=wish, since=since, after=after)
        try:
            feed = log.changes(criteria(wish), since=since, content=content, on_gap="jump")
            feed.subscribe(witness, executor=where, batch_events=chance.choice([None, 1, 3]))
        except PositionError as error:
            # Of a log that this process, freshly started, does not know to be that long yet, say.
            self.record("refused", sub=name, error=type(error).__name__)
            return
        self.witnesses.append(witness)

    def open_slot(self, name: str, places: dict[str, dict[str, Any]]) -> None:
        """One more, of a slot, which goes on where it had acknowledged in the last life."""
        slots = self.log.slots
        if name not in slots:
            slots.create(name, since="earliest")
        slot = slots.open(name)
        own = f"{self.life}.{next(self.numbers)}.slot"
        before = next((one for one in places if one.endswith(".slot")), None)
        self.record("subscribe", sub=own, wish=["all"], since=slot.position, after=before)
        witness = SlotWitness(self, own, slot)
        self.witnesses.append(witness)
        slot.changes(content=Content.BODY).subscribe(witness, executor=self._threads)

    def _drive(self) -> None:
        chance = self.chance
        while not self.stopping.wait(chance.expovariate(100)):
            witness = chance.choice(self.witnesses)
            if witness.ended:
                self.witnesses.remove(witness)
                self.subscribe(witness.kind, witness.wish)
            elif witness.started.is_set():
                with contextlib.suppress(PenstockError):
                    self._play(witness)

    def _play(self, witness: Witness) -> None:
        chance, draw = self.chance, self.chance.random()
        if witness.kind in ("slow", "cancelling"):
            witness.request(chance.randint(1, 20))
        elif witness.kind == "stalled" and draw < 0.05:
            witness.request(chance.randint(200, 2000))
        if witness.kind == "cancelling" and draw < 0.1:
            self._cancel(witness)
        elif witness.kind == "seeking" and draw < 0.2:
            low, high = self.log.oldest.version, self.log.head.version
            to = Position(chance.randint(max(low, high - 300), high))
            self.record("seek", sub=witness.name, to=to)
            witness.subscription.seek(to)

    def _cancel(self, witness: Witness) -> None:
        witness.subscription.cancel()
        self.record("cancelled", sub=witness.name)
        witness.ended = True
        self.witnesses.remove(witness)
        # What was under way may still be being given: who resumes there may get it twice, but loses nothing.
        self.subscribe(witness.kind, witness.wish, witness.subscription.position, after=witness.name)

    def rest(self, visible: int, patience: float) -> None:
        """Everybody asks for everything, and says when he has it, or that for so long he has got nothing."""
        self.stopping.set()
        self._driver.join()
        for witness in self.witnesses:
            witness.started.wait(patience)
            if not witness.ended:
                witness.request(PLENTY)
        pause = threading.Event()
        for witness in self.witnesses:
            waited, last = 0.0, None
            while not witness.ended and waited < patience:
                now = witness.subscription.position
                if now.version > visible:
                    break
                waited, last = (waited + 0.02 if now == last else 0.0), now
                pause.wait(0.02)
            self.record("rest", sub=witness.name, visible=visible)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._running.join()
        self._threads.shutdown()

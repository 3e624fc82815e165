"""The process of the WebSocket clients: some reconnect by themselves, some are told of each break and resume by cursor."""

import asyncio
import random
from itertools import count
from pathlib import Path
from typing import Any

from penstock_cdc.types import PositionToken
from publishers import Content
from tests.history.record import Recorder, Wish
from tests.history.subscribers import PLENTY, criteria, draw_wish, items_of, last_places
from tests.history.words import orders, say
from transports import Backoff, ConnectionLost, RemoteError, RemoteGap, connect

PATIENT = Backoff(first=0.05, limit=0.5)
KINDS = ("fast", "slow", "cancelling")


def place_of(cursor: str | None) -> Any:
    return None if cursor is None else PositionToken.parse(cursor).position


class Guest:
    """A subscriber of a remote log."""

    def __init__(self, party: "Party", name: str, kind: str, wish: Wish) -> None:
        self.party = party
        self.record = party.record
        self.name = name
        self.kind = kind
        self.wish = wish
        self.subscription: Any = None
        self.cursor: str | None = None
        self.ended = False
        self.lost = False

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription
        if self.kind == "fast" or self.party.resting:
            self.request(PLENTY)

    def request(self, n: int) -> None:
        self.record("request", sub=self.name, n=n)
        self.subscription.request(n)

    def on_next(self, change: Any, /) -> None:
        self.cursor = change.cursor
        self.record("next", sub=self.name, items=items_of([change]), cursor=change.cursor)

    def on_gap(self, gap: RemoteGap) -> None:
        self.record("gap", sub=self.name, begin=place_of(gap.begin_cursor), end=place_of(gap.end_cursor))

    def on_error(self, error: Exception, /) -> None:
        name = error.code if isinstance(error, RemoteError) else type(error).__name__
        oldest = error.data.get("oldest") if isinstance(error, RemoteError) else None
        self.record("end", sub=self.name, error=name, oldest=place_of(oldest), why=str(error))
        self.ended = True
        self.lost = isinstance(error, ConnectionLost)

    def on_complete(self) -> None:
        self.record("end", sub=self.name, error=None)
        self.ended = True


class Party:
    """The guests of one connection.

    Args:
        url: Of the server.
        faithful: Whether the connection is made again by itself, unnoticed by its guests.
    """

    def __init__(self, url: str, record: Recorder, life: str, seed: int, *, faithful: bool) -> None:
        self.url = url
        self.record = record
        self.life = life
        self.faithful = faithful
        self.chance = random.Random(seed)
        self.numbers = count()
        self.guests: list[Guest] = []
        self.log: Any = None
        self.resting = False

    async def open(self) -> None:
        """Connects, however long the server is away."""
        while True:
            self.log = connect(self.url, reconnect=PATIENT if self.faithful else None, open_timeout=5)
            try:
                await self.log.open()
            except ConnectionLost:
                await asyncio.sleep(0.05)
            else:
                return

    def fill(self, number: int, places: dict[str, dict[str, Any]]) -> None:
        for name in list(places)[:number]:
            place = places.pop(name)
            since = place["cursor"]
            self.subscribe(
                self.chance.choice(KINDS), place["wish"], since, after=None if since is None else name
            )
        while len(self.guests) < number:
            self.subscribe(KINDS[len(self.guests) % len(KINDS)], draw_wish(self.chance))

    def subscribe(self, kind: str, wish: Wish, since: str | None = None, after: str | None = None) -> None:
        guest = Guest(self, f"{self.life}.{next(self.numbers)}.{kind}", kind, wish)
        start = None if since is not None else self.chance.choice(["latest", "earliest"])
        content = self.chance.choice([Content.HEADER, Content.BODY])
        self.record("subscribe", sub=guest.name, wish=wish, since=place_of(since), after=after)
        guest.cursor = since
        feed = self.log.changes(
            *criteria(wish),
            since=start if since is None else since,
            content=content,
            window=self.chance.choice([2, 7, 256]),
            on_gap="jump",
            heartbeat=0.5,
        )
        self.guests.append(guest)
        feed.subscribe(guest)

    async def drive(self) -> None:
        """Requests, cancels, and comes again after each break."""
        chance = self.chance
        while True:
            await asyncio.sleep(chance.expovariate(30))
            if any(guest.lost for guest in self.guests):
                await self.come_again()
            ended = [guest for guest in self.guests if guest.ended]
            self.guests = [guest for guest in self.guests if not guest.ended]
            for guest in ended:
                self.subscribe(
                    guest.kind, guest.wish, guest.cursor, after=guest.name if guest.cursor else None
                )
            if self.resting:
                continue
            guest = chance.choice(self.guests)
            if guest.kind != "fast" and guest.subscription is not None:
                guest.request(chance.randint(1, 20))
                if guest.kind == "cancelling" and chance.random() < 0.05:
                    guest.subscription.cancel()
                    self.record("cancelled", sub=guest.name)
                    guest.ended = True

    async def come_again(self) -> None:
        await self.log.close()
        await self.open()

    async def rest(self, visible: int, patience: float) -> None:
        """Everybody asks for everything, and says when he has it, or that for so long he has got nothing."""
        self.resting = True
        for guest in self.guests:
            if guest.subscription is not None and not guest.ended:
                guest.request(PLENTY)
        waited, last = 0.0, None
        while waited < patience and not all(has(guest, visible) for guest in self.guests):
            await asyncio.sleep(0.05)
            now = [guest.cursor for guest in self.guests]
            waited, last = (waited + 0.05 if now == last else 0.0), now
        for guest in self.guests:
            self.record("rest", sub=guest.name, visible=visible)


def has(guest: Guest, visible: int) -> bool:
    """Whether it has everything up to a version."""
    if guest.ended or guest.subscription is None or guest.subscription.cursor is None:
        return False
    return bool(place_of(guest.subscription.cursor).version > visible)


def attend(
    urls: list[str], history: str, life: str, seed: int, parties: int, guests: int, last: str | None
) -> None:
    asyncio.run(_attend(urls, history, life, seed, parties, guests, last))


async def _attend(
    urls: list[str], history: str, life: str, seed: int, parties: int, guests: int, last: str | None
) -> None:
    record = Recorder(Path(history))
    places = last_places(Path(last)) if last else {}
    company = [
        Party(urls[number % len(urls)], record, f"{life}.{number}", seed + number, faithful=number % 2 == 0)
        for number in range(parties)
    ]
    for party in company:
        await party.open()
        party.fill(guests, places)
    driving = [asyncio.create_task(party.drive()) for party in company]
    say("open")
    visible = int(await asyncio.to_thread(orders))
    await asyncio.gather(*(party.rest(visible, 30) for party in company))
    say("rested")
    await asyncio.to_thread(orders)
    for task in driving:
        assert not task.done(), task
        task.cancel()
    await asyncio.wait(driving)
    for party in company:
        await party.log.close()
    say("closed")

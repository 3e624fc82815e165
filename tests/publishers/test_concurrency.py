"""Up to a thousand subscribers on one log, real threads and loops, and each of them stalls, cancels or seeks as it likes."""

import asyncio
import contextlib
import secrets
import threading
from bisect import bisect_left
from collections import deque

import pytest

import flow
from publishers import Area, Criterion, Position
from publishers.errors import PenstockError
from tests.flow.probes import run_whole
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import Probe, chance, everything, in_threads, opened, order, wait_until

WISHES = [
    [],
    [Criterion(keys={"3"})],
    [Criterion(entity_types={"item"})],
    [Criterion(areas={Area.INFRASTRUCTURE})],
    [Criterion(keys={"never"})],
]


class Guest(Probe):
    """One who knows where he began last."""

    def __init__(self, wish):
        super().__init__()
        self.wish = wish
        self.start = None
        self.seeking = threading.Lock()

    def on_subscribe(self, subscription, /):
        self.start = subscription.position
        super().on_subscribe(subscription)

    def on_seek(self, position):
        with self._signal():
            self.requested -= len(self.positions)  # what was spent stays spent
            self.changes, self.positions, self.start = [], [], position

    def due(self, truth):
        whole = truth[self.wish]
        return whole[bisect_left(whole, self.start) :]


class Crowd:
    """Subscribers of one log and the threads that move them."""

    def __init__(self, log, seed, size):
        self.log = log
        self.draw = chance(seed)
        self.size = size
        self.stop = threading.Event()
        self.guests = deque()
        self.loops = [asyncio.new_event_loop() for _ in range(2)]
        self.threads = [threading.Thread(target=run_whole, args=(loop,), daemon=True) for loop in self.loops]
        for thread in self.threads:
            thread.start()
        self.gone = 0
        for _ in range(size):
            self.come(self.draw)

    def come(self, draw):
        guest = Guest(draw.randrange(len(WISHES)))
        since = Position(draw.randint(1, self.log.head.version)) if draw.random() < 0.3 else None
        where = draw.choice([None, flow.INLINE, *self.loops])
        self.log.changes(*WISHES[guest.wish], since=since).subscribe(guest, executor=where)
        self.guests.append(guest)

    def commit(self, number):
        own = chance(number)
        for _ in range(scaled(40)):
            kinds = [own.choice(["order", "item"]) for _ in range(own.randrange(4))]
            self.log.commit([order(own.randrange(8), kind) for kind in kinds])

    def commits(self, seed):
        try:
            in_threads(*[lambda number=number: self.commit(seed + number) for number in range(3)])
        finally:
            self.stop.set()

    def move(self, seed):
        """Requests a little, stalls nobody knows how long, goes, comes, and seeks."""
        own = chance(seed)
        while not self.stop.is_set():
            try:
                guest = self.guests.popleft()  # nobody else moves this one meanwhile
            except IndexError:
                continue
            if guest.subscription is None:
                self.guests.append(guest)
                continue
            what = own.random()
            if what < 0.05:
                guest.subscription.cancel()
                self.gone += 1
                assert guest.clean, guest.state()
                self.come(own)
                continue
            if what < 0.1:
                with contextlib.suppress(PenstockError):
                    guest.subscription.seek(Position(own.randint(1, self.log.head.version)))
            else:
                guest.request(own.choice([1, 2, 5, 30, 1000]))
            self.guests.append(guest)

    def check(self):
        truth = [everything(self.log, *wishes) for wishes in WISHES]
        for guest in self.guests:
            wait_until(lambda guest=guest: guest.subscription is not None, guest.state)
            guest.request(10**9)
        for guest in self.guests:
            wait_until(
                lambda guest=guest: guest.subscription.checkpoint().position > (self.log.visible, 2**40),
                guest.state,
                60,
            )
            assert guest.positions == guest.due(truth), (guest.wish, guest.start, guest.state())
            assert guest.clean, guest.state()
        assert len(service_of(self.log).registry.subscriptions()) == len(self.guests) == self.size

    def close(self):
        for guest in self.guests:
            guest.wait_for_end()
        for loop, thread in zip(self.loops, self.threads, strict=True):
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_a_crowd_that_stalls_cancels_and_seeks_agrees_with_the_log(size):
    """T15, F65, F66, F67, F70, F72: invariants 3 to 9 with real threads, two loops, the pool and INLINE."""
    seed = secrets.randbits(32)
    draw = chance(seed)
    options = {"ring_events": draw.choice([2, 20, 500]), "batch_events": draw.choice([1, 5, 100])}
    try:
        with opened(**options) as log:
            crowd = Crowd(log, seed, size)
            in_threads(
                lambda: crowd.commits(seed), lambda: crowd.move(seed + 1), lambda: crowd.move(seed + 2)
            )
            crowd.check()
        crowd.close()
    except BaseException as error:
        error.add_note(f"seed {seed}, {options}")
        raise
    assert all(guest.terminals == 1 and guest.clean for guest in crowd.guests)

"""Drains, delivery groups, the replayer, the waiting list and the dispatch pool of one log: every kind of entry at once."""

from collections.abc import Callable

import pytest

import flow
from publishers import ChangeLog, Criterion, Position
from publishers.errors import LogClosed
from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark
from tests.harness.constants import without_bounds
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.primitives import step
from tests.interleaving.scheduler import Scheduler
from tests.publishers.detaching import asking
from tests.publishers.support import QUICK, BatchProbe, Probe, SteppedLoop, everything, order

LINES = (
    "fanout/group.py",
    "fanout/bench.py",
    "fanout/ring.py",
    "fanout/replayer.py",
    "fanout/resync_slice.py",
    "fanout/waiting_list.py",
    "fanout/subscription.py",
    "drain/drain.py",
    "drain/strand.py",
)
OPTIONS = {
    **QUICK,
    "ring_events": 4,
    "batch_events": 3,
    "replay_slice_bytes": 300,
    "detach_weight": 4,
    "detached_share": 1.0,
    "dispatch_threads": 2,
    "dispatch_threads_max": 2,
}
ALL = Criterion()
ITEMS = Criterion(entity_types={"item"})
NEVER = Criterion(keys={"never"})
COSTLY = asking(9)


class Watcher(Probe):
    """A probe that knows where it began, and moves with a seek."""

    def __init__(self, log: ChangeLog, wish: Criterion, until: int | None = None) -> None:
        super().__init__()
        self.log, self.wish, self.until = log, wish, until
        self.start = Position(0, 0)
        self.sought = self.cancelled = False

    def on_subscribe(self, subscription: object, /) -> None:
        self.start = getattr(subscription, "position", self.start)  # a refused one has none
        super().on_subscribe(subscription)

    def on_seek(self, position: Position) -> None:
        with self._signal():
            self.start = position
            self.requested -= len(self.positions)
            self.positions.clear()

    def take(self, change: object) -> None:
        super().take(change)
        if change.version > service_of(self.log).watermark.visible or self.cancelled:
            self.excess += 1

    def read_all(self) -> None:
        """Reads from the log what it may get from any start."""
        last = self.until or self.log.head.version
        self.all = [position for position in everything(self.log, self.wish) if position.version <= last]

    @property
    def due(self) -> list[Position]:
        """What it has to get for its demand."""
        return [position for position in self.all if position >= self.start][: self.requested]

    def satisfied(self) -> bool:
        return bool(self.subscription.ended) or len(self.positions) >= len(self.due)


class BatchWatcher(Watcher, BatchProbe):
    pass


class Case:
    """A log with subscriptions of each kind, and what threads do to them."""

    def __init__(self, run: Scheduler, demand: int) -> None:
        self.run = run
        self.log = ChangeLog.open("/log", filesystem=Disk(), clock=Time(), **without_bounds(OPTIONS))
        self.loop = SteppedLoop()
        self.over = 0
        self.watchers: list[Watcher] = []
        self.log.submit([]).visible.result()  # starts the threads of the arrivals
        for _ in range(3):
            self.commit(2)
        self.inline = [self.watch(Watcher, ALL, flow.INLINE) for _ in range(3)]
        self.looped = [self.watch(Watcher, ALL, self.loop) for _ in range(2)]
        self.batched = [self.watch(BatchWatcher, ALL, self.loop)]
        self.pooled = [self.watch(Watcher, ITEMS, None), self.watch(BatchWatcher, ALL, None)]
        self.lagging = [self.watch(Watcher, ALL, flow.INLINE, since=Position(1))]
        self.lagging += [self.watch(Watcher, ITEMS, self.loop, since=Position(3))]
        self.idle = [self.watch(Watcher, NEVER, flow.INLINE, since=Position(1))]
        self.bounded = [self.watch(Watcher, ITEMS, flow.INLINE, until=6)]
        self.detached = [self.watch(Watcher, COSTLY, flow.INLINE, since=Position(3))]
        self.first = list(self.watchers)
        self.loop.run_all()
        run.until(self.begun, "the subscriptions begin")
        for watcher in self.watchers:
            watcher.request(demand)

    def begun(self) -> bool:
        return all(watcher.subscription is not None for watcher in self.watchers)

    def watch(self, kind: type[Watcher], wish: Criterion, executor: object, **how: object) -> Watcher:
        watcher = kind(self.log, wish, how.get("until"))
        self.watchers.append(watcher)
        self.log.changes(wish, **how).subscribe(watcher, executor=executor)
        return watcher

    def commit(self, changes: int, **how: object) -> int:
        kinds = ("order", "item")
        return self.log.commit([order(n, kinds[n % 2]) for n in range(changes)], **how).version

    # The kinds of entries.

    def commits(self) -> None:
        for size in (1, 3):
            self.commit(size)

    def submits(self) -> None:
        self.log.submit([order(1, "item")]).visible.result()

    def publishes(self) -> None:
        self.log.publish(self.commit(2, visible=False))

    def requests(self) -> None:
        for watcher in self.first[::2]:
            watcher.request(2)

    def requests_all(self) -> None:
        for watcher in self.first[1::2]:
            watcher.request(10**6)

    def cancels(self) -> None:
        for watcher in (self.inline[0], self.looped[0], self.lagging[0], self.pooled[0]):
            watcher.subscription.cancel()

    def seeks(self) -> None:
        for watcher, version in (
            (self.inline[1], 1),
            (self.batched[0], 3),
            (self.pooled[1], 2),
            (self.lagging[1], 4),
        ):
            watcher.subscription.seek(Position(version))

    def pauses(self) -> None:
        for watcher in (self.inline[2], self.looped[1], self.detached[0], self.idle[0]):
            watcher.subscription.pause()
            watcher.request(3)
            watcher.subscription.resume()

    def subscribes(self) -> None:
        for wish, how in ((ALL, {}), (ITEMS, {"since": Position(1)})):
            watcher = self.watch(Watcher, wish, flow.INLINE, **how)
            if watcher.subscription is not None:  # else the log is closed
                watcher.request(2)

    def looks(self) -> None:
        for watcher in self.first:
            watcher.subscription.checkpoint()

    def closes(self) -> None:
        self.log.close()

    # The rest.

    def turns(self, bodies: int) -> None:
        """The thread of the event loop."""
        while self.over < bodies or self.loop.ready:
            self.run.until(lambda: self.loop.ready or self.over == bodies, "the loop waits")
            self.loop.run_one()

    def settle(self) -> None:
        """Whatever was asked for arrives, and then everything."""
        for watcher in self.watchers:
            watcher.read_all()
        self.serve(lambda: all(watcher.satisfied() for watcher in self.watchers))
        for watcher in self.watchers:
            assert watcher.subscription.ended or watcher.positions == watcher.due, watcher.state()
        for watcher in self.watchers:
            if watcher.subscription is not None:
                watcher.request(10**6)
        self.serve(lambda: all(watcher.satisfied() for watcher in self.watchers))
        for watcher in self.watchers:
            assert watcher.positions == watcher.due[: len(watcher.positions)], watcher.state()
            assert watcher.clean, watcher.state()

    def serve(self, satisfied: object) -> None:
        while not satisfied() or self.loop.ready:
            self.run.until(lambda: self.loop.ready or satisfied(), "everything that was asked for arrives")
            self.loop.run_one()


KINDS = [
    Case.commits,
    Case.submits,
    Case.publishes,
    Case.requests,
    Case.requests_all,
    Case.cancels,
    Case.seeks,
    Case.pauses,
    Case.subscribes,
    Case.looks,
]


def deliveries(*kinds: object, demand: int = 1) -> object:
    def scenario(run: Scheduler) -> None:
        case = Case(run, demand)

        def body(kind: object) -> object:
            def act() -> None:
                try:
                    kind(case)
                except LogClosed:
                    if Case.closes not in kinds:
                        raise
                finally:
                    case.over += 1

            act.__name__ = kind.__name__
            return act

        def turns() -> None:
            case.turns(len(kinds))

        run.together(turns, *map(body, kinds))
        if Case.closes not in kinds:
            case.settle()
            case.log.close()
        case.serve(
            lambda: all(watcher.subscription.ended for watcher in case.watchers if watcher.subscription)
        )
        assert all(watcher.clean for watcher in case.watchers)

    scenario.__name__ = "+".join([str(demand), *(kind.__name__ for kind in kinds)])
    return scenario


def test_all_kinds_of_entries_lose_and_repeat_nothing():
    """Invariants 2 to 10."""
    keeping_up = deliveries(*KINDS, demand=10**6)
    explore(keeping_up, preemptions=3, most=scaled(6), walks=scaled(14))
    scenario = deliveries(*KINDS)
    explore(scenario, preemptions=3, most=scaled(6), walks=scaled(14))
    explore(scenario, most=0, walks=scaled(2), files=LINES)


def test_a_log_that_closes_among_them_ends_each_subscription_once():
    """Invariant 11."""
    scenario = deliveries(*KINDS, Case.closes)
    explore(scenario, preemptions=3, most=scaled(10), walks=scaled(10))


def loop_takes(run: Scheduler) -> None:
    """A subscription of an event loop is served as more is committed, and sleeps when there is nothing."""
    log = ChangeLog.open("/log", filesystem=Disk(), clock=Time(), **QUICK)
    loop, probe, over = SteppedLoop(), Probe(first=10**6), []
    log.changes().subscribe(probe, executor=loop)
    loop.run_all()

    def commits() -> None:
        for _ in range(3):
            log.commit([order(1)])
        over.append(True)

    def turns() -> None:
        while not over or loop.ready:
            run.until(lambda: loop.ready or over, "the loop waits")
            loop.run_one()

    run.together(commits, turns)
    assert len(probe.changes) == 6
    log.close()


class Parked:
    """A subscription of a detached publisher that waits at the watermark, reads up to it when it is woken, and waits again."""

    detached, until = True, None
    ended = False

    def __init__(self, watermark: Watermark, waiting: WaitingList) -> None:
        self.watermark, self.waiting = watermark, waiting

    def park(self) -> None:
        self.upto = self.watermark.visible
        self.waiting.add(self, self.upto)
        if self.watermark.visible > self.upto:  # as a drain, which looks once more behind the listing
            self.wake()

    def wake(self) -> None:
        self.park()


class Ending(Parked):
    def wake(self) -> None:
        self.ended = True


class Enlisting:
    """Stands for the replayer."""

    def __init__(self) -> None:
        self.due: list[WaitingList] = []

    def enlist(self, one: WaitingList) -> None:
        self.due.append(one)


def waiting_list_wakes(run: Scheduler) -> None:
    """Subscriptions wait at the watermark and are woken behind it, in slices, while it moves on."""
    watermark = Watermark(1)
    waiting = WaitingList(watermark)
    replayer, over = Enlisting(), []
    ending, staying = Ending(watermark, waiting), Parked(watermark, waiting)
    ending.park()

    def advances() -> None:
        for version in (2, 3):
            step("writes")
            watermark.advance(version)
            step("advanced")
            if not waiting.empty:
                waiting.due(replayer)

    def parks() -> None:
        step("reads")
        staying.park()

    def replays() -> None:
        while len(over) < 2 or replayer.due:
            run.until(lambda: replayer.due or len(over) == 2, "nothing is due")
            if replayer.due and not replayer.due[0].replay():
                replayer.due.pop(0)

    def counted(body: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            body()
            over.append(True)

        return act

    run.together(counted(advances), counted(parks), replays)
    assert (ending.ended, staying.upto) == (True, 3)


@pytest.mark.parametrize("scenario", [loop_takes, waiting_list_wakes])
def test_what_comes_while_others_are_served_is_served_too(scenario):
    """Invariants 3 and 10."""
    explore(scenario, preemptions=3, most=scaled(60), walks=scaled(20))

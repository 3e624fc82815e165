"""A log whose threads are played by one: every step of a commit, a poll or a replay may be interrupted by another.

The real code runs. At the instrumented points (before and after each method that touches what threads share) the world
draws whether something else happens there: a commit, a registration, a request, a turn, a slice of replay, a seek, a
cancel. While a commit serves subscribers, another one may be made.
One seed is one run, to be repeated exactly.
"""

import contextlib
import random
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import flow
from flow.drain import Drain
from publishers import Area, Criteria, Criterion, Position
from publishers.fanout.cursor import Cursor
from publishers.fanout.group import DeliveryGroup
from publishers.fanout.registry import Registry
from publishers.fanout.replayer import FrameCache
from publishers.fanout.ring import Ring
from publishers.fanout.subscription import ChangeSubscription
from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark
from tests.harness.inside import committer_of, publication_of, queue_of, service_of
from tests.publishers.support import ManualExecutor, Probe, SteppedLoop, opened, order

POINTS = [
    (
        Ring,
        ("link", "restart", "move", "poll", "groups", "standing", "take", "recall"),
    ),
    (DeliveryGroup, ("note", "_serve")),
    (Drain, ("release_hold", "deliver")),
    (Registry, ("snapshot", "remove")),
    (FrameCache, ("read", "locate", "peek")),
    (WaitingList, ("add", "due", "bound", "discard")),
    (Watermark, ("advance",)),
]
"""Where something may come in between."""

UNORDERED: list[type] = [Cursor, DeliveryGroup, ChangeSubscription]
"""What is kept in sets: hashed alike, they are served in an order that a seed repeats."""


def _alike(_self: object) -> int:
    return 0


WISHES: list[tuple[Criteria, Any]] = [
    (Criteria.of(), lambda _index, _kind, _key: True),
    (Criteria.of(Criterion(keys={"0"})), lambda index, _kind, key: index > 0 and key == "0"),
    (Criteria.of(Criterion(entity_types={"item"})), lambda index, kind, _key: index > 0 and kind == "item"),
    (Criteria.of(Criterion(areas={Area.INFRASTRUCTURE})), lambda index, _kind, _key: index == 0),
    (
        Criteria.of(Criterion(keys={"never"})),
        lambda _index, _kind, _key: False,
    ),
]


class ManualReplayer:
    """Keeps those who lag until the world gives one of them a slice."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    @property
    def waiting(self) -> int:
        return len(self.tasks)

    def enlist(self, task: Any) -> None:
        assert task not in self.tasks, "enlisted twice"
        self.tasks.append(task)

    def close(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.replay_stopped()


class Watcher(Probe):
    """A probe that knows what it must get."""

    def __init__(self, world: "World", wish: int, until: int | None) -> None:
        super().__init__()
        self.world = world
        self.criteria, self.matches = WISHES[wish]
        self.until = until
        self.start = Position(0, 0)
        self.cancelled = False
        self.checked = 0
        self.sought = 0
        self._expected: list[Position] = []
        self._read = 0

    def take(self, change: Any) -> None:
        super().take(change)
        # Noted, and not raised: a subscriber that raises is cancelled, and nobody would hear of it.
        if change.version > service_of(self.world.log).watermark.visible:
            self.world.faults.append(f"{change.position} is above the watermark")
        if self.cancelled:
            self.world.faults.append(f"{change.position} came after cancel")

    def on_subscribe(self, subscription: Any, /) -> None:
        self.start = subscription.position
        super().on_subscribe(subscription)

    def seek(self, position: Position) -> None:
        """Moves it; until it is told, what comes is from the old place."""
        self.sought += 1
        self.subscription.seek(position)

    def on_seek(self, position: Position) -> None:
        """It begins anew; what it was given before counts against its demand only."""
        self.check(service_of(self.world.log).watermark.visible)
        self.requested -= len(self.positions)
        self.positions.clear()
        self.start, self.checked, self.sought = position, 0, 0
        self._expected, self._read = [], 0

    def expected(self, upto: int) -> list[Position]:
        """What it gets once everything up to a version is visible, which only rises; from a plain list."""
        last = upto if self.until is None else min(upto, self.until)
        model = self.world.model
        while self._read < len(model) and model[self._read][0] <= last:
            version, index, kind, key = model[self._read]
            if self.start <= (version, index) and self.matches(index, kind, key):
                self._expected.append(Position(version, index))
            self._read += 1
        return self._expected

    def check(self, upto: int) -> None:
        """Every rule of the contract, and every position that came since the last check."""
        assert self.clean, self.state()
        assert self.error is None, self.state()
        expected, found = self.expected(upto), self.positions
        assert len(found) <= len(expected), self.state()
        for place in range(self.checked, len(found)):
            assert found[place] == expected[place], (found[place], expected[place], self.state())
        self.checked = len(found)


class World:
    """One log and its random life."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.chance = random.Random(seed)
        draw = self.chance
        self.options = {
            "ring_events": draw.choice([1, 1, 2, 3, 5, 8, 50]),
            "ring_bytes": draw.choice([200, 9_000, 10**6]),
            "batch_events": draw.choice([1, 2, 7, 100]),
            "batch_bytes": draw.choice([1, 300, 10**6]),
            "replay_slice_bytes": draw.choice([1, 300, 65_536]),
            "replay_bytes": draw.choice([1, 2000, 10**6]),
            "frame_bytes": 1024,
            "spool_bytes": draw.choice([1200, 10**6]),
            **options,
        }
        self.model: list[tuple[int, int, str, str]] = []
        self.watchers: list[Watcher] = []
        self.executors: list[ManualExecutor | SteppedLoop] = []
        self.loops: list[SteppedLoop] = []
        self.replayer = ManualReplayer()
        self.faults: list[str] = []
        self.depth = 0
        self.closed_to_others = False
        self.switches = 0
        self.log: Any = None

    # The points.

    @contextlib.contextmanager
    def running(self) -> Iterator["World"]:
        saved = []
        for kind, names in POINTS:
            for name in names:
                original = getattr(kind, name)
                saved.append((kind, name, original))
                setattr(kind, name, self._instrumented(original))
        add = Registry.add
        saved.append((Registry, "add", add))
        world = self

        def locked_add(registry: Registry, criteria: Any, make: Any, prepared: Any) -> Any:
            before, world.closed_to_others = world.closed_to_others, True
            try:
                return add(registry, criteria, make, prepared)
            finally:
                world.closed_to_others = before

        Registry.add = locked_add  # type: ignore[method-assign]  # restored below
        for kind in UNORDERED:
            kind.__hash__ = _alike  # type: ignore[assignment]  # restored below
        try:
            with opened(**self.options) as self.log:
                service_of(self.log).replayer.close()
                service_of(self.log).replayer = self.replayer
                yield self
                self.closed_to_others = True
        finally:
            for kind, name, original in saved:
                setattr(kind, name, original)
            for kind in UNORDERED:
                del kind.__hash__

    def _instrumented(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.point()
            result = original(*args, **kwargs)
            self.point()
            return result

        return call

    def point(self) -> None:
        """Something else may happen here."""
        if self.log is None or self.closed_to_others or self.depth >= 3:
            return
        if self.chance.random() < 0.12:
            self.step()

    # What may happen.

    def step(self) -> None:
        self.depth += 1
        try:
            actions = [self.request] * 3 + [self.replay] * 4 + [self.turn] * 3 + [self.checkpoint]
            actions += [self.subscribe, self.cancel, self.seek]
            if not self.committing:
                actions += [self.commit] * 4
            self.chance.choice(actions)()
        finally:
            self.depth -= 1

    @property
    def committing(self) -> bool:
        """Whether a commit is on its way that has not been published yet."""
        return publication_of(self.log).gate.locked() or queue_of(committer_of(self.log)).leader is not None

    def commit(self) -> None:
        draw = self.chance
        count = draw.choice([0, 1, 1, 2, 3, 10]) if draw.random() < 0.95 else 60
        self.put([(draw.choice(["order", "item"]), draw.choice("0123")) for _ in range(count)])

    def put(self, rows: list[tuple[str, str]]) -> None:
        """Commits, and notes it in the plain list first."""
        version = self.model[-1][0] + 1 if self.model else 1
        self.model.append((version, 0, "", ""))
        self.model += [(version, index, kind, key) for index, (kind, key) in enumerate(rows, 1)]
        done = self.log.commit([order(key, kind) for kind, key in rows])
        assert (done.version, done.changes) == (version, len(rows) + 1)

    def subscribe(self) -> None:
        if len(self.watchers) >= 12:
            return
        draw = self.chance
        head = self.log.head
        since = (
            None
            if draw.random() < 0.5
            else Position(draw.randint(1, head.version), draw.choice([0, 0, 1, 2, 99]))
        )
        if since is not None and since > head:
            since = head
        until = draw.choice([None, None, None, head.version + draw.randint(-1, 6)])
        watcher = Watcher(self, draw.randrange(len(WISHES)), until)
        where: Any = flow.INLINE
        if draw.random() < 0.6:
            where = self.somewhere()
        self.watchers.append(watcher)
        self.log.changes(watcher.criteria, since=since, until=until).subscribe(watcher, executor=where)
        if watcher.subscription is not None:
            assert watcher.start == since or (since is None and head <= watcher.start <= self.log.head)

    def somewhere(self) -> ManualExecutor | SteppedLoop:
        """An executor of its own, or one of two event loops."""
        if self.chance.random() < 0.4:
            where: ManualExecutor | SteppedLoop = ManualExecutor()
        elif len(self.loops) == 2:
            return self.chance.choice(self.loops)
        else:
            where = SteppedLoop()
            self.loops.append(where)
        self.executors.append(where)
        return where

    def some(self) -> Watcher | None:
        """A watcher that has its subscription."""
        ready = [watcher for watcher in self.watchers if watcher.subscription is not None]
        return self.chance.choice(ready) if ready else None

    def request(self) -> None:
        watcher = self.some()
        if watcher is not None:
            watcher.request(self.chance.choice([1, 1, 2, 3, 10, 50]))

    def cancel(self) -> None:
        watcher = self.some()
        if watcher is not None and self.chance.random() < 0.1:
            inline = watcher._depth > 0
            watcher.subscription.cancel()
            watcher.cancelled = not inline

    def seek(self) -> None:
        watcher = self.some()
        if watcher is not None and watcher.until is None and self.chance.random() < 0.2:
            watcher.seek(Position(self.chance.randint(1, self.log.head.version)))

    def checkpoint(self) -> None:
        watcher = self.some()
        if watcher is None or watcher.sought:
            return
        told = watcher.subscription.checkpoint()
        delivered = watcher.positions
        assert told.position <= told.head or watcher.start > told.head, (told, watcher.state())
        visible = service_of(self.log).watermark.visible
        due = bisect_left(watcher.expected(visible), told.position)
        assert due <= len(delivered), (
            f"the checkpoint {told.position} passes {watcher.expected(visible)[len(delivered)]}"
        )

    def replay(self) -> None:
        if self.replayer.tasks:
            task = self.replayer.tasks.pop(self.chance.randrange(len(self.replayer.tasks)))
            if task.replay():
                self.replayer.enlist(task)

    def turn(self) -> None:
        if self.executors:
            self.chance.choice(self.executors).run_one()

    # What must hold.

    def check(self) -> None:
        """After every step, at depth 0."""
        assert not self.faults
        visible = service_of(self.log).watermark.visible
        for watcher in self.watchers:
            if watcher.subscription is not None:
                watcher.check(visible)
        for shared in service_of(self.log).registry.publishers():
            held = shared.ring.statistics()
            assert held.events <= self.options["ring_events"]
            assert held.nbytes <= self.options["ring_bytes"]
            assert held.start.index == 0

    def settle(self) -> None:
        """Lets everything that was begun come to rest."""
        busy = True
        while busy:
            busy = False
            for executor in self.executors:
                busy = executor.run_all() > 0 or busy
            for _ in range(len(self.replayer.tasks)):
                busy = True
                task = self.replayer.tasks.pop(0)
                if task.replay():
                    self.replayer.enlist(task)

    def at_rest(self) -> None:
        """Demand and visible changes never rest together; then everything asked for arrives."""
        self.closed_to_others = True
        self.settle()
        self.check()
        visible = service_of(self.log).watermark.visible
        for watcher in self.watchers:
            ended = watcher.subscription.ended
            expected = watcher.expected(visible)
            assert ended or len(watcher.positions) == min(len(expected), watcher.requested), (
                "stranded",
                watcher.state(),
                self.options,
            )
        for watcher in self.watchers:
            if not watcher.subscription.ended:
                watcher.request(10**9)
        self.settle()
        self.check()
        for watcher in self.watchers:
            expected = watcher.expected(visible)
            if not watcher.cancelled and not (watcher.subscription.ended and not watcher.terminals):
                assert watcher.positions == expected, watcher.state()
            if watcher.until is not None and watcher.until <= visible and not watcher.subscription.ended:
                raise AssertionError(f"not completed: {watcher.state()}")
            self.switches += len(watcher.states)


def live(seed: int, steps: int, **options: Any) -> World:
    """One random life; every rule is checked after every step and at the end."""
    world = World(seed, **options)
    with world.running():
        for _ in range(3):
            world.subscribe()
        for _ in range(steps):
            world.step()
            world.check()
        world.at_rest()
    world.settle()
    for watcher in world.watchers:
        assert watcher.terminals <= 1, watcher.state()
        assert watcher.subscription.ended, watcher.state()
    return world

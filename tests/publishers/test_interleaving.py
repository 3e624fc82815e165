"""Two threads over the real code, in orders of their steps that take up to three switches.

A commit tries a fixed eighth of the orders, ``make prove`` all.
"""

import threading
from collections.abc import Callable
from itertools import count

import pytest

import flow
from publishers import Position
from tests.harness.inside import service_of
from tests.harness.scale import SCALE
from tests.publishers.support import ManualExecutor, SteppedLoop, order
from tests.publishers.world import Watcher, World

STRIDE = 1 if SCALE > 1 else 16


class Actor(threading.Thread):
    """A thread that stops at each point until it is told to go on."""

    def __init__(self, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.body = body
        self.done = False
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            self.body()
        except BaseException as error:
            self.error = error
        self.done = True
        self._stopped.release()

    def pause(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def walk(self, most: int) -> int:
        """Goes on for at most so many points; answers how many it went."""
        for steps in range(most):
            if self.done:
                return steps
            self._go.release()
            assert self._stopped.acquire(timeout=60), "it waits for something that the other one holds"
        return most


class Duel(World):
    """A world in which two actors move as a schedule says."""

    def __init__(self, **options: object) -> None:
        plain = {
            "ring_events": 2,
            "ring_bytes": 10**6,
            "batch_events": 3,
            "batch_bytes": 10**6,
            "replay_slice_bytes": 65_536,
            "replay_bytes": 10**6,
            "spool_bytes": 10**6,
        }
        super().__init__(0, **{**plain, **options})

    def point(self) -> None:
        actor = threading.current_thread()
        if isinstance(actor, Actor) and not self.closed_to_others:
            actor.pause()

    def watch(
        self, *, wish: int = 0, since: Position | None = None, executor: object = flow.INLINE
    ) -> Watcher:
        watcher = Watcher(self, wish, None)
        self.watchers.append(watcher)
        self.log.changes(watcher.criteria, since=since).subscribe(watcher, executor=executor)
        return watcher

    def hide(self, rows: list[tuple[str, str]]) -> None:
        """Commits what is withheld."""
        version = self.model[-1][0] + 1 if self.model else 1
        self.model.append((version, 0, "", ""))
        self.model += [(version, index, kind, key) for index, (kind, key) in enumerate(rows, 1)]
        assert self.log.commit([order(key, kind) for kind, key in rows], visible=False).version == version

    def forget_after(self, version: int) -> None:
        self.model = [row for row in self.model if row[0] <= version]
        self.log.forget_after(version)

    def slice(self) -> None:
        """One slice of replay, if somebody waits for one."""
        self.replay()


ROW, TWO = [("order", "0")], [("order", "0"), ("item", "1")]


def register_against_commit(duel, since=None):
    """A publisher that is registered during a commit misses nothing."""
    duel.put(TWO)

    def register():
        duel.watch(wish=1, since=since).request(10)
        duel.slice()
        duel.slice()

    return lambda: duel.put(ROW), register


def register_from_a_position(duel):
    return register_against_commit(duel, Position(1))


def register_with_company(duel):
    """The same, joining a publisher that is there already, and beside another one."""
    duel.put(TWO)
    duel.watch().request(100)
    duel.watch(wish=2).request(100)
    return lambda: duel.put(TWO), lambda: duel.watch().request(10)


def register_against_a_spooled_commit(duel):
    duel.put(ROW)
    duel.watch().request(100)

    def register():
        duel.watch(wish=2).request(200)
        duel.slice()

    return lambda: duel.put([("order", "0")] * 120), register


def join_against_commit(duel):
    """The replayer reads up to the watermark while a commit evicts and moves it."""
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    watcher.request(100)
    return lambda: duel.put(ROW), lambda: [duel.slice() for _ in range(3)]


def join_against_a_refused_chunk(duel):
    """The same, where the commit restarts the ring."""
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    watcher.request(100)
    return lambda: duel.put(TWO * 3), lambda: [duel.slice() for _ in range(3)]


def join_against_a_foreign_commit(duel):
    """One who waits at the watermark is woken by a commit that does not match."""
    watcher = duel.watch(wish=2)
    duel.put(TWO * 3)
    duel.put([("item", "0")] * 3)
    watcher.request(100)
    return lambda: duel.put(ROW), lambda: [duel.slice() for _ in range(3)]


def poll_against_eviction(duel):
    """A turn takes from the ring while a commit evicts what it takes from."""
    executor = ManualExecutor()
    duel.executors.append(executor)
    watcher = duel.watch(executor=executor)
    executor.run_all()
    duel.put(ROW)
    watcher.request(1)
    executor.run_all()
    watcher.request(2)
    return lambda: duel.put(TWO), executor.run_all


def poll_against_trim(duel):
    """A slow cursor polls while the commit is taken by a fast one, which trims."""
    executor = ManualExecutor()
    duel.executors.append(executor)
    slow, fast = duel.watch(executor=executor), duel.watch()
    executor.run_all()
    fast.request(100)
    duel.put([])
    duel.put([])
    slow.request(1)
    return lambda: duel.put(ROW), executor.run_all


def join_against_poll(duel):
    """The replayer joins while the last LIVE cursor polls and would trim the ring past the join."""
    executor = ManualExecutor()
    duel.executors.append(executor)
    lagging = duel.watch()
    for _ in range(3):
        duel.put([])
    live = duel.watch(executor=executor)
    executor.run_all()
    duel.put([])
    live.request(10)
    lagging.request(2)
    return executor.run_all, lambda: [duel.slice() for _ in range(3)]


def request_against_commit(duel):
    """No wake-up is lost between a request and a commit."""
    watcher = duel.watch()
    return lambda: duel.put(ROW), lambda: [watcher.request(1), watcher.request(1)]


def request_against_the_end_of_a_slice(duel):
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    watcher.request(3)
    return lambda: [watcher.request(1), watcher.request(2)], lambda: [duel.slice() for _ in range(3)]


def company_against_request(duel):
    """Who is served together with others is not served by itself at the same time."""
    watchers = [duel.watch(), duel.watch()]
    for watcher in watchers:
        watcher.request(1)
    return lambda: duel.put(ROW), lambda: [watchers[0].request(10), watchers[1].request(10)]


def company_against_cancel(duel):
    """One of several who are served together leaves."""
    watchers = [duel.watch(), duel.watch(), duel.watch()]
    for watcher in watchers:
        watcher.request(100)
    return lambda: duel.put(ROW), watchers[1].subscription.cancel


def company_against_a_slice(duel):
    """One who has lagged comes back to the place where the others stand, while these are served."""
    lagging, watcher = duel.watch(), duel.watch()
    watcher.request(100)
    for _ in range(3):
        duel.put(ROW)
    lagging.request(100)
    return lambda: duel.put(ROW), lambda: [duel.slice() for _ in range(3)]


def on_a_loop(duel, count, demand=100):
    loop = SteppedLoop()
    duel.executors.append(loop)
    watchers = [duel.watch(executor=loop) for _ in range(count)]
    loop.run_all()
    for watcher in watchers:
        if demand:
            watcher.request(demand)
    loop.run_all()
    return loop, watchers


def company_on_a_loop_against_commit(duel):
    """A round on the loop while the next commit is published."""
    loop, _ = on_a_loop(duel, 3)
    duel.put(ROW)
    return lambda: duel.put(ROW), loop.run_all


def company_on_a_loop_against_request(duel):
    """One of the company asks for more on another thread, in the middle of the round."""
    loop, watchers = on_a_loop(duel, 3, demand=1)
    duel.put(ROW)
    return lambda: [watchers[1].request(1), watchers[1].request(9)], loop.run_all


def company_on_a_loop_against_cancel(duel):
    loop, watchers = on_a_loop(duel, 3)
    duel.put(ROW)
    return watchers[1].subscription.cancel, loop.run_all


def company_on_a_loop_against_publish(duel):
    """What was withheld is shown in pieces while the loop serves what was shown before."""
    loop, _ = on_a_loop(duel, 3)
    for _ in range(3):
        duel.hide(ROW)
    duel.log.publish(1)
    return lambda: [duel.log.publish(2), duel.log.publish(3)], loop.run_all


def company_on_a_loop_against_a_slice(duel):
    """One comes back from the WAL to the place where the loop serves the others."""
    loop, _ = on_a_loop(duel, 2)
    lagging = duel.watch(since=Position(1), executor=loop)
    loop.run_all()
    for _ in range(3):
        duel.put(ROW)
        loop.run_all()
    lagging.request(100)
    loop.run_all()
    duel.put(ROW)
    return lambda: [loop.run_all() for _ in range(3)], lambda: [duel.slice() for _ in range(3)]


def company_on_a_loop_against_seek(duel):
    """One of the company goes elsewhere while the loop has its flag."""
    loop, watchers = on_a_loop(duel, 3)
    duel.put(ROW)
    return lambda: [watchers[1].seek(Position(1)), duel.slice()], loop.run_all


def seek_against_commit(duel):
    """One of a company goes back while a commit serves it."""
    watchers = [duel.watch(), duel.watch()]
    for watcher in watchers:
        watcher.request(100)
    duel.put(ROW)
    return lambda: duel.put(ROW), lambda: [watchers[0].seek(Position(1)), duel.slice(), duel.slice()]


def seek_forward_against_commit(duel):
    """One who lags goes to the end while the end moves."""
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    watcher.request(100)
    return lambda: duel.put(ROW), lambda: [watcher.seek(Position(4)), duel.slice(), duel.slice()]


def cancel_against_commit(duel):
    watcher, other = duel.watch(), duel.watch()
    other.request(100)
    watcher.request(1)
    return lambda: duel.put(TWO), watcher.subscription.cancel


def cancel_against_a_slice(duel):
    """A cursor that has ended never enters the ring again."""
    watcher, other = duel.watch(), duel.watch()
    other.request(100)
    for _ in range(3):
        duel.put(ROW)
    watcher.request(100)
    return watcher.subscription.cancel, lambda: [duel.slice() for _ in range(2)]


def last_cancel_against_subscribe(duel):
    """Nobody attaches to a publisher that is going."""
    watcher = duel.watch(wish=1)
    return watcher.subscription.cancel, lambda: [duel.watch(wish=1).request(9), duel.put(ROW)]


def checkpoint_against_commit(duel):
    watcher = duel.watch(wish=2)
    return lambda: duel.put(TWO), lambda: [duel.checkpoint(), watcher.request(1), duel.checkpoint()]


def publish_against_register(duel):
    """A publisher that is registered while something withheld is being shown misses nothing of it."""
    duel.put(TWO)
    duel.hide(ROW)
    duel.put(TWO)

    def register():
        duel.watch(wish=1).request(10)
        duel.watch(since=Position(1)).request(10)
        duel.slice()
        duel.slice()

    return lambda: duel.log.publish(2), register


def publish_against_join(duel):
    """The replayer reads up to the watermark while more is shown than any ring holds."""
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    for _ in range(3):
        duel.hide(ROW)
    watcher.request(100)
    return lambda: duel.log.publish(6), lambda: [duel.slice() for _ in range(3)]


def publish_in_steps_against_join(duel):
    watcher = duel.watch(wish=1)
    for _ in range(3):
        duel.put(ROW)
    for _ in range(2):
        duel.hide(ROW)
    duel.put(TWO)
    watcher.request(100)
    return (
        lambda: [duel.log.publish(4), duel.log.publish(5)],
        lambda: [duel.slice() for _ in range(3)],
    )


def publish_unkept_against_join(duel):
    """The same, where nothing was kept and the rings restart."""
    watcher, other = duel.watch(), duel.watch(wish=2)
    other.request(100)
    for _ in range(3):
        duel.put(ROW)
    for _ in range(2):
        duel.hide(TWO)
    watcher.request(100)
    return lambda: duel.log.publish(5), lambda: [duel.slice() for _ in range(3)]


def publish_against_poll(duel):
    """A turn takes from the ring while what was withheld evicts what it takes from."""
    executor = ManualExecutor()
    duel.executors.append(executor)
    watcher = duel.watch(executor=executor)
    executor.run_all()
    duel.put([])
    duel.hide(TWO)
    watcher.request(3)
    return lambda: duel.log.publish(2), executor.run_all


def publish_against_cancel(duel):
    watcher, other = duel.watch(), duel.watch()
    other.request(100)
    watcher.request(1)
    duel.hide(ROW)
    return lambda: duel.log.publish(1), watcher.subscription.cancel


def forget_against_replay(duel):
    """Whoever reads the log while its end is cut off, and written anew, reads what came instead."""
    watcher = duel.watch()
    for _ in range(3):
        duel.put(ROW)
    duel.hide(TWO)
    duel.hide(ROW)
    watcher.request(100)

    def forget():
        duel.forget_after(3)
        duel.put([("item", "2")])

    return forget, lambda: [duel.slice() for _ in range(3)]


def forget_against_register(duel):
    duel.put(TWO)
    duel.hide(TWO)

    def register():
        duel.watch(since=Position(1)).request(20)
        duel.watch().request(20)
        duel.slice()
        duel.slice()

    def forget():
        duel.forget_after(1)
        duel.put(ROW)

    return forget, register


SCENARIOS = [
    register_against_commit,
    register_from_a_position,
    register_with_company,
    register_against_a_spooled_commit,
    join_against_commit,
    join_against_a_refused_chunk,
    join_against_a_foreign_commit,
    poll_against_eviction,
    poll_against_trim,
    join_against_poll,
    request_against_commit,
    request_against_the_end_of_a_slice,
    company_against_request,
    company_against_cancel,
    company_against_a_slice,
    company_on_a_loop_against_commit,
    company_on_a_loop_against_request,
    company_on_a_loop_against_cancel,
    company_on_a_loop_against_publish,
    company_on_a_loop_against_a_slice,
    company_on_a_loop_against_seek,
    seek_against_commit,
    seek_forward_against_commit,
    cancel_against_commit,
    cancel_against_a_slice,
    last_cancel_against_subscribe,
    checkpoint_against_commit,
    publish_against_register,
    publish_against_join,
    publish_in_steps_against_join,
    publish_unkept_against_join,
    publish_against_poll,
    publish_against_cancel,
    forget_against_replay,
    forget_against_register,
]


def duel(scenario, first, before, between):
    """One run: ``first`` goes ``before`` steps, the other one ``between``, then the first to its end, then the other.

    Answers whether both counts were reached, so that greater ones make sense.
    """
    options = {"spool_bytes": 1100} if "spooled" in scenario.__name__ else {}
    options |= {"withheld_bytes": 0} if "unkept" in scenario.__name__ else {}
    world = Duel(**options)
    with world.running():
        actors = [Actor(body) for body in scenario(world)]
        one, other = actors[first], actors[1 - first]
        reached = one.walk(before) == before, other.walk(between) == between
        one.walk(10**6)
        other.walk(10**6)
        for actor in actors:
            if actor.error is not None:
                raise actor.error
        world.at_rest()
        registry = service_of(world.log).registry
        alive = [watcher for watcher in world.watchers if not watcher.subscription.ended]
        assert len(registry.subscriptions()) == len(alive)
        for shared in registry.publishers():
            assert shared.ring.statistics().live <= len(shared.subscriptions)
            assert shared.subscriptions
    world.settle()
    return reached


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_order_of_two_threads_loses_or_repeats_anything(scenario, first):
    """Invariants 2, 3, 4, 6, 8, 9: F28, E20, E29, E42, E65, F65."""
    runs = 0
    for before in count():
        for between in count(1 + before % STRIDE, STRIDE):
            reached = duel(scenario, first, before, between)
            runs += 1
            if not reached[1]:
                break
        if not reached[0]:
            break
    assert runs > 3

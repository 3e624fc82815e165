"""A program whose main thread gets SIGINT at random moments of what a log does, and what must hold of the log then.

It is a process of its own, so that a signal meets nothing but the log; ``test_random_interrupts.py`` runs it.
"""

import asyncio
import contextlib
import random
import shutil
import signal
import sys
import threading

import flow
from publishers import ChangeLog, Position
from tests.harness.inside import committer_of, publication_of, service_of
from tests.publishers.support import QUICK, Probe, everything, order, scratch, wait_until

LIFE = 50  # interrupts that one log lives through


class Shooter:
    """A thread that interrupts the main thread once each time that it is told to."""

    def __init__(self, chance):
        self._chance = chance
        self._told = threading.Semaphore(0)
        self._main = threading.main_thread().ident
        threading.Thread(target=self._run, daemon=True).start()

        self.swallowed = False
        sys.unraisablehook = self._unraisable

    def aim(self):
        self.swallowed = False
        self._told.release()

    def _unraisable(self, told):
        """An interrupt that strikes where a finalizer runs is printed by Python, and raised nowhere."""
        self.swallowed = told.exc_type is KeyboardInterrupt
        if not self.swallowed:
            sys.__unraisablehook__(told)

    def _run(self):
        pause = threading.Event()
        while self._told.acquire():
            pause.wait(self._chance.expovariate(2000))
            signal.pthread_kill(self._main, signal.SIGINT)


class Life:
    """One log with subscribers, and what is done to it."""

    def __init__(self, chance, policy):
        self.chance = chance
        self.path = scratch() / "log"
        self.options = {**QUICK, "sync": policy, "sync_interval": 0.001, "ring_events": 64}
        self.log = ChangeLog.open(self.path, **self.options)
        self.acknowledged = set()
        self.probes = []
        self.replayed: list[Probe] = []
        self.busy, self.quiet, self.ended = threading.Event(), threading.Lock(), False
        self.other = threading.Thread(target=self._commit_too, daemon=True)
        self.other.start()
        for executor in (flow.INLINE, flow.INLINE, None):
            probe = Probe(first=10**9)
            self.log.changes().subscribe(probe, executor=executor)
            self.probes.append(probe)

    def commit(self):
        changes = [order(number) for number in range(self.chance.choice([1, 1, 10, 100]))]
        durable = self.chance.random() < 0.1
        self.acknowledged.add(self.log.commit(changes, durable=durable).version)

    def commit_among_others(self):
        self.busy.set()
        try:
            self.commit()
            self.commit()
        finally:
            self.busy.clear()

    def _commit_too(self):
        while self.busy.wait():
            with self.quiet:
                if self.ended:
                    return
                self.acknowledged.add(self.log.commit([order(1)]).version)

    def withhold(self):
        with self.quiet:  # what is committed behind it would be forgotten with it
            version = self.log.commit([order(1)], visible=False).version
            if self.chance.random() < 0.5:
                self.log.publish(version)
            else:
                self.log.forget_after(version - 1)

    def replay(self):
        everything(self.log)

    def replay_to_a_subscriber(self):
        probe = Probe(first=10**9)
        self.replayed.append(probe)  # an interrupt may come before it is cancelled here
        self.log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
        probe.subscription.cancel()

    def reopen(self):
        with ChangeLog.open(self.path, read_only=True) as follower:
            everything(follower)

    def act(self):
        self.chance.choice(
            [self.commit] * 6
            + [self.commit_among_others, self.withhold, self.replay, self.replay_to_a_subscriber, self.reopen]
        )()

    def check(self):
        log = self.log
        assert committer_of(log).failed is None, committer_of(log).failed
        assert publication_of(log).gate.acquire(timeout=60), "the publish gate was left locked"
        publication_of(log).gate.release()
        if log.withheld:
            log.publish(log.withheld[-1])
        self.acknowledged.add(log.commit([order(1)], durable=True).version)

    def end(self):
        """Every subscriber but those that were interrupted has everything; so has who opens the log again."""
        with self.quiet:
            self.ended = True
        self.busy.set()
        self.other.join(60)
        assert not self.other.is_alive(), "a committer hangs"
        self.log.commit(
            [order(1)], durable=True
        )  # else what the other one has committed last may not be visible yet
        truth = everything(self.log)
        for probe in self.probes:
            wait_until(lambda p=probe: p.subscription.ended or len(p.positions) >= len(truth), probe.state)
            assert probe.positions == truth[: len(probe.positions)], probe.state()
            assert probe.clean, probe.state()
        for probe in self.replayed:
            if probe.subscription is not None:
                probe.subscription.cancel()
        assert len(service_of(self.log).registry.subscriptions()) <= len(self.probes)
        self.log.close()
        with ChangeLog.open(self.path, **self.options) as log:
            kept = everything(log)
            assert kept == truth
            versions = [position.version for position in kept if not position.index]
            assert versions == list(range(1, log.head.version))
            assert self.acknowledged.issubset(versions)
        shutil.rmtree(self.path.parent)


def plainly(life, shooter):
    """One interrupt, wherever it strikes."""
    with contextlib.suppress(KeyboardInterrupt):
        shooter.aim()
        while not shooter.swallowed:
            life.act()


def under_asyncio(life, shooter):
    """``asyncio.run`` was begun after the log was opened, and has its own handler in place."""

    async def act():
        shooter.aim()
        while not shooter.swallowed:
            life.act()
            await asyncio.sleep(0)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(act())


def under_a_handler(life, shooter):
    """As PySpark has one: it does something, and raises."""
    told = []

    def handle(_number, _frame):
        told.append(1)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        plainly(life, shooter)
        assert signal.getsignal(signal.SIGINT) is handle
        assert told == [1]
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def under_a_kernel(life, shooter):
    """As IPython does: the handler is swapped around each cell."""
    saved = signal.signal(signal.SIGINT, lambda *_: None)
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plainly(life, shooter)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    signal.signal(signal.SIGINT, saved)


SITUATIONS = {one.__name__: one for one in (plainly, under_asyncio, under_a_handler, under_a_kernel)}


def main(situation, count, seed):
    chance = random.Random(seed)
    shooter = Shooter(random.Random(seed + 1))
    died = []  # threads; but the one of a follower, of which closing it was interrupted, may find its file closed
    threading.excepthook = lambda told: died.append(told) if told.exc_type is not OSError else None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = 0
    while done < count:
        life = Life(chance, ["always", "os", "interval"][chance.randrange(3)])
        for _ in range(min(LIFE, count - done)):
            SITUATIONS[situation](life, shooter)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a handler was left behind"
            life.check()
            done += 1
        life.end()
        assert not died, died
    sys.stdout.write(f"{done} interrupts, and the log went on after each\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

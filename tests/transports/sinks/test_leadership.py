"""Several runners of one sink, one of which sends: never a gap, whatever is stopped, killed or cut off in between."""

import random

import pytest
import sqlalchemy as sql

from publishers import ChangeLog, Position, upsert
from tests.harness.inside import intake_of
from tests.harness.scale import scaled
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import QUICK, HandClock, Target
from transports.sinks import (
    Lease,
    RetryPolicy,
    SinkOptions,
    SinkRunner,
    SinkStandsBy,
    SinkState,
    TargetUnavailable,
)
from transports.sinks.sql_leases import SqlLeases


@pytest.fixture
def engine(tmp_path):
    engine = sql.create_engine(f"sqlite:///{tmp_path}/leases")
    SqlLeases(engine, "stock", create=True).acquire("nobody", 1.0)
    SqlLeases(engine, "stock").release(1)
    yield engine
    engine.dispose()


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        yield log


class Site:
    """A runner with its lease, on the one log, sending to the one target."""

    def __init__(self, log, engine, target, clock, **options):
        self.lease = Lease(SqlLeases(engine, "stock", clock=clock), clock=clock)
        given = {"since": "earliest", "linger": 0.0, "retry": RetryPolicy(jitter=lambda: 1.0), **options}
        self.runner = SinkRunner(log, "stock", target, SinkOptions(**given), lease=self.lease, clock=clock)

    def turn(self, steps=1):
        self.lease.step()
        for _ in range(steps):
            self.runner.step()

    def close(self):
        self.runner.close()
        self.lease.close()


class Sites:
    def __init__(self, log, engine, **options):
        self.log, self.clock = log, HandClock()
        self.targets = [Target(), Target()]
        self.sites = [Site(log, engine, target, self.clock, **options) for target in self.targets]

    def __enter__(self):
        return (*self.sites, self)

    def __exit__(self, *_):
        for site in self.sites:
            site.close()

    def carried(self, site, count):
        """Turns a site until its target has so many changes."""
        target = self.targets[self.sites.index(site)]

        def enough():
            site.turn()
            return len(target.keys) >= count

        wait_until(enough, site.runner.statistics)


def test_the_one_without_the_lease_stands_by_knows_the_place_and_takes_no_orders(log, engine):
    """F121: others stand by and know how far it is."""
    log.commit([upsert("order", "a", {})])
    with Sites(log, engine) as (first, second, sites):
        sites.carried(first, 1)
        second.turn()
        assert (first.runner.state, second.runner.state) == (SinkState.STREAMING, SinkState.STANDBY)
        sites.clock.now += 2
        first.turn()
        told = second.runner.statistics()
        assert (told.position, told.epoch, told.lag.versions) == (Position(2), None, 0)
        assert told.reason == "another runner holds the lease"
        assert first.runner.statistics().epoch == 2
        for order in (second.runner.pause(), second.runner.resume(), second.runner.seek(1)):
            second.turn()
            with pytest.raises(SinkStandsBy, match="give orders to the process that holds the lease"):
                order.result()
        assert sites.targets[1].opens == 0


def test_a_stand_by_goes_on_at_the_stored_place_and_each_gain_begins_there_again(log, engine):
    """F122: also if the same one gains it again."""
    with Sites(log, engine) as (first, second, sites):
        for key in "abc":
            log.commit([upsert("order", key, {})])
        sites.carried(first, 3)
        sites.clock.now += 2
        first.turn()  # stored
        log.commit([upsert("order", "d", {})])
        sites.targets[0].plan = [TargetUnavailable("down")]
        while first.runner.state is not SinkState.RETRYING:
            first.turn()
        second.turn()
        sites.clock.now += 11  # the first one has been stopped
        second.turn()
        assert second.runner.state is not SinkState.RETRYING, "it takes the slot over"
        sites.carried(second, 1)
        assert sites.targets[1].keys == ["d"]
        first.turn(2)
        assert first.runner.state is SinkState.STANDBY
        assert sites.targets[0].keys == list("abc")
        second.lease.close()
        log.commit([upsert("order", "e", {})])
        sites.clock.now += 3
        sites.carried(first, 5)
        assert sites.targets[0].keys == ["a", "b", "c", "d", "e"], "the place of d was not stored"
        second.turn()
        assert second.runner.state is SinkState.STANDBY
        assert sites.targets[0].context.generation > sites.targets[1].context.generation


def test_a_lease_that_ends_while_the_target_is_asked_sends_and_stores_nothing(log, engine):
    """F121: nothing is sent, and no place stored, unless the lease is held right then."""
    with Sites(log, engine) as (first, _, sites):
        target = sites.targets[0]
        log.commit([upsert("order", "a", {})])
        target.plan = [TargetUnavailable("down")] * 5
        while first.runner.machine._failures.in_row < 5:
            first.turn()
            sites.clock.now += 2.9
        real = target.alive
        target.alive = lambda: setattr(sites.clock, "now", sites.clock.now + 9) or real()
        while not target.asked:
            first.turn()
            sites.clock.now += 2.9
        assert len(target.tried) == 5
        target.alive = real
        first.turn()  # it has lost it, and sees who has it
        sites.clock.now += 11
        sites.carried(first, 1)
        target.flush = lambda: setattr(sites.clock, "now", sites.clock.now + 9)
        sites.clock.now += 2
        first.turn()
        assert log.slots.info("stock").position == (1, 0)
        first.turn()
        assert first.runner.state in (SinkState.STANDBY, SinkState.STARTING)


def test_one_that_took_the_slot_over_late_is_fenced_and_the_holder_takes_it_back(log, engine):
    """F121: a place told by an opening that was replaced does not count."""
    with Sites(log, engine) as (first, _, sites):
        log.commit([upsert("order", "a", {})])
        sites.carried(first, 1)
        late = log.slots.open("stock", take_over=True, owner="late")
        sites.clock.now += 2
        first.turn()
        assert first.runner.state is SinkState.STANDBY
        assert "Fenced" in repr(first.runner.machine._reason) or "generation" in first.runner.machine._reason
        sites.carried(first, 2)
        assert sites.targets[0].keys == ["a", "a"]
        with pytest.raises(Exception, match="generation"):
            late.ack(Position(2))


def test_places_are_stored_after_each_batch_where_that_is_wanted(log, engine):
    """F122: then one batch at most comes twice."""
    with Sites(log, engine, store_every=0, batch_changes=1) as (first, second, sites):
        for key in "abc":
            log.commit([upsert("order", key, {})])
        sites.carried(first, 2)
        second.turn()
        sites.clock.now += 11
        sites.carried(second, 1)
        assert sites.targets[1].keys[0] in ("b", "c")
        assert not log.slots.info("stock").unsynced


class Shared(Target):
    """The one target of several runners: a batch may be long on its way, while others go on."""

    def __init__(self, rng):
        super().__init__()
        self.rng, self.others, self.depth = rng, [], 0

    def write(self, batch):
        fate = self.rng.random()
        if fate < 0.1:
            self.elsewhere()
        if fate > 0.9:
            raise TargetUnavailable("reset before it arrived")
        self.taken.append(batch)
        if 0.1 < fate < 0.2:
            self.elsewhere()
        if fate > 0.8:
            raise TargetUnavailable("reset after it arrived")

    def elsewhere(self):
        """The process is stopped here, and the others are not."""
        if self.depth < 2:
            self.depth += 1
            for other in self.others:
                other()
            self.depth -= 1


class Zero(HandClock):
    """A clock that began elsewhere, and whose wall clock is set again and again; the time that passes is that of another one."""

    def __init__(self, clock, rng):
        self.clock, self.rng, self.wall = clock, rng, 0
        self.zero = rng.uniform(-1e5, 1e5)

    def monotonic(self):
        return self.clock.now + self.zero

    def now_us(self):
        self.wall += self.rng.choice((-(10**9), 1, 10**9))
        return 1_764_000_000_000_000 + self.wall


class Race:
    """Three sites that are turned at random, and stopped within a request while the others go on."""

    def __init__(self, log, engine, seed):
        self.log, self.engine, self.rng, self.clock = log, engine, random.Random(seed), HandClock()
        self.target = Shared(self.rng)
        self.target.others = [self.work_elsewhere]
        self.expected, self.gains, self.busy = [], set(), set()
        self.sites = [self.begun() for _ in range(3)]

    def begun(self):
        return Site(self.log, self.engine, self.target, Zero(self.clock, self.rng), batch_changes=3)

    def commit(self):
        keys = [str(place) for place in range(self.rng.randint(1, 5))]
        version = self.log.commit([upsert("order", key, {}) for key in keys]).version
        self.expected += [(version, place) for place in range(len(keys) + 1)]

    def work(self, site):
        self.clock.now += self.rng.choice((0.0, 0.3, 1.1, 3.0, self.rng.uniform(0, 14)))
        if self.rng.random() < 0.8:
            site.lease.step()
        self.busy.add(site)
        for _ in range(self.rng.randint(1, 4)):
            site.runner.step()
        self.busy.discard(site)
        if site.runner.state is SinkState.STREAMING:
            self.gains.add(site.lease.epoch)

    def work_elsewhere(self):
        for site in self.sites:
            if site not in self.busy:
                self.work(site)

    def kill(self, site):
        """Nothing is given back, and nothing stored."""
        if intake_of(site.runner.machine).supply is not None:
            intake_of(site.runner.machine).supply.end()
        self.sites[self.sites.index(site)] = self.begun()

    def drained(self):
        self.clock.now += 1.5
        for site in self.sites:
            site.turn(3)
        return self.log.slots.info("stock").position == self.log.head

    def judge(self):
        """Nothing has come before what lies before it, and everything has."""
        reached = 0
        order = {position: place for place, position in enumerate(self.expected)}
        for batch in self.target.taken:
            for change in batch.changes:
                place = order[tuple(change.position)]
                assert place <= reached, f"{change.position} came before {self.expected[reached]}"
                reached = max(reached, place + 1)
        assert reached == len(self.expected)


@pytest.mark.parametrize("seed", range(scaled(8)))
def test_there_is_never_a_gap_whatever_is_stopped_killed_or_cut_off(log, engine, seed):
    """F121, F122: three runners with clocks of their own, stopped in the middle of a request, and killed."""
    race = Race(log, engine, seed)
    for turn in range(scaled(240)):
        if turn % 2:
            race.commit()
        site = race.rng.choice(race.sites)
        if race.rng.random() < 0.08:
            race.kill(site)
        else:
            race.work(site)
    race.target.write = race.target.taken.append
    wait_until(race.drained, lambda: [site.runner.statistics() for site in race.sites])
    race.judge()
    assert len(race.gains) > 3
    for site in race.sites:
        site.close()


def test_a_lease_on_a_thread_of_its_own_wakes_the_runner(log, engine):
    """F121: by the clock of this machine."""
    target = Target()
    with Lease(SqlLeases(engine, "stock")).start() as lease:
        with SinkRunner(log, "stock", target, SinkOptions(linger=0.0), lease=lease) as runner:
            wait_until(lambda: runner.state is SinkState.STREAMING, runner.statistics)
            log.commit([upsert("order", "a", {})])
            wait_until(lambda: target.keys == ["a"], runner.statistics)
        assert log.slots.info("stock").position == log.head
    assert lease.epoch is None


def test_a_runner_whose_lease_ends_while_its_target_makes_things_durable_stores_no_place(log, engine):
    """F122: the next holder may have begun at the stored place, and stores its own."""
    log.commit([upsert("order", "a", {})])
    with Sites(log, engine) as (first, _, sites):
        sites.carried(first, 1)
        stored = log.slots.info("stock").position

        def flush():
            sites.clock.now += 11  # longer than the lease lasts
            flushed.append(1)

        flushed = []
        sites.targets[0].flush = flush
        sites.clock.now += 2
        first.runner.step()
        assert flushed
        assert log.slots.info("stock").position == stored

"""The core of a group beside a model: random consumers, and clocks that are put forth and back."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from publishers import Position
from publishers.groups.errors import ConsumerFenced
from publishers.groups.machine import GroupMachine
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DeliveryState
from tests.harness.scale import scaled
from tests.simulation.workload import Clock

LANES = [("order", "1"), ("order", "2"), ("order", "3"), ("item", "1"), ("order", None), ("item", None), None]
NAMES = st.sampled_from("abc")


class Told:
    """What the journal would hold."""

    def __init__(self, head):
        self.head = head
        self.opens = {}

    def write(self, machine):
        head, opened, closed = machine.news()
        self.head = head
        for place in closed:
            self.opens.pop(place, None)
        self.opens |= {row.position: row for row in opened}
        machine.stored(head, opened, closed)
        assert not machine.unsynced


class Groups(RuleBasedStateMachine):
    @initialize(
        ordering=st.sampled_from(["key", "key", "none", "global"]),
        ack=st.sampled_from(["explicit", "all", "transaction"]),
        most=st.integers(1, 12),
        each=st.integers(1, 8),
        parked=st.integers(1, 20),
        deliver=st.sampled_from([None, None, 1, 2, 3]),
        breaker=st.booleans(),
        seed=st.integers(0, 99),
    )
    def begin(self, ordering, ack, most, each, parked, deliver, breaker, seed):
        self.settings = GroupSettings(
            ordering=ordering,
            ack=ack,
            max_ack_pending=most,
            max_consumer_pending=each,
            max_parked=parked,
            max_deliver=deliver,
            breaker=breaker,
            consumer_ttl=300.0,
        )
        self.settings.check()
        self.clock = Clock()
        self.seed = seed
        self.log = []  # positions, lanes
        self.version = 1
        self.generation = 0
        self.done = {}  # what came to which end
        self.sure = set()  # what a restart may not bring back
        self.machine = self.made(Position(1), ())
        self.told = Told(Position(1))
        self.told.write(self.machine)
        self.handles = []
        self.given = {}  # who was given what last, of which nothing was said
        self.floor = Position(1)

    def made(self, head, opens):
        return GroupMachine(
            "g",
            self.settings,
            head,
            opens,
            generation=self.generation,
            clock=self.clock,
            chance=random.Random(self.seed),
        )

    def units(self):
        """What is delivered as one, as it lies in the log, with its lanes."""
        if self.settings.ack != "transaction":
            return {place: {lane} for place, lane in self.log}
        found = {}
        for place, lane in self.log:
            found.setdefault(Position(place.version), set()).add(lane)
        return found

    # --- rules -----------------------------------------------------------------------------------------------------------

    @rule(lanes=st.lists(st.sampled_from(LANES), max_size=5))
    def commit(self, lanes):
        self.log += [(Position(self.version, index), lane) for index, lane in enumerate(lanes, 1)]
        self.version += 1

    @rule(
        lanes=st.lists(st.sampled_from(LANES[:3]), min_size=3, max_size=8),
        names=st.lists(NAMES, min_size=1, max_size=2),
        most=st.integers(1, 6),
    )
    def work(self, lanes, names, most):
        """What mostly goes on."""
        self.commit(lanes)
        self.feed(9)
        for name in names:
            if not any(one.name == name for one in self.machine.consumers.listed()):
                self.join(name)
            consumer = next(one for one in self.machine.consumers.listed() if one.name == name)
            self.machine.take(consumer, most)

    @rule(limit=st.integers(1, 9))
    def feed(self, limit):
        machine = self.machine
        limit = min(limit, machine.room)
        coming = [one for one in self.log if one[0] >= machine.reading]
        if limit:
            page, rest = coming[:limit], coming[limit:]
            machine.feed([(*one, None, 0) for one in page], rest[0][0] if rest else Position(self.version))

    @rule(name=NAMES)
    def join(self, name):
        self.generation += 1
        self.handles.append(self.machine.join(name, self.generation))
        self.handles = self.handles[-6:]

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), most=st.integers(1, 9), history=st.booleans())
    def take(self, chosen, most, history):
        consumer = self.handles[chosen % len(self.handles)]
        live = self.live(consumer)
        try:
            units = self.machine.take(consumer, most, history=history)
        except ConsumerFenced:
            assert not live
            return
        assert live
        assert len(units) <= most
        again = [unit.position for unit in units if unit.count > 1]
        assert not again or history or again == sorted(again)
        for unit in units:
            assert unit.position not in self.done
            self.given[unit.position] = (consumer.name, consumer.generation)

    def late(self):
        """What has timed out, and was given to none since."""
        return [one for one, unit in self.machine.units.items() if unit.late]

    def live(self, consumer):
        return any(one is consumer for one in self.machine.consumers.listed())

    @precondition(lambda self: self.handles)
    @rule(
        chosen=st.integers(0, 99),
        of=st.integers(0, 99),
        what=st.sampled_from(["ack", "ack", "upto", "nack", "nack", "put", "term", "busy"]),
    )
    def say(self, chosen, of, what):
        consumer = self.handles[chosen % len(self.handles)]
        places = sorted(self.units())
        if not places:
            return
        busy = [one for one in self.machine.consumers.listed() if one.pending]
        if of % 8 and busy:
            consumer = busy[chosen % len(busy)]
        mine = sorted(consumer.pending)
        place = mine[of % len(mine) // 2] if mine and of % 4 else places[of % len(places)]
        unit = self.machine.units.get(place)
        before = {one.position: (one.state, one.count, one.holder) for one in self.machine.units.values()}
        try:
            if what == "ack":
                count = self.machine.ack(consumer, [place, place])
                assert count == (unit is not None and unit.state is DeliveryState.ACKED)
                assert self.machine.ack(consumer, [place]) == 0
            elif what == "upto":
                holder = (consumer.name, consumer.generation)
                given = {one for one, unit in self.machine.units.items() if unit.holder == holder}
                mine = {one for one in given & {*consumer.pending, *self.late()} if one <= place}
                assert self.machine.ack_upto(consumer, place) == len(mine)
            elif what == "nack":
                self.machine.nack(consumer, place, delay=of % 3 * 10.0)
            elif what == "put":
                had = unit.count if unit else 0
                if self.machine.nack(consumer, place, count=False):
                    assert unit.count == had - 1
                    assert unit.state is DeliveryState.DUE
            elif what == "busy":
                if self.machine.in_progress(consumer, place):
                    assert unit.until == self.clock.monotonic() + 30.0
            else:
                self.machine.term(consumer, place, "bad")
        except ConsumerFenced:
            after = {one.position: (one.state, one.count, one.holder) for one in self.machine.units.values()}
            assert before == after
            assert (
                not self.live(consumer)
                or unit is None
                or unit.holder is None
                or unit.holder.consumer != consumer.name
            )

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), idle=st.sampled_from([0.0, 5.0]), only=st.booleans())
    def claim(self, chosen, idle, only):
        consumer = self.handles[chosen % len(self.handles)]
        counts = {place: unit.count for place, unit in self.machine.units.items()}
        firsts = {place: unit.first_us for place, unit in self.machine.units.items()}
        try:
            moved = self.machine.claim(consumer, list(self.machine.units), idle, only_ids=only)
        except ConsumerFenced:
            assert not self.live(consumer)
            return
        for unit in moved:
            assert unit.holder == (consumer.name, consumer.generation)
            assert unit.count == counts[unit.position] + (not only)
            assert unit.first_us == firsts[unit.position]

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), most=st.integers(1, 9))
    def return_(self, chosen, most):
        """It was cut off, and is back: it is given again what it had, in order, and that counts as no delivery."""
        consumer = self.handles[chosen % len(self.handles)]
        if not self.live(consumer) or self.machine.paused:
            return
        counts = {place: unit.count for place, unit in consumer.pending.items()}
        had = sorted(counts)
        assert self.machine.recall(consumer) == bool(had)
        units = self.machine.take(consumer, most, history=True)
        again = [unit.position for unit in units if unit.position in counts]
        assert again == [place for place in had if place in again]
        assert all(unit.count == counts[unit.position] for unit in units if unit.position in counts)
        assert len(again) == min(most, len(had))

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99))
    def leave(self, chosen):
        self.machine.remove(self.handles.pop(chosen % len(self.handles)))

    @rule(seconds=st.sampled_from([1, 10, 31, 700]))
    def wait(self, seconds):
        self.clock.now += seconds * 1_000_000
        self.machine.tick()

    @rule(seconds=st.integers(-100, -1))
    def step_back(self, seconds):
        """The wall clock is put back; nothing is delivered for that, and nothing forgotten."""
        pending = self.machine.pending
        self.clock.now += seconds * 1_000_000
        self.machine.tick()
        assert self.machine.pending == pending

    @rule()
    def bury(self):
        for place in list(self.machine.dying):
            self.machine.bury(place)

    @rule()
    def write(self):
        self.told.write(self.machine)
        self.sure = set(self.units_done())

    @rule()
    def resume(self):
        self.machine.resume()

    @rule()
    def restart(self):
        """With what the journal had last."""
        rows = sorted(self.told.opens.values(), key=lambda row: row.position)
        old = self.machine
        self.machine = self.made(self.told.head, rows)
        assert self.machine.floor <= old.floor
        self.floor = self.machine.floor
        self.handles = []
        again = {place for place in self.units() if place not in self.sure}
        read = {row.position for row in rows} | {place for place in self.units() if place >= self.told.head}
        assert again == read

    @rule(share=st.integers(1, 4))
    def prune(self, share):
        places = sorted(self.units())
        if share == 1 and places:
            oldest = Position(places[len(places) // 3].version)
            if oldest > self.machine.floor:
                open_before = {one for one in self.machine.units if one < oldest}
                lost = self.machine.prune(oldest, oldest)
                assert open_before <= set(lost)
                self.log = [one for one in self.log if one[0] >= oldest]
                self.told.write(self.machine)
                self.sure = set(self.units_done())

    def units_done(self):
        machine = self.machine
        unread = {row.position for row in machine._intake.resumed}
        return [
            place
            for place in self.units()
            if place < machine.head and place not in machine.units and place not in unread
        ]

    # --- what holds --------------------------------------------------------------------------------------------------------

    @invariant()
    def each_change_is_in_one_state(self):
        """1, 4: and what is not kept is done; the floor, the head and the counts agree with it."""
        if not hasattr(self, "machine"):
            return
        machine, units = self.machine, self.units()
        assert set(machine.units) <= set(units)
        assert list(machine.units) == sorted(machine.units)
        unread = {row.position for row in machine._intake.resumed}
        assert not unread & set(machine.units)
        kept = sorted([*machine.units, *unread])
        assert machine.floor == (kept[0] if kept else machine.head)
        states = [unit.state for unit in machine.units.values()]
        assert machine.parked == states.count(DeliveryState.PARKED)
        assert machine.pending == states.count(DeliveryState.PENDING)
        assert set(machine.dying) == {
            one.position for one in machine.units.values() if one.state is DeliveryState.DYING
        }
        assert machine.pending == sum(len(one.pending) for one in machine.consumers.listed())

    @invariant()
    def bounds_hold(self):
        """5: and the heaps are bounded by what is not done."""
        if not hasattr(self, "machine"):
            return
        machine = self.machine
        assert len(machine.units) - machine.parked <= self.settings.max_ack_pending
        assert machine.parked <= self.settings.max_parked
        for one in machine.consumers.listed():
            assert len(one.pending) <= self.settings.max_consumer_pending
        for size in (len(machine._ready), len(machine._timers)):
            assert size <= 2 * len(machine.units) + 100

    @invariant()
    def keys_are_in_order(self):
        """2, 6: un-acked deliveries of a key are at one consumer, none is behind one that is not delivered; barriers hold."""
        if not hasattr(self, "machine") or self.settings.ordering == "none":
            return
        machine = self.machine
        if self.settings.ordering == "global":
            assert machine.pending <= 1
            if machine.pending:
                assert next(iter(machine.units.values())).state is DeliveryState.PENDING
            return
        lanes = self.units()
        ahead = {}  # by lane, the units that are not done
        for place, unit in machine.units.items():
            for lane in lanes[place] - {None}:
                kind, key = lane
                before = [
                    one
                    for other, found in ahead.items()
                    if other[0] == kind and (key is None or other[1] in (key, None))
                    for one in found
                ]
                if unit.state is DeliveryState.PENDING:
                    for one in before:
                        if key is None or (kind, None) in lanes[one.position]:
                            raise AssertionError((place, "before a barrier, or behind one", one.position))
                        assert one.state is DeliveryState.PENDING, (place, one.position)
                        assert one.holder.consumer == unit.holder.consumer
            for lane in lanes[place] - {None}:
                ahead.setdefault(lane, []).append(unit)

    @invariant()
    def the_floor_never_moves_back(self):
        """7."""
        if hasattr(self, "machine"):
            assert self.machine.floor >= self.floor
            self.floor = self.machine.floor

    @invariant()
    def nothing_waits_for_ever(self):
        """The first that is not done can always be had by somebody, now or when its time comes."""
        if not hasattr(self, "machine") or not self.machine.units or self.machine.paused:
            return
        unit = next(iter(self.machine.units.values()))
        machine = self.machine
        if unit.state in (DeliveryState.PARKED, DeliveryState.DUE):
            ready = machine._ready.places()
            if unit.until > self.clock.monotonic():
                assert unit.timed is not None
            else:
                own = {place for one in machine.consumers.listed() for place in one.ready.places()}
                assert unit.position in ready | own or unit.timed is not None

    def teardown(self):
        """Whatever was done, in the end all of it can be acknowledged, in the order of its keys."""
        if not hasattr(self, "machine"):
            return
        machine = self.machine
        machine.resume()
        self.generation += 1
        last = machine.join("last", self.generation)
        unlucky = 0
        while machine.floor < Position(self.version):
            coming = [one for one in self.log if one[0] >= machine.reading]
            limit = machine.room
            if limit:
                page, rest = coming[:limit], coming[limit:]
                machine.feed(
                    [(*one, None, 0) for one in page], rest[0][0] if rest else Position(self.version)
                )
            if not machine.take(last, 100):
                unlucky += 1
                assert unlucky < 2_000, [(u.position, u.state, u.count) for u in machine.units.values()][:9]
                self.clock.now += 40_000_000
                machine.tick()
                if not self.live(last):
                    self.generation += 1
                    last = machine.join("last", self.generation)
                machine.resume()
            machine.ack(last, list(last.pending))
            self.bury()
        assert not machine.units


TestGroups = Groups.TestCase
TestGroups.__doc__ = (
    """F75, F76, F78, F79, F80, F81, F82, F83, F84, F163: the invariants of groups, whatever consumers do."""
)
TestGroups.settings = settings(max_examples=scaled(120), stateful_step_count=60, deadline=None)

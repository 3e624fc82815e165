"""A group beside a model of it: what was written and done, which changes wait for which, and what holds at all times."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from publishers import Position
from publishers.groups.machine import GroupMachine
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DeliveryState
from tests.simulation.workload import Clock


class Told:
    """What the journal would hold."""

    def __init__(self, head):
        self.head = head
        self.opens = {}

    def write(self, machine):
        self.take(machine, machine.news())
        assert not machine.unsynced
        expected = {row.position: row.count for row in machine._intake.resumed}
        expected |= {place: unit.count for place, unit in machine.units.items() if place < self.head}
        assert {place: row.count for place, row in self.opens.items()} == expected
        assert machine.opens() == sorted(self.opens.values(), key=lambda row: row.position)

    def take(self, machine, news):
        head, opened, closed = news
        assert head >= self.head
        self.head = head
        for place in closed:
            self.opens.pop(place, None)
        self.opens |= {row.position: row for row in opened}
        machine.stored(head, opened, closed)


class GroupModel(RuleBasedStateMachine):
    """The machine of a group, its log and its journal. What happens to them is up to the rules of a subclass."""

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
        self.done = set()  # what came to an end
        self.sure = set()  # what a restart may not bring back
        self.delayed = {}  # until when what was refused is not given again
        self.deadlines = {}  # when what is pending times out
        self.stored_counts = {}  # what the journal had at the last restart
        self.writing = None  # what is being written, and what it makes sure
        self.machine = self.made(Position(1), ())
        self.told = Told(Position(1))
        self.told.write(self.machine)
        self.handles = []
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

    def units_done(self):
        machine = self.machine
        unread = {row.position for row in machine._intake.resumed}
        return [
            place
            for place in self.units()
            if place < machine.head and place not in machine.units and place not in unread
        ]

    def waits(self, place, holder):
        """Whether something earlier keeps a change from a consumer."""
        if self.settings.ordering == "none":
            return False
        units = self.machine.units
        before = [one for one in units.values() if one.position < place]
        if self.settings.ordering == "global":
            return bool(before)
        lanes = self.units()
        for kind, key in lanes[place] - {None}:
            for one in before:
                for other, name in lanes[one.position] - {None}:
                    if other == kind and (key is None or name is None):
                        return True
                    elsewhere = one.state is not DeliveryState.PENDING or one.holder != holder
                    if (other, name) == (kind, key) and elsewhere:
                        return True
        return False

    def late(self):
        """What has timed out, and was given to none since."""
        return [one for one, unit in self.machine.units.items() if unit.late]

    def live(self, consumer):
        return any(one is consumer for one in self.machine.consumers.listed())

    @invariant()
    def each_change_is_in_one_state(self):
        """1, 4: and what is not kept is done; the floor, the head and the counts agree with it."""
        machine, units = self.machine, self.units()
        assert set(machine.units) <= set(units)
        assert list(machine.units) == sorted(machine.units)
        unread = {row.position for row in machine._intake.resumed}
        assert not unread & set(machine.units)
        kept = sorted([*machine.units, *unread])
        assert machine.floor == (kept[0] if kept else machine.head)
        assert machine.floor <= machine.reading, "history is let go that is read again"
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
        machine = self.machine
        given = sum(row.given for row in machine._intake.resumed)
        assert given == machine._intake.resumed_given
        assert len(machine.units) - machine.parked + given <= self.settings.max_ack_pending
        assert machine.parked <= self.settings.max_parked
        for one in machine.consumers.listed():
            assert len(one.pending) <= self.settings.max_consumer_pending
        for size in (len(machine._ready), len(machine._timers)):
            assert size <= 2 * len(machine.units) + 100

    @invariant()
    def keys_are_in_order(self):
        """2, 6: un-acked deliveries of a key are at one consumer, none is behind one that is not delivered; barriers hold."""
        if self.settings.ordering == "none":
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
        assert self.machine.floor >= self.floor
        self.floor = self.machine.floor

    @invariant()
    def nothing_waits_for_ever(self):
        """The first that is not done can always be had by somebody, now or when its time comes."""
        if not self.machine.units or self.machine.paused:
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

"""The core of a group beside a model: random consumers, and clocks that are put forth and back."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from publishers import Position
from publishers.groups.errors import ConsumerFenced
from publishers.groups.state import DeliveryState
from tests.harness.scale import scaled
from tests.publishers.groups.group_model import GroupModel

LANES = [("order", "1"), ("order", "2"), ("order", "3"), ("item", "1"), ("order", None), ("item", None), None]
NAMES = st.sampled_from("abc")
BUSTLE = (
    *("work", "work", "take", "take", "take", "ack", "ack", "upto", "nack", "nack", "nack", "put", "term"),
    *(
        "busy",
        "busy",
        "claim",
        "claim",
        "wait",
        "wait",
        "back",
        "begin_write",
        "end_write",
        "write",
        "restart",
    ),
)


class Groups(GroupModel):
    """What consumers, clocks, the journal and retention may do, each step checked."""

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
            self.given_to(consumer, most)

    @rule(limit=st.integers(1, 9))
    def feed(self, limit):
        machine = self.machine
        limit = min(limit, machine.room)
        coming = [one for one in self.log if one[0] >= machine.reading]
        if limit:
            known = set(machine.units)
            page, rest = coming[:limit], coming[limit:]
            machine.feed([(*one, None, 0) for one in page], rest[0][0] if rest else Position(self.version))
            for place, unit in machine.units.items():
                if place not in known:
                    assert place not in self.sure
                    assert unit.count == self.stored_counts.get(place, 0)

    @rule(name=NAMES)
    def join(self, name):
        self.generation += 1
        self.handles.append(self.machine.join(name, self.generation))
        self.handles = self.handles[-6:]

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), most=st.integers(1, 9), history=st.booleans())
    def take(self, chosen, most, history):
        self.given_to(self.handles[chosen % len(self.handles)], most, history=history)

    def given_to(self, consumer, most, *, history=False):
        """What a consumer takes is what it may have, and if it takes less than it asked for there is nothing else that it may have."""
        machine, now = self.machine, self.clock.monotonic()
        live, holder = self.live(consumer), (consumer.name, consumer.generation)
        had = {place for place, unit in consumer.pending.items() if unit.holder == holder}
        counts = {place: unit.count for place, unit in machine.units.items()}
        old = set(consumer.pending)
        try:
            units = machine.take(consumer, most, history=history)
        except ConsumerFenced:
            assert not live
            return []
        assert live
        assert len(units) <= most
        fresh = [unit for unit in units if unit.position not in old]
        assert [unit.position for unit in fresh if unit.count > 1] == sorted(
            unit.position for unit in fresh if unit.count > 1
        )
        for unit in units:
            place = unit.position
            assert place not in self.done | self.sure | had
            assert now >= self.delayed.pop(place, now)
            assert unit.count == counts[place] + (place not in old)
            assert unit.count <= (self.settings.max_deliver or unit.count)
            self.deadlines[place] = now + 30.0
        used = len(machine.units) - machine.parked + machine._intake.resumed_given
        room = used < self.settings.max_ack_pending
        if (
            not machine.paused
            and len(units) < most
            and len(consumer.pending) < self.settings.max_consumer_pending
        ):
            for place, unit in machine.units.items():
                new = unit.state is DeliveryState.PARKED
                if (new and room) or (unit.state is DeliveryState.DUE and unit.until <= now):
                    assert self.waits(place, holder), (place, "could be given")
        return units

    @precondition(lambda self: self.handles)
    @rule(
        chosen=st.integers(0, 99),
        of=st.integers(0, 99),
        what=st.sampled_from(["ack", "ack", "upto", "nack", "nack", "put", "term", "busy"]),
    )
    def say(self, chosen, of, what):
        self.said(self.handles[chosen % len(self.handles)], of, what)

    @rule(
        steps=st.lists(
            st.tuples(st.sampled_from(BUSTLE), st.integers(0, 99), st.integers(0, 99)),
            min_size=5,
            max_size=25,
        )
    )
    def bustle(self, steps):
        """Much at once, each step checked as by itself."""
        for what, chosen, of in steps:
            if what == "work":
                self.work([LANES[(chosen + at * of) % 3] for at in range(4)], ["ab"[of % 2]], 1 + of % 5)
            elif what == "wait":
                self.wait([1, 10, 20, 31][of % 4])
            elif what == "back":
                self.step_back(-1 - of)
            elif what in ("write", "begin_write", "end_write"):
                getattr(self, what)()
            elif what == "restart":
                self.restart()
                self.feed(1 + of % 4)
            elif what == "take":
                self.given_to(self.handle(chosen), 1 + of % 5, history=of % 7 == 0)
            elif what == "claim":
                self.claimed(self.handle(chosen), of, 5.0 * (of % 2), only=of % 5 == 0)
            else:
                self.said(self.handle(chosen), of, what)
            self.keys_are_in_order()
            self.bounds_hold()

    def handle(self, chosen):
        """A consumer, mostly one that counts."""
        live = self.machine.consumers.listed()
        if chosen % 6 == 0 and self.handles:
            return self.handles[chosen % len(self.handles)]
        if not live:
            self.join("abc"[chosen % 3])
            return self.handles[-1]
        return live[chosen % len(live)]

    def said(self, consumer, of, what):
        places = sorted(self.units())
        if not places:
            return
        busy = [one for one in self.machine.consumers.listed() if one.pending]
        if of % 8 and busy:
            consumer = busy[of % len(busy)]
        mine = sorted(consumer.pending)
        elsewhere = sorted(place for one in busy if one is not consumer for place in one.pending)
        place = mine[of % len(mine)] if mine and of % 4 else places[of % len(places)]
        if elsewhere and of % 9 == 0:
            place = elsewhere[of % len(elsewhere)]
        unit = self.machine.units.get(place)
        before = {one.position: (one.state, one.count, one.holder) for one in self.machine.units.values()}
        state, _, had = before.get(place, (None, 0, None))
        given = state in (DeliveryState.PENDING, DeliveryState.DUE)
        own = not given or (had is not None and had.consumer == consumer.name)
        try:
            own = self.spoken(consumer, place, what, of) or own
            assert own, (place, "is another one's")
            self.done |= {
                one
                for one, (was, _, _) in before.items()
                if one not in self.machine.units and was is not DeliveryState.PARKED
            }
        except ConsumerFenced:
            after = {one.position: (one.state, one.count, one.holder) for one in self.machine.units.values()}
            assert before == after
            assert (
                not self.live(consumer)
                or unit is None
                or unit.holder is None
                or unit.holder.consumer != consumer.name
            )

    def spoken(self, consumer, place, what, of):
        """Says something of a delivery; answers whether it is of all that a consumer has, so that it matters not whose it is."""
        unit = self.machine.units.get(place)
        before = set(self.machine.units)
        if what == "ack":
            count = self.machine.ack(consumer, [place, place])
            assert count == (unit is not None and unit.state is DeliveryState.ACKED)
            assert self.machine.ack(consumer, [place]) == 0
        elif what == "upto":
            holder = (consumer.name, consumer.generation)
            given = {one for one, unit in self.machine.units.items() if unit.holder == holder}
            mine = {one for one in given & {*consumer.pending, *self.late()} if one <= place}
            assert self.machine.ack_upto(consumer, place) == len(mine)
            assert before - self.machine.units.keys() == mine
        elif what == "nack":
            delay = of % 3 * 10.0
            if self.machine.nack(consumer, place, delay=delay):
                self.delayed[place] = self.clock.monotonic() + delay
        elif what == "put":
            had = unit.count if unit else 0
            if self.machine.nack(consumer, place, count=False):
                assert unit.count == had - 1
                assert unit.state is DeliveryState.DUE
        elif what == "busy":
            if self.machine.in_progress(consumer, place):
                self.deadlines[place] = self.clock.monotonic() + 30.0
        else:
            self.machine.term(consumer, place, "bad")
        return what == "upto"

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), idle=st.sampled_from([0.0, 5.0]), only=st.booleans())
    def claim(self, chosen, idle, only):
        self.claimed(self.handles[chosen % len(self.handles)], 0, idle, only=only)

    def claimed(self, consumer, of, idle, *, only):
        now = self.clock.monotonic()
        idles = {place: now - unit.last for place, unit in self.machine.units.items()}
        asked = sorted(self.machine.units)[of % 4 :: 1 + of % 3]
        counts = {place: unit.count for place, unit in self.machine.units.items()}
        firsts = {place: unit.first_us for place, unit in self.machine.units.items()}
        try:
            moved = self.machine.claim(consumer, asked, idle, only_ids=only)
        except ConsumerFenced:
            assert not self.live(consumer)
            return
        for unit in moved:
            self.deadlines[unit.position] = now + 30.0
            assert unit.position in asked
            assert idles[unit.position] >= idle
            assert unit.count <= (self.settings.max_deliver or unit.count)
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
        units = self.given_to(consumer, most, history=True)
        again = [unit.position for unit in units if unit.position in counts]
        assert again == [place for place in had if place in again]
        assert all(unit.count == counts[unit.position] for unit in units if unit.position in counts)
        assert len(again) == min(most, len(had))

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99))
    def leave(self, chosen):
        self.machine.remove(self.handles.pop(chosen % len(self.handles)))

    @rule(idle=st.sampled_from([0.0, 5.0]))
    def release(self, idle):
        """What was delivered so long ago is due at once, with what follows it in its lines, and nothing else; counts stay."""
        machine, now = self.machine, self.clock.monotonic()
        pending = {one.position: one for one in machine.units.values() if one.state is DeliveryState.PENDING}
        counts = {place: unit.count for place, unit in pending.items()}
        idles = {place for place, unit in pending.items() if now - unit.last >= idle}
        assert machine.release(idle) == len(idles)
        left = {place for place, unit in pending.items() if unit.state is DeliveryState.PENDING}
        assert not left & idles
        lanes = self.units()
        for place in pending.keys() - left - idles:
            shared = [one for one in idles if one < place and lanes[one] & lanes[place] - {None}]
            assert shared or self.settings.ack == "transaction", (place, "was not idle")
        for place in pending.keys() - left:
            assert (pending[place].state, pending[place].count) == (DeliveryState.DUE, counts[place])

    @rule(seconds=st.sampled_from([1, 10, 31, 700]))
    def wait(self, seconds):
        """What times out is what nothing was said of for 30 s, and what follows it in its lines; and nothing else does."""
        self.clock.now += seconds * 1_000_000
        now, machine = self.clock.monotonic(), self.machine
        pending = {place for place, unit in machine.units.items() if unit.state is DeliveryState.PENDING}
        late = {place for place in pending if self.deadlines[place] <= now}
        consumers = len(machine.consumers)
        machine.tick()
        left = {place for place in pending if machine.units[place].state is DeliveryState.PENDING}
        assert not left & late
        if len(machine.consumers) == consumers:  # else what the absent ones had is due too
            lanes = self.units()
            for place in pending - left - late:
                shared = [one for one in late if one < place and lanes[one] & lanes[place] - {None}]
                assert shared or self.settings.ack == "transaction", (place, "has not timed out")

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
            self.done.add(place)

    @rule()
    def write(self):
        self.end_write()
        self.told.write(self.machine)
        self.sure = set(self.units_done())

    @rule()
    def begin_write(self):
        self.end_write()
        self.writing = self.machine.news(), set(self.units_done())

    @rule()
    def end_write(self):
        """Meanwhile more may have happened."""
        if self.writing is not None:
            news, self.sure = self.writing
            self.writing = None
            self.told.take(self.machine, news)

    @rule()
    def resume(self):
        self.machine.resume()

    @rule()
    def restart(self):
        """With what the journal had last; what was being written may be lost."""
        self.writing = None
        self.delayed, self.deadlines, self.done = {}, {}, set(self.sure)
        rows = sorted(self.told.opens.values(), key=lambda row: row.position)
        old = self.machine
        self.machine = self.made(self.told.head, rows)
        self.stored_counts = {row.position: row.count for row in rows}
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
                self.end_write()
                open_before = {one for one in self.machine.units if one < oldest}
                lost = self.machine.prune(oldest, oldest)
                assert open_before <= set(lost)
                self.log = [one for one in self.log if one[0] >= oldest]
                self.told.write(self.machine)
                self.sure = set(self.units_done())

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
TestGroups.settings = settings(max_examples=scaled(60), stateful_step_count=30, deadline=None)

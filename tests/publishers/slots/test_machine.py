"""Random programs of owners and consumers beside a model, with crashes between any two writes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock_cdc.errors import Fenced, NoSuchSlot, SlotBusy, SlotExists
from penstock_cdc.types import HoldState, SlotState
from publishers import Position
from tests.harness.scale import scaled
from tests.publishers.slots.owner import Owner, gave
from tests.publishers.wal.logs import commit
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

NAMES = st.sampled_from("abc")


class Known:
    """What must be so of a slot.

    Attributes:
        sure: The last place that was acknowledged durably.
        latest: The last one that was acknowledged.
        generation: The last one that was given out.
        maybe: Places of a move of which nobody knows whether it came about.
    """

    def __init__(self, place, generation=0):
        self.sure = self.latest = place
        self.generation = generation
        self.maybe = []


class Life(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.system = SimulatedFileSystem(seed)
        self.known: dict[str, Known] = {}
        self.doubtful: dict[str, Known] = {}  # perhaps made, or perhaps dropped
        self.handles = []  # every opening there was in this life, with the name of its slot
        self.owner = Owner(self.system)

    # What may end in a crash.

    def attempt(self, action, doubt=None):
        """Does something; a power cut on the way is followed by a restart. Answers whether it was done."""
        try:
            self.result = action()
        except PowerCut:
            if doubt is not None:
                doubt()
            self.system.power_cut()
            self.reopen(cut=True)
            return False
        return True

    def reopen(self, *, cut):
        self.handles = []
        self.system.faults.clear()
        self.owner = Owner(self.system)
        found = {one.name: one for one in self.owner.slots.statistics().listed}
        for name, doubtful in self.doubtful.items():
            if name in found:
                self.known.setdefault(name, doubtful)
            else:
                self.known.pop(name, None)
        self.doubtful = {}
        assert set(found) == set(self.known)
        for name, known in self.known.items():
            told = found[name]
            assert told.state is SlotState.FREE, told
            assert known.sure <= told.position <= known.latest or told.position in known.maybe, (
                told,
                vars(known),
            )
            assert told.generation >= known.generation
            known.generation = told.generation
            known.latest = told.position
            known.maybe = []
            if cut or told.position < known.sure:  # all that is there is durable; or it was moved back
                known.sure = told.position

    @rule(after=st.integers(1, 12))
    def arm(self, after):
        self.system.faults.clear()
        self.system.faults[self.system.operations + after] = "crash"

    @rule()
    def die(self):
        """The process alone: the page cache survives it."""
        self.system.kill()
        self.reopen(cut=False)

    @rule()
    def restart(self):
        if self.attempt(self.owner.close):
            for known in self.known.values():
                known.sure = known.latest
            self.reopen(cut=False)

    # What goes on.

    @rule(count=st.integers(1, 4))
    def commit(self, count):
        for _ in range(count):
            if not self.attempt(lambda: commit(self.owner.wal, b"body")):
                return

    @rule()
    def grow(self):
        """Segments enough for retention."""
        for _ in range(6):
            if not self.attempt(lambda: commit(self.owner.wal, b"x" * 30_000)):
                return

    @rule()
    def settle(self):
        if self.attempt(self.owner.settle):
            for told in self.owner.slots.statistics().listed:
                if not told.unsynced:
                    self.known[told.name].sure = self.known[told.name].latest

    @rule(name=NAMES, start=st.sampled_from(["earliest", "latest"]))
    def create(self, name, start):
        log = self.owner.log
        place = log.oldest if start == "earliest" else log.head

        def doubt():
            if name not in self.known:
                self.doubtful[name] = Known(place)

        try:
            if self.attempt(lambda: self.owner.slots.create(name, since=start), doubt):
                assert name not in self.known
                self.known[name] = Known(place)
        except SlotExists:
            assert name in self.known

    @rule(name=NAMES)
    def drop(self, name):
        def doubt():
            self.doubtful[name] = self.known[name]

        try:
            if self.attempt(lambda: self.owner.slots.drop(name), doubt):
                del self.known[name]
        except NoSuchSlot:
            assert name not in self.known
        except SlotBusy:
            assert self.serving(name) is not None

    def serving(self, name):
        """The opening of a slot that counts."""
        return next((one for one in reversed(self.handles) if one[1] == name and one[2]), None)

    @rule(name=NAMES, take_over=st.booleans())
    def open(self, name, take_over):
        try:
            if self.attempt(lambda: self.owner.slots.open(name, take_over=take_over)):
                slot, known = self.result, self.known[name]
                assert slot.generation > known.generation
                known.generation = slot.generation
                assert known.sure <= slot.position <= known.latest
                for one in self.handles:
                    one[2] = one[2] and one[1] != name
                self.handles.append([slot, name, True])
        except NoSuchSlot:
            assert name not in self.known
        except SlotBusy:
            assert not take_over
            assert self.serving(name) is not None

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), ahead=st.integers(0, 5), durable=st.booleans())
    def ack(self, chosen, ahead, durable):
        slot, name, serves = self.handles[chosen % len(self.handles)]
        place = Position(min(slot.position.version + ahead, self.owner.log.head.version))
        gave(slot, place)
        known = self.known.get(name)

        def doubt():
            known.latest = max(known.latest, place)

        try:
            if self.attempt(lambda: slot.ack(place, durable=durable), doubt):
                assert serves
                known.latest = max(known.latest, place)
                if durable:
                    known.sure = known.latest
        except Fenced:
            assert not serves

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99), back=st.integers(0, 20))
    def seek(self, chosen, back):
        slot, name, serves = self.handles[chosen % len(self.handles)]
        log = self.owner.log
        place = max(Position(max(log.head.version - back, 1)), log.oldest)
        known = self.known.get(name)

        def doubt():
            known.maybe.append(place)

        try:
            if self.attempt(lambda: slot.seek(place), doubt):
                assert serves
                known.sure = known.latest = place
                assert slot.generation > known.generation
                known.generation = slot.generation
        except Fenced:
            assert not serves

    @precondition(lambda self: self.handles)
    @rule(chosen=st.integers(0, 99))
    def close(self, chosen):
        one = self.handles[chosen % len(self.handles)]
        slot, name, serves = one
        if self.attempt(slot.close) and serves:
            one[2] = False
            known = self.known[name]
            known.sure = known.latest

    @rule(name=NAMES)
    def pause(self, name):
        try:
            paused = self.owner.slots.info(name).paused
            self.attempt(lambda: self.owner.slots.set_paused(name, paused=not paused))
        except NoSuchSlot:
            assert name not in self.known

    @invariant()
    def nothing_that_a_slot_needs_is_gone(self):
        if not hasattr(self, "owner"):
            return
        for known in self.known.values():
            assert known.sure >= self.owner.log.oldest
        for told in self.owner.slots.statistics().listed:
            assert told.history in (HoldState.RESERVED, HoldState.EXTENDED)
            assert told.position == self.known[told.name].latest


TestLife = Life.TestCase
TestLife.__doc__ = """T1, T10, F85, F126, F74: a place acknowledged durably is there after any crash, and so is what lies behind it."""
TestLife.settings = settings(max_examples=scaled(40), stateful_step_count=50)

"""Slots and groups: all that consumers, operators and housekeeping do at once."""

import contextlib
from functools import partial

import pytest

import flow
from penstock_cdc.errors import AckAhead, Fenced, LogClosed, SlotBusy
from penstock_cdc.types import SlotState
from publishers import ChangeLog, Criterion, Position
from publishers.groups.errors import ConsumerFenced, NoSuchGroup
from tests.harness.constants import set_bounds
from tests.harness.inside import housekeeping_of
from tests.harness.scale import scaled
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import QUICK, Probe, fill, order

ORDERS = Criterion(entity_types={"order"})
SLOT_LINES = ("slots/book.py", "slots/slots.py", "slots/slot.py", "slots/progress.py")
GROUP_LINES = (
    "groups/book.py",
    "groups/member.py",
    "groups/served_group.py",
    "groups/subscription.py",
)


class Case:
    """A log with what consumers have durably acknowledged."""

    def __init__(self, run: Scheduler) -> None:
        self.run = run
        self.disk = Disk()
        self.log = self.opened()
        self.least: dict[str, Position] = {}
        self.most: dict[str, Position] = {}

    def opened(self, disk: Disk | None = None) -> ChangeLog:
        set_bounds(ack_every=2)
        return ChangeLog.open("/log", filesystem=disk or self.disk, clock=Time(), **QUICK, ack_sync=0.01)

    def commits(self) -> None:
        fill(self.log, 2)

    def keeps_house(self) -> None:
        for _ in range(2):
            housekeeping_of(self.log)._step()

    def looks(self) -> None:
        self.log.statistics()

    def closes(self) -> None:
        self.log.close()


class Acknowledging(Probe):
    """A subscriber that acknowledges what it gets: each second change durably."""

    def __init__(self, case: "SlotCase", slot: object) -> None:
        super().__init__(first=100)
        self.case, self.slot = case, slot

    def take(self, change: object) -> None:
        super().take(change)
        # Fenced by the one that has taken over; or moved since the change was given.
        with contextlib.suppress(Fenced, LogClosed, AckAhead):
            self.case.acknowledge(self.slot, change, durable=len(self.changes) % 2 == 0)


class SlotCase(Case):
    """Two slots, each open, and two consumers that want each."""

    def __init__(self, run: Scheduler) -> None:
        super().__init__(run)
        self.names = ["one", "two"]
        for name in self.names:
            self.log.slots.create(name, ORDERS, since="earliest")
        fill(self.log, 3)
        self.slots = [self.log.slots.open(name) for name in self.names]
        self.moved: set[str] = set()

    def acknowledge(self, slot: object, change: object, *, durable: bool) -> None:
        name = slot.name
        slot.ack(change, durable=durable)
        after = Position(change.version + 1)
        if durable and name not in self.moved:
            self.least[name] = max(self.least.get(name, Position(0)), after)

    def serves_one(self) -> None:
        self.serve(self.slots[0])

    def serves_two(self) -> None:
        self.serve(self.slots[1])

    def serve(self, slot: object) -> None:
        slot.changes().subscribe(Acknowledging(self, slot), executor=flow.INLINE)

    def acknowledges(self) -> None:
        for _ in range(3):
            place = Position(self.slots[0].delivered.version)
            with contextlib.suppress(AckAhead):
                self.slots[0].ack(place, durable=True)
                self.least["one"] = max(self.least.get("one", Position(0)), place)

    def takes_over(self) -> None:
        with self.log.slots.open("one", take_over=True) as slot:
            self.serve(slot)
            assert slot.generation > self.slots[0].generation

    def wants(self) -> None:
        with contextlib.suppress(SlotBusy):
            self.serve(self.log.slots.open("two"))

    def pauses(self) -> None:
        self.log.slots.pause("one")
        self.log.slots.resume("one")

    def seeks(self) -> None:
        self.moved.add("two")  # what was acknowledged before may be before the new place
        with contextlib.suppress(Fenced):
            self.slots[1].seek(2)

    def gives_back(self) -> None:
        self.slots[1].close()

    def creates(self) -> None:
        self.log.slots.create("three", copy_from="one")
        self.log.slots.rename("three", "four")
        self.log.slots.drop("four")

    def check(self) -> None:
        self.check_durable(self.disk.after_power_cut())
        with contextlib.suppress(LogClosed):
            for name in self.names:
                self.log.slots.open(name, take_over=True).close()
                self.log.slots.open(name).close()
        self.log.close()
        self.check_durable(self.disk)

    def check_durable(self, disk: Disk) -> None:
        with self.opened(disk) as log:
            assert sorted(log.slots) in (
                self.names,
                sorted([*self.names, "three"]),
                sorted([*self.names, "four"]),
            )
            for name, place in self.least.items():
                if name not in self.moved:
                    assert log.slots.info(name).position >= place, name


class GroupCase(Case):
    """A group with two consumers."""

    def __init__(self, run: Scheduler) -> None:
        super().__init__(run)
        self.group = self.log.groups.create("stock", ORDERS, since="earliest", ack_wait=1.0)
        fill(self.log, 4)
        self.members = [self.group.join(name) for name in "ab"]
        self.acked: list[Position] = []
        self.reset = False

    def reads(self) -> None:
        for _ in range(2):
            for delivery in self.members[0].read(2, wait=0.001):
                self.members[0].ack(delivery, durable=True)
                self.acked.append(delivery.position)

    def waits(self) -> None:
        """Reads until there is something: a wait that a commit, a refusal or a leaving consumer ends."""
        found = self.members[1].read(1, wait=0.2)
        for delivery in found:
            self.members[1].nack(delivery, 0.0)
        for delivery in self.members[1].read(10, wait=0.2):
            self.members[1].ack(delivery)

    def subscribes(self) -> None:
        member = self.group.join("c")

        class Taking(Probe):
            def take(probe, delivery: object) -> None:  # noqa: N805 - the method of another class uses self
                with contextlib.suppress(ConsumerFenced, NoSuchGroup, LogClosed):
                    member.ack(delivery, durable=True)
                    self.acked.append(delivery.position)

        member.deliveries().subscribe(Taking(first=2, each=1), executor=flow.INLINE)
        member.leave()

    def takes_over(self) -> None:
        other = self.group.join("a")
        for delivery in other.read(10, history=True, wait=0):
            other.in_progress(delivery)
            other.ack(delivery)
        other.leave()

    def claims(self) -> None:
        member = self.group.join("d")
        for delivery in member.claim(0.0).deliveries:
            member.ack(delivery)
        member.leave()

    def leaves(self) -> None:
        found = self.members[0].read(1, wait=0)
        self.members[0].give_back(found)
        self.members[0].leave()

    def check(self) -> None:
        """What was durably acknowledged never comes again."""
        self.check_durable(self.disk.after_power_cut())
        self.log.close()
        self.check_durable(self.disk)

    def check_durable(self, disk: Disk) -> None:
        with self.opened(disk) as log:
            member = log.groups.open("stock").join("last")
            found = []
            while batch := member.read(10, wait=5.0):
                found += [delivery.position for delivery in batch]
                member.ack(*batch)
            assert not set(found) & set(self.acked)
            assert len(found) == len(set(found))


SLOTS = [
    SlotCase.commits,
    SlotCase.keeps_house,
    SlotCase.looks,
    SlotCase.serves_one,
    SlotCase.serves_two,
    SlotCase.acknowledges,
    SlotCase.takes_over,
    SlotCase.wants,
    SlotCase.pauses,
    SlotCase.seeks,
    SlotCase.gives_back,
    SlotCase.creates,
]
GROUPS = [
    GroupCase.commits,
    GroupCase.keeps_house,
    GroupCase.looks,
    GroupCase.reads,
    GroupCase.waits,
    GroupCase.subscribes,
    GroupCase.takes_over,
    GroupCase.claims,
    GroupCase.leaves,
]
FENCED = (Fenced, ConsumerFenced)


def consumes(make: type[Case], *kinds: object) -> object:
    closing = Case.closes in kinds

    def scenario(run: Scheduler) -> None:
        case = make(run)

        def act(kind: object) -> object:
            def body() -> None:
                try:
                    kind(case)
                except FENCED:
                    pass  # by the one that has taken over
                except LogClosed:
                    assert closing

            body.__name__ = kind.__name__
            return body

        run.together(*map(act, kinds))
        case.check()

    scenario.__name__ = "+".join([make.__name__, *(kind.__name__ for kind in kinds)])
    return scenario


@pytest.mark.parametrize("ends", [(), (Case.closes,)], ids=["open", "closing"])
def test_no_order_of_consumers_of_slots_loses_a_durable_acknowledgement(ends):
    """F74, F85."""
    explore(consumes(SlotCase, *SLOTS, *ends), preemptions=3, most=scaled(10), walks=scaled(20))
    explore(consumes(SlotCase, *SLOTS, *ends), most=0, walks=scaled(2), files=SLOT_LINES)


def test_a_slot_that_is_closed_while_it_is_moved_is_free():
    """F74: it is in no order served by a consumer that is gone."""

    def scenario(run: Scheduler) -> None:
        case = SlotCase(run)
        run.together(case.seeks, case.gives_back)
        assert case.log.slots.info("two").state is SlotState.FREE
        case.check()

    explore(scenario, preemptions=2, most=scaled(100))


@pytest.mark.parametrize("ends", [(), (Case.closes,)], ids=["open", "closing"])
def test_no_order_of_consumers_of_a_group_repeats_what_is_durably_done(ends):
    """F75, F84, F85."""
    explore(consumes(GroupCase, *GROUPS, *ends), preemptions=3, most=scaled(4), walks=scaled(8))
    explore(consumes(GroupCase, *GROUPS, *ends), most=0, walks=scaled(2), files=GROUP_LINES)


def slot_acknowledges(run: Scheduler) -> None:
    """Two durable acknowledgements of one slot, beside the housekeeping; the power fails as each of them returns."""
    case = SlotCase(run)
    slot = case.slots[0]
    probe = Probe(first=100)
    slot.changes().subscribe(probe, executor=flow.INLINE)
    run.until(lambda: len(probe.changes) == 3, "what is there is delivered")
    kept: list[tuple[Position, Disk]] = []

    def acknowledges(version: int) -> None:
        slot.ack(Position(version), durable=True)
        kept.append((Position(version), case.disk.after_power_cut()))

    run.together(partial(acknowledges, 2), partial(acknowledges, 3), case.keeps_house)
    for place, disk in kept:
        with case.opened(disk) as log:
            assert log.slots.info("one").position >= place
    case.check()


def group_acknowledges(run: Scheduler) -> None:
    """As for the slot, by two consumers of a group."""
    case = GroupCase(run)
    for key in (8, 9):
        case.log.commit([order(key)])
    taken = [delivery for member in case.members for delivery in member.read(1, wait=0.1)]
    assert len(taken) == 2
    kept: list[tuple[Position, Disk]] = []

    def acknowledges(place: int) -> None:
        case.members[place].ack(taken[place], durable=True)
        kept.append((taken[place].position, case.disk.after_power_cut()))

    run.together(partial(acknowledges, 0), partial(acknowledges, 1), case.keeps_house)
    for place, disk in kept:
        case.acked = [place]
        case.check_durable(disk)
    case.log.close()


@pytest.mark.parametrize("scenario", [slot_acknowledges, group_acknowledges])
def test_a_durable_acknowledgement_survives_from_the_moment_at_which_it_returns(scenario):
    """F74, F85: also one that another one was writing meanwhile."""
    explore(scenario, preemptions=2, most=scaled(8), walks=scaled(4))

"""Groups: mistakes in what is delivered to whom, and in what the journal is told; and the state machines that must notice."""

import contextlib
import io

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.mutants.patching import Mutant
from tests.publishers.groups.test_group_crashes import Crashes
from tests.publishers.groups.test_group_machine import Groups

__all__ = ["GROUPING", "GROUPING_OFTEN", "GROUP_MACHINES"]

_GROUPS = "publishers.groups."
_MACHINE = _GROUPS + "machine:GroupMachine."


def _programs(machine: type[RuleBasedStateMachine], number: int, steps: int) -> None:
    few = settings(
        max_examples=50,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=few)


def _core(number: int) -> None:
    """Consumers of a group and its clocks, beside a model."""
    _programs(Groups, number, 30)


def _disk(number: int) -> None:
    """A group on a simulated disk, whose power is cut between any two writes."""
    _programs(Crashes, number, 50)


GROUP_MACHINES = {"groups": _core, "groups-disk": _disk}


def _mutant(name: str, where: str, old: str, new: str, killer: str = "groups") -> Mutant:
    return Mutant(f"group: {name}", where, old, new, (killer,), most=100)


GROUPING = [
    # What is delivered, and to which consumer.
    _mutant(
        "a key is at two consumers",
        _GROUPS + "unit:LanePlan.blocker",
        "before.state is not DeliveryState.PENDING or before.holder != holder",
        "before.state is not DeliveryState.PENDING",
    ),
    _mutant(
        "a later change of a key is given before an earlier one that is due",
        _GROUPS + "unit:LanePlan.blocker",
        "before.state is not DeliveryState.PENDING or before.holder != holder",
        "before.state is DeliveryState.PENDING and before.holder != holder",
    ),
    _mutant(
        "a barrier does not wait for what is before it",
        _GROUPS + "unit:LanePlan._barred",
        "if first is not unit:",
        "if first is None:",
    ),
    _mutant(
        "nothing waits for a barrier",
        _GROUPS + "unit:LanePlan._barred",
        "barrier is not None and barrier.position < unit.position",
        "False",
    ),
    _mutant(
        "what came before a barrier of its type is not known",
        _GROUPS + "unit:LanePlan.add",
        "one for one in self._units.values() if one is not unit and _touches(one, lane[0])",
        "one for one in () if one is not unit and _touches(one, lane[0])",
    ),
    _mutant(
        "the line of a key is lost when a third one comes",
        _GROUPS + "unit:LanePlan.add",
        "if isinstance(found, GroupUnit):",
        "if True:",
    ),
    _mutant(
        "a line is left with the first of it",
        _GROUPS + "unit:LanePlan.remove",
        "if place.line.head is None:",
        "if True:",
    ),
    _mutant(
        "what was refused does not take the later ones of its key back",
        _MACHINE + "_take_back_behind",
        "todo = [], self._plan.behind(unit)",
        "todo = [], []",
    ),
    _mutant(
        "only the next one of its key is taken back with it",
        _MACHINE + "_take_back_behind",
        "todo += self._plan.behind(one)",
        "pass",
    ),
    _mutant("who waits is never woken", _MACHINE + "_wake", "self._ready.push(one)", "pass"),
    _mutant("what was done wakes none", _MACHINE + "_close", "self._wake(unit)", "pass"),
    _mutant(
        "the consumer of a key is not told of its next change",
        _MACHINE + "_wait",
        "consumer.ready.push(unit)",
        "pass",
    ),
    _mutant(
        "what is refused with a delay is forgotten",
        _MACHINE + "_take_back",
        "self._timers.set(unit, until)",
        "pass",
    ),
    _mutant(
        "a delay is not kept",
        _GROUPS + "schedule:ReadyHeap.pop",
        "unit.state is _PARKED or unit.until <= now",
        "True",
    ),
    _mutant(
        "the bound of a group counts pending only",
        _MACHINE + "take",
        "len(self.units) - self.parked >= most_given",
        "self.pending >= most_given",
    ),
    _mutant(
        "a consumer may have one more than its bound",
        _MACHINE + "take",
        "len(pending) < settings.max_consumer_pending",
        "len(pending) <= settings.max_consumer_pending",
    ),
    _mutant(
        "what is at the bound is lost",
        _MACHINE + "take",
        "self._ready.push(unit)\n            break",
        "break",
    ),
    _mutant(
        "redeliveries come after what is new",
        _GROUPS + "schedule:ReadyHeap.push",
        "(unit.state is _PARKED, unit.position)",
        "(unit.state is not _PARKED, unit.position)",
    ),
    _mutant(
        "once more than max_deliver",
        _MACHINE + "take",
        "unit.count >= settings.max_deliver",
        "unit.count > settings.max_deliver",
    ),
    _mutant("a claim ignores max_deliver", _MACHINE + "claim", "often and not only_ids", "False"),
    _mutant(
        "a claim breaks a key", _MACHINE + "claim", "self._plan.blocker(unit, holder) is not None", "False"
    ),
    _mutant("a claim takes what is not idle", _MACHINE + "claim", "now - unit.last < min_idle", "False"),
    _mutant("a claim does not count", _MACHINE + "claim", "count=not only_ids", "count=False"),
    # Who counts.
    _mutant(
        "who has joined again still counts",
        _GROUPS + "consumers:GroupConsumers.check",
        "if current is not consumer:",
        "if current is None:",
    ),
    _mutant(
        "an acknowledgement of what another one has counts",
        _MACHINE + "own",
        "unit.holder is None or unit.holder.consumer != consumer.name",
        "False",
    ),
    _mutant(
        "what a name had is lost when it joins again",
        _GROUPS + "consumers:GroupConsumers.join",
        "consumer.pending, before.pending = before.pending, {}",
        "pass",
    ),
    _mutant("who leaves keeps what it has", _MACHINE + "remove", "self._take_back(unit, now)", "pass"),
    _mutant(
        "history comes twice",
        _MACHINE + "_again",
        "unit.holder != holder and found is None",
        "found is None",
    ),
    _mutant(
        "who was cut off is given nothing again",
        _GROUPS + "machine:GroupMachine.recall",
        "Holder(consumer.name, 0)",
        "unit.holder",
    ),
    _mutant(
        "everything of a group is acknowledged at once",
        _MACHINE + "ack_upto",
        "unit.holder == holder and (unit.state",
        "(unit.state",
    ),
    # Time.
    _mutant(
        "what is delivered never times out",
        _MACHINE + "take",
        "self._timers.set_all(taken[again:], now + settings.ack_wait)",
        "pass",
    ),
    _mutant(
        "renewing does not help",
        _GROUPS + "schedule:GroupTimers._look",
        "if unit.until <= now:",
        "if True:",
    ),
    _mutant(
        "what is renewed never times out",
        _GROUPS + "schedule:GroupTimers._look",
        "self.set(unit, unit.until)",
        "pass",
    ),
    _mutant(
        "time is the wall clock's",
        _MACHINE + "tick",
        "now = self._clock.monotonic()",
        "now = self._clock.now_us() / 1e6",
    ),
    _mutant("a refusal that does not count counts", _MACHINE + "_uncount", "unit.count -= 1", "pass"),
    # What the journal is told.
    _mutant(
        "the head is ahead of what was delivered",
        _GROUPS + "machine:GroupMachine.stored_head",
        "self.head if first is None else max(first, self._intake.read_before)",
        "self.head",
    ),
    _mutant(
        "the head goes back behind what was done before a restart",
        _GROUPS + "machine:GroupMachine.stored_head",
        "max(first, self._intake.read_before)",
        "first",
    ),
    _mutant("what waits for its key is not told", _MACHINE + "take", "changed.add(unit)", "pass"),
    _mutant(
        "a count is told once only",
        _MACHINE + "_give",
        "self._changes.changed.add(unit)",
        "pass",
    ),
    _mutant(
        "what is done meanwhile is open for ever",
        _GROUPS + "record:JournalChanges.stored",
        "self._gone.add(row.position)",
        "pass",
    ),
    _mutant(
        "what was stored as open and is done is not told",
        _GROUPS + "record:JournalChanges.close",
        "if unit.stored:",
        "if False:",
    ),
    _mutant(
        "what has changed meanwhile is not told",
        _GROUPS + "record:JournalChanges.stored",
        "if row_of(unit) == row:",
        "if True:",
    ),
    _mutant(
        "what was done before a restart comes again",
        _GROUPS + "intake:GroupIntake._made",
        "if not self.resumed or self.resumed[0].position != position:",
        "if False:",
    ),
    _mutant(
        "counts are lost by a restart",
        _GROUPS + "intake:GroupIntake._made",
        "unit.count, unit.first_us, unit.state = row.count, row.first_us, DeliveryState.DUE",
        "pass",
    ),
    _mutant(
        "reading goes on behind what was not done",
        _GROUPS + "intake:GroupIntake.__init__",
        "opens[0].position if opens else head",
        "head",
    ),
    _mutant(
        "retention loses in silence",
        _MACHINE + "prune",
        "lost.append(unit.position)",
        "pass",
    ),
    # The disk.
    _mutant(
        "what was acknowledged is durable when it was said",
        _GROUPS + "book:GroupBook._flushed",
        "self._append(_whole_entry(whole) if force else payload, whole)",
        "pass",
        "groups-disk",
    ),
    _mutant(
        "a generation is used before it is durable",
        _GROUPS + "book:GroupBook.raise_generation",
        "self.write()",
        "pass",
        "groups-disk",
    ),
    _mutant(
        "a count is durable after the delivery",
        _GROUPS + "served_group:ServedGroup.deliver",
        "book.flush()  # before the delivery, so that a change that kills its process is counted too",
        "pass",
        "groups-disk",
    ),
    _mutant(
        "the whole of a group is told without what is open",
        _GROUPS + "book:GroupBook._whole",
        "opens=machine.opens()",
        "opens=[]",
        "groups-disk",
    ),
    _mutant(
        "a place is stored for which the log has not vouched",
        _GROUPS + "book:GroupBook._vouch",
        "self._log.vouch(newest)",
        "pass",
        "groups-disk",
    ),
    _mutant(
        "history is let go before the progress is stored",
        _GROUPS + "book:GroupBook._flushed",
        "self._append(_whole_entry(whole) if force else payload, whole)",
        "advance(hold, floor)\n        self._append(_whole_entry(whole) if force else payload, whole)",
        "groups-disk",
    ),
    _mutant(
        "a change is done before its dead letter is written",
        _GROUPS + "served_group:ServedGroup.bury",
        "self.dead.put(unit.position, letter)\n            with self.book.lock:\n                self.book.machine.bury(unit.position)",
        "with self.book.lock:\n                self.book.machine.bury(unit.position)\n            self.dead.put(unit.position, letter)\n            with self.book.lock:",
        "groups-disk",
    ),
]

GROUPING_OFTEN = (
    "a key is at two consumers",
    "who has joined again still counts",
    "the head is ahead of what was delivered",
    "what was acknowledged is durable when it was said",
)
"""Those of every commit."""

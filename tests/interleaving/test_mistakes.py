"""Mistakes where one thread hands something to another, each planted, and noticed in some order of a small scenario."""

from collections.abc import Callable

import pytest

from tests.interleaving import test_consumers, test_deliveries, test_housekeeping, test_leases, test_sinks
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler
from tests.mutants.patching import Mutant

LEASES = "transports.server.leases:ClientLeases."
MISTAKES: list[tuple[Callable[[Scheduler], None], Mutant]] = [
    (
        test_sinks.idle_sink_obeys,
        Mutant(
            "a sink forgets its wake-up just before it waits",
            "transports.sinks.runner:SinkRunner._run",
            "if delay > 0:",
            "self._awake.clear()\n        if delay > 0:",
            (),
        ),
    ),
    (
        test_housekeeping.timer_serves,
        Mutant(
            "a request during a run is taken for one that was served",
            "publishers.log.housekeeping:Job.begin",
            "taken, self.due = self.due, inf",
            "taken = self.due",
            (),
        ),
    ),
    (
        test_housekeeping.timer_begins_anew,
        Mutant(
            "a thread that ends is still counted when the next job comes",
            "publishers.log.housekeeping:LogTimer._next",
            "self._threads -= 1",
            "pass",
            (),
        ),
    ),
    (
        test_deliveries.waiting_list_wakes,
        Mutant(
            "an advance during a slice of the waiting list is forgotten",
            "publishers.fanout.waiting_list:WaitingList.replay",
            "self._advanced or self._watermark.visible > visible",
            "self._advanced",
            (),
        ),
    ),
    (
        test_deliveries.loop_takes,
        Mutant(
            "what is noted at the end of a turn of a loop is not served",
            "publishers.fanout.group:DeliveryGroup._round",
            "elif self._place is not None:",
            "elif False:",
            (),
        ),
    ),
    (
        test_consumers.slot_acknowledges,
        Mutant(
            "a place counts as written that was acknowledged meanwhile",
            "publishers.slots.book:SlotBook._write_places",
            "if kept.place == place and one.lost is (kept.state is SlotState.LOST):",
            "if True:",
            (),
        ),
    ),
    (
        test_consumers.group_acknowledges,
        Mutant(
            "a durable acknowledgement leaves the write to another one that goes on",
            "publishers.groups.book:GroupBook.flush",
            "while not self._flushed(force=force):",
            "while not self._writing.locked() and not self._flushed(force=force):",
            (),
        ),
    ),
    (
        test_leases.makes_room,
        Mutant(
            "a lease that is being taken over makes room for another one",
            LEASES + "_release_one",
            "and key not in self._opening",
            "",
            (),
        ),
    ),
    (
        test_leases.makes_room,
        Mutant(
            "what is being opened takes no room",
            LEASES + "_make_room",
            "len(owners | self._opening)",
            "len(owners)",
            (),
        ),
    ),
    (
        test_leases.leases("open"),
        Mutant(
            "a client that comes back is released as if it were away",
            LEASES + "_attach",
            "lease.timer.cancel()",
            "pass",
            (),
        ),
    ),
    (
        test_leases.comes_back,
        Mutant(
            "a lease is closed while its key is opened anew",
            LEASES + "_close",
            "async with self._turn(lease.key):",
            "if True:",
            (),
        ),
    ),
    (
        test_leases.leases("closing"),
        Mutant(
            "what is opened at the end stays open", LEASES + "_made", "if not self._closed:", "if True:", ()
        ),
    ),
]


@pytest.mark.parametrize(("scenario", "mutant"), MISTAKES, ids=[mutant.name for _, mutant in MISTAKES])
def test_a_mistake_in_a_hand_over_is_noticed(scenario, mutant):
    """Whatever breaks it: a promise, or that all threads wait."""
    with mutant.living(), pytest.raises(AssertionError):
        explore(scenario, preemptions=3, most=300, walks=300)

"""Work that grows with something it has nothing to do with, counted.

Ten kinds of it have been seen in such systems. Each has tests that name it as avoidable work with its row:

=== ================================================================ ====================================================
row what grows needlessly                                            what holds here
=== ================================================================ ====================================================
1   every change is offered to every publisher, and made anew        cost follows matches; a change is made once
2   subscribers that have caught up read the log                     zero reads
3   a selective reader scans again from its last match               each record at most once
4   replay of a large transaction restarts at its beginning          16,000 records for 16,000 changes
5   a task for each subscription and commit                          one wake-up for each loop and commit, none for nothing
6   laggards decode alone, and bodies that nobody wants              frames are shared; a header replay reads no body
7   gauges of a ring rescan the ring, under its lock                 they cost the same however much it holds
8   what is invisible evicts what is visible                         nothing withheld is in a ring
9   unregistering searches; equal changes are kept for each ring     both cost the same however many publishers there are
10  a header is encoded for each subscriber                          once for a chunk and a format
=== ================================================================ ====================================================
"""

import re
import sys
from pathlib import Path

import pytest

import flow
from publishers.fanout import ring as ring_module
from publishers.model.position import Position
from tests.publishers.fanout.test_ring import chunk, entered, ring
from tests.publishers.support import Probe, fill, opened

TESTS = Path(__file__).parent.parent


class Steps:
    """Counts the lines that run in the module of rings, also in comprehensions."""

    def __init__(self):
        self.count = 0
        self.file = ring_module.__file__

    def _trace(self, frame, event, _argument):
        if frame.f_code.co_filename != self.file:
            return None
        if event == "line":
            self.count += 1
        return self._trace

    def of(self, call):
        before, self.count = sys.gettrace(), 0
        sys.settrace(self._trace)
        try:
            call()
        finally:
            sys.settrace(before)
        return self.count


def full(size):
    """A ring of so many chunks, and at each of them a cursor that has yet to take it."""
    one = ring(max_events=size)
    for version in range(1, size + 1):
        entered(one, Position(version, 0))
        assert one.link(chunk(version, 1), version - 1) == []
    assert one.statistics().chunks == one.statistics().live == size
    return one


@pytest.mark.parametrize("size", [4, 64, 2048])
def test_a_full_ring_takes_a_chunk_and_tells_of_it_in_so_many_steps_whatever_it_holds(size):
    """Avoidable work, row 7: E63: linking, evicting and counting take the steps of one chunk, and no more in a ring of 2,048."""
    expected, one, steps = full(4), full(size), Steps()

    def next_chunk(of, version):
        entered(of, Position(version, 0))
        made = chunk(version, 1)
        return steps.of(lambda: of.link(made, version - 1))

    for offset in range(1, 20):
        assert next_chunk(one, size + offset) == next_chunk(expected, 4 + offset)
        assert one.statistics().chunks == size
    told = one.statistics()
    assert (told.events, told.linked_events, told.evicted_events) == (size, size + 19, 19)


@pytest.mark.parametrize("place", [0, 2])
def test_statistics_of_a_ring_look_at_no_chunk(place):
    """Avoidable work, row 7: E63: what holds chunks may not even be gone through; counters are kept as chunks come and go."""
    steps = Steps()
    counts = set()
    for size in (4, 64, 2048):
        one = ring(max_events=10**6)
        entered(one, Position(1 + place, 0))
        for version in range(1, size + 1):
            one.link(chunk(version, 1 + version % 3), version - 1)
        counts.add(steps.of(one.statistics))
        told = one.statistics()
        held = list(one._chunks)
        assert (told.chunks, told.events) == (len(held), sum(each.events for each in held))
        assert told.nbytes == sum(each.weight for each in held)
        assert told.linked_events == sum(1 + version % 3 for version in range(1, size + 1))
    assert len(counts) == 1, counts


def test_a_commit_into_a_full_ring_costs_the_steps_of_its_own_chunk():
    """Avoidable work, row 7: of a whole log, with one who sleeps at the beginning of the ring until he is overtaken."""
    costs = {}
    for ring_events in (8, 4096):
        with opened(ring_events=ring_events) as log:
            sleeper, busy = Probe(), Probe(first=10**9)
            for probe in (sleeper, busy):
                log.changes().subscribe(probe, executor=flow.INLINE)
            fill(log, ring_events // 2)  # two changes each: full
            assert log.statistics().publishers[0].ring.events == ring_events
            overtaking, *others = [Steps().of(lambda log=log: fill(log, 1)) for _ in range(6)]
            assert sleeper.subscription.state.value == "RESYNC"
            costs[ring_events] = (overtaking > 0, max(others))
    small, large = costs.values()
    assert 0 < large[1] <= small[1]


def test_every_row_is_counted_by_a_test_that_names_it():
    """And each of the fifteen defects has a regression test that names it."""
    texts = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    rows = {int(row) for row in re.findall(r"Avoidable work, row (\d+)", texts)}
    assert rows == set(range(1, 11))
    defects = {int(number) for number in re.findall(r"\bD(\d+)\b", texts)}
    assert defects >= set(range(1, 16))

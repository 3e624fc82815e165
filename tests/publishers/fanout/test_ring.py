"""The ring alone: coverage, trimming, eviction, restarts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.fanout.bench import RingCursor
from publishers.fanout.chunk import Chunk
from publishers.fanout.ring import BEHIND, Ring
from publishers.fanout.state import Occurrence
from publishers.model.position import Position
from publishers.mutations.mutation import columns_of, upsert
from tests.harness.scale import scaled


def block(version, rows, total=None):
    return Block(
        columns_of([upsert("order", str(n), {"n": n}) for n in range(rows)]),
        version=version,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=(total or rows) + 1,
        transaction_bytes=1,
        committed_at=version,
    )


def chunk(version, events):
    made = block(version, events)
    return Chunk(version, (Slice(made, range(1, events + 1)),))


def ring(max_events=1000, start=1):
    return Ring(Position(start, 0), max_events=max_events, max_bytes=2**40)


BEGIN = Position(1, 0)


def entered(of, start=BEGIN):
    cursor = RingCursor(start)
    assert of.move(cursor, Occurrence.ENTER)
    return cursor


def positions(taken):
    return [(part.block.version, index) for part in taken for index in part.indices]


def poll(of, cursor, upto, events=1000):
    taken = of.poll(cursor, upto, events, 2**40)
    return taken if taken is BEHIND else positions(taken[0])


def test_a_chunk_above_the_watermark_is_not_taken():
    one = ring()
    cursor = entered(one)
    one.link(chunk(1, 2), 0)
    assert poll(one, cursor, 0) == []
    assert cursor.next == Position(1, 0)
    assert poll(one, cursor, 1) == [(1, 1), (1, 2)]


def test_next_moves_to_the_watermark_although_nothing_matched():
    one = ring()
    cursor = entered(one)
    assert poll(one, cursor, 41) == []
    assert cursor.next == Position(42, 0)


def test_a_poll_for_nothing_moves_over_versions_without_a_match_and_takes_no_change():
    one = ring()
    cursor = entered(one)
    one.link(chunk(5, 2), 0)
    assert poll(one, cursor, 9, events=0) == []
    assert cursor.next == Position(5, 0)
    assert poll(one, cursor, 9) == [(5, 1), (5, 2)]
    assert cursor.next == Position(10, 0)


def test_a_limit_splits_a_chunk_and_the_rest_follows():
    one = ring()
    cursor = entered(one)
    one.link(chunk(1, 5), 0)
    assert poll(one, cursor, 1, events=2) == [(1, 1), (1, 2)]
    assert cursor.next == Position(1, 3)
    assert poll(one, cursor, 1, events=2) == [(1, 3), (1, 4)]
    assert poll(one, cursor, 1, events=2) == [(1, 5)]
    assert cursor.next == Position(2, 0)


def test_what_every_live_cursor_has_taken_leaves_the_ring():
    one = ring()
    fast, slow = entered(one), entered(one)
    one.link(chunk(1, 3), 0)
    poll(one, fast, 1)
    assert one.statistics().events == 3
    poll(one, slow, 1)
    assert one.statistics().events == 0
    assert one.start == Position(2, 0)


def test_a_full_ring_keeps_as_much_as_its_bound_allows():
    """F64: what it has dropped does not count any more."""
    one = ring(max_events=8)
    behind, ahead = entered(one), entered(one)
    for version in (1, 2):
        assert one.link(chunk(version, 4), version - 1) == []
    assert len(poll(one, ahead, 1)) == 4
    assert one.link(chunk(3, 4), 2) == [behind]
    assert (one.statistics().events, one.start) == (8, Position(2, 0))
    assert len(poll(one, ahead, 3)) == 8


def test_trimming_a_full_ring_keeps_what_is_newer():
    """D1: six changes through a ring of four, trimmed to the fifth, leave the fifth and sixth to be read."""
    one = ring(max_events=4)
    reader, other = entered(one), entered(one)
    for version in range(1, 7):
        one.link(chunk(version, 1), version - 1)
        if version == 4:
            assert poll(one, reader, 4) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert poll(one, other, 6) is BEHIND
    assert other.next == Position(1, 0)
    assert poll(one, reader, 6) == [(5, 1), (6, 1)]


def test_eviction_marks_those_who_had_not_taken_the_chunk_and_only_them():
    one = ring(max_events=2)
    slow, fast = entered(one), entered(one)
    one.link(chunk(1, 2), 0)
    poll(one, fast, 1)
    assert one.link(chunk(2, 2), 1) == [slow]
    assert not slow.live
    assert slow.next == Position(1, 0)
    assert fast.live
    assert poll(one, fast, 2) == [(2, 1), (2, 2)]


def test_a_cursor_in_the_middle_of_an_evicted_chunk_resumes_in_its_middle():
    one = ring(max_events=4)
    cursor = entered(one)
    one.link(chunk(1, 4), 0)
    poll(one, cursor, 1, events=3)
    assert one.link(chunk(2, 4), 1) == [cursor]
    assert cursor.next == Position(1, 4)


def test_a_chunk_above_the_bound_restarts_the_ring_behind_it():
    one = ring(max_events=4)
    caught_up, slow = entered(one), entered(one)
    one.link(chunk(1, 1), 0)
    poll(one, caught_up, 1)
    overtaken = one.link(chunk(2, 5), 1)
    assert set(overtaken) == {caught_up, slow}
    assert slow.next == Position(1, 0)
    assert caught_up.next == Position(2, 0)
    assert one.start == Position(3, 0)


def test_an_overtaken_cursor_never_looks_like_one_that_has_caught_up():
    one = ring(max_events=1)
    cursor = entered(one)
    for version in (1, 2):
        one.link(chunk(version, 1), version - 1)
    assert poll(one, cursor, 2) is BEHIND
    assert not one.move(cursor, Occurrence.ENTER)


def test_a_joining_cursor_keeps_the_ring_from_being_trimmed():
    one = ring()
    fast, lagging = entered(one), RingCursor(Position(1, 0))
    one.move(lagging, Occurrence.READ)
    assert one.move(lagging, Occurrence.JOIN, Position(3, 0))
    one.link(chunk(3, 2), 2)
    poll(one, fast, 3)
    assert one.statistics().events == 2
    assert one.move(lagging, Occurrence.ENTER, Position(3, 0))
    assert poll(one, lagging, 3) == [(3, 1), (3, 2)]


def overtaken(of, version):
    """A cursor that the ring has just left behind, which reads on at ``version``."""
    cursor = entered(of)
    of.link(chunk(version - 1, of._max_events), version - 2)
    assert of.link(chunk(version, 1), version - 1) == [cursor]
    return cursor


def test_a_ring_waits_for_a_cursor_that_it_has_overtaken():
    """Though no other cursor needs what it holds."""
    one = ring(max_events=3)
    cursor = overtaken(one, 2)
    one.link(chunk(3, 1), 2)
    assert one.start == Position(2)
    cursor.next = Position(2)  # it has read on
    assert one.move(cursor, Occurrence.ENTER)
    assert poll(one, cursor, 3) == [(2, 1), (3, 1)]
    assert one.statistics().events == 0


def test_a_ring_that_has_turned_over_waits_no_longer():
    one = ring(max_events=3)
    overtaken(one, 2)
    for version in range(3, 6):
        one.link(chunk(version, 1), version - 1)
        assert one.statistics().events == (min(version - 1, 3) if version < 5 else 0)
    assert one.statistics().evicted_events == 3


@pytest.mark.parametrize("event", [Occurrence.END, Occurrence.PAUSE, Occurrence.SEEK])
def test_a_ring_does_not_wait_for_a_cursor_that_does_not_come_back(event):
    one = ring(max_events=3)
    cursor = overtaken(one, 2)
    assert one.statistics().events == 1
    one.move(cursor, event)
    assert one.statistics().events == 0


def test_a_join_is_void_when_the_ring_has_passed_it():
    one = ring(max_events=1)
    lagging = RingCursor(Position(1, 0))
    one.move(lagging, Occurrence.READ)
    assert one.move(lagging, Occurrence.JOIN, Position(1, 0))
    for version in (1, 2):
        assert one.link(chunk(version, 1), version - 1) == []
    assert not one.move(lagging, Occurrence.ENTER, Position(1, 0))
    assert lagging.next == Position(1, 0)


def test_a_cursor_that_waits_reads_on_when_the_log_goes_on():
    one = ring()
    waiting = RingCursor(Position(1, 0))
    one.move(waiting, Occurrence.READ)
    one.move(waiting, Occurrence.PARK)
    assert one.move(waiting, Occurrence.ADVANCE)
    assert waiting.phase.name == "RESYNC"


def test_a_cursor_that_has_ended_does_not_enter_again():
    one = ring()
    cursor = entered(one)
    one.move(cursor, Occurrence.END)
    assert not one.move(cursor, Occurrence.ENTER)
    assert one.statistics().live == 0


def test_a_ring_without_cursors_keeps_nothing():
    one = ring()
    one.link(chunk(1, 3), 0)
    assert one.statistics().events == 0
    assert one.start == Position(2, 0)


@settings(max_examples=scaled(300), deadline=None)
@given(st.data())
def test_a_ring_equals_a_list_for_any_bound_and_any_order_of_polls(data):
    bound = data.draw(st.integers(1, 6), "bound")
    one = ring(max_events=bound)
    cursors = [entered(one) for _ in range(data.draw(st.integers(1, 4), "cursors"))]
    told = [[] for _ in cursors]
    log = []
    for version in range(1, data.draw(st.integers(1, 25), "versions")):
        events = data.draw(st.integers(0, 3), "events")
        if events:
            log += [(version, index) for index in range(1, events + 1)]
            one.link(chunk(version, events), version - 1)
        assert one.statistics().events <= bound
        for number, cursor in enumerate(cursors):
            if data.draw(st.booleans(), "polls"):
                limit = data.draw(st.integers(0, 3), "limit")
                taken = poll(one, cursor, version, events=limit)
                if taken is BEHIND:  # the WAL would serve it: read the list instead, and come back
                    told[number] += [place for place in log if place >= tuple(cursor.next)]
                    cursor.next = Position(version + 1, 0)
                    if not one.move(cursor, Occurrence.ENTER):
                        assert one.start > cursor.next
                else:
                    told[number] += taken
                assert told[number] == log[: len(told[number])]
    for number, cursor in enumerate(cursors):
        taken = poll(one, cursor, 10_000)
        told[number] += [p for p in log if p >= tuple(cursor.next)] if taken is BEHIND else taken
        assert told[number] == log


def test_what_does_not_fit_behind_others_stays_for_the_next_poll():
    one = ring()
    cursor = entered(one)
    for version in (1, 2):
        one.link(chunk(version, 2), version - 1)
    first = chunk(1, 2).nbytes
    found, more, *_ = one.poll(cursor, 2, 1000, first + 1)
    assert (positions(found), more) == ([(1, 1), (1, 2)], True)
    assert cursor.next == Position(2, 0)
    found, more, *_ = one.poll(cursor, 2, 1000, 1)
    assert (positions(found), more) == ([(2, 1)], True)  # at least one, however large it is
    assert cursor.next == Position(2, 2)


def test_a_block_of_which_one_change_matches_counts_as_a_whole():
    """F64, F68: or who wants few of many changes, and stands still, would keep all of them in memory."""
    many = block(1, 1000)
    one = Chunk(1, (Slice(many, (500,)),))
    assert many.weight < one.weight < 2 * many.weight
    assert one.nbytes == many.size(500)
    bounded = Ring(BEGIN, max_events=1000, max_bytes=2 * one.weight)
    cursor = entered(bounded)
    for version in range(1, 3):
        bounded.link(Chunk(version, (Slice(block(version, 1000), (500,)),)), version - 1)
    assert bounded.link(Chunk(3, (Slice(block(3, 1000), (500,)),)), 2) == [cursor]
    assert bounded.statistics().nbytes == 2 * one.weight
    assert cursor.next == BEGIN


def test_what_the_objects_of_a_block_weigh_counts():
    small = block(1, 1)
    assert Chunk(1, (Slice(small, (1,)),)).weight > 10 * small.weight


def test_a_cursor_that_no_log_made_never_says_that_it_has_everything():
    cursor = RingCursor(Position(1, 0))
    assert cursor.more
    assert not cursor.idle
    cursor.recall()


def test_a_poll_in_whole_transactions_leaves_one_that_does_not_fit_behind_others():
    one = ring()
    cursor = entered(one)
    for version, events in ((1, 2), (2, 3), (3, 9)):
        one.link(chunk(version, events), version - 1)
    found, more, *_ = one.poll(cursor, 3, 4, 2**40, whole=True)
    assert (positions(found), more) == ([(1, 1), (1, 2)], True)
    found, more, *_ = one.poll(cursor, 3, 4, 2**40, whole=True)
    assert (positions(found), more) == ([(2, 1), (2, 2), (2, 3)], True)
    found, more, *_ = one.poll(cursor, 3, 4, 2**40, whole=True)
    assert positions(found) == [(3, 1), (3, 2), (3, 3), (3, 4)]  # it alone is above the bounds
    assert cursor.next == Position(3, 5)


def test_what_cursors_take_at_the_same_place_is_found_once():
    """Each of a hundred that lag a little polls by itself; they share what that finds, and what is made of it."""
    of = ring()
    first, second, other = entered(of), entered(of), entered(of)
    for version in range(1, 4):
        of.link(chunk(version, 2), version - 1)
    found = of.poll(first, 3, 3, 2**40)
    assert positions(found.slices) == [(1, 1), (1, 2), (2, 1)]
    of.link(chunk(4, 2), 3)
    assert of.poll(second, 4, 3, 2**40) is found  # what came since lies behind it
    assert first.next == second.next == Position(2, 2)
    assert of.poll(other, 4, 2, 2**40) is not found  # it asks for less
    rest = of.poll(first, 3, 100, 2**40)
    assert positions(rest.slices) == [(2, 2), (3, 1), (3, 2)]
    assert positions(of.poll(second, 4, 100, 2**40).slices) == [(2, 2), (3, 1), (3, 2), (4, 1), (4, 2)]
    assert of.statistics().copied_events == 3 + 3 + 2 + 3 + 5


def test_what_was_polled_is_kept_for_a_few_places_and_goes_with_a_chunk():
    of = ring()
    ahead, behind, last = entered(of), entered(of), entered(of)
    for version in range(1, 21):
        of.link(chunk(version, 1), version - 1)
    found = [of.poll(ahead, 20, 1, 2**40) for _ in range(20)]
    again = [of.poll(behind, 20, 1, 2**40) for _ in range(20)]
    assert [positions(one.slices) for one in again] == [positions(one.slices) for one in found]
    assert again[0] is not found[0]
    assert len(of._polled) == 8
    of.poll(last, 20, 100, 2**40)  # the last to take them: the ring is trimmed
    assert of.statistics().chunks == 0
    assert not of._polled


@given(st.lists(st.sampled_from(["link", "enter", "poll", "leave"]), max_size=12))
def test_a_ring_keeps_nothing_that_no_cursor_has_yet_to_take(steps):
    """E23: whatever cursors came, took and went before; also if there is none at all."""
    one, version, standing = ring(), 0, []
    for step in steps:
        if step == "link":
            version += 1
            one.link(chunk(version, 2), version)
        elif step == "enter":
            cursor = RingCursor(Position(version + 1, 0))
            if one.move(cursor, Occurrence.ENTER):
                standing.append(cursor)
        elif standing and step == "poll":
            poll(one, standing[0], version)
            standing.append(standing.pop(0))
        elif standing:
            one.move(standing.pop(0), Occurrence.END)
        taken = min((cursor.next.version for cursor in standing), default=version + 1)
        assert one.statistics().events == 2 * (version + 1 - taken)

"""Benches of a ring: cursors that have kept up and move as one."""

import pytest

from publishers.fanout.bench import TURN, RingCursor, Round
from publishers.fanout.chunk import DeliveryKind
from publishers.fanout.state import Occurrence
from publishers.model.position import Position
from publishers.views.view import View
from tests.publishers.fanout.test_ring import BEGIN, chunk, entered, poll, ring

KIND = DeliveryKind(View(), True, 99, 2**40, False)


class Lending:
    """One whose drain lends its flag whenever it is asked for, and is that drain itself."""

    demand = 100
    queued = 0

    def __init__(self, kind=KIND):
        self.cursor = RingCursor(BEGIN, owner=self, group="c", kind=kind)
        self.drain = self
        self.lent = False

    def lend(self, events):
        if self.lent or events > self.demand:
            return None
        self.lent = True
        return self

    def busy(self):
        return False

    def release_hold(self, lender):
        assert lender is self.cursor
        assert self.lent
        self.lent = False


def lending(of, count, kind=KIND):
    """Owners of so many cursors at the beginning of a ring."""
    owners = [Lending(kind) for _ in range(count)]
    for owner in owners:
        assert of.move(owner.cursor, Occurrence.ENTER)
    return owners


def took(of, upto, place=0):
    """What one take of a round tells."""
    some = Round(place)
    of.take("c", some, upto)
    return some


def test_from_a_place_that_was_trimmed_nothing_lies_ahead():
    one = ring()
    cursor, late = entered(one), Lending()
    one.link(chunk(1, 1), 0)
    some = Round(0)
    some.place, some.waiting = None, [(0, KIND, [late.cursor], [])]
    poll(one, cursor, 1)
    one.link(chunk(2, 1), 1)
    one.take("c", some, 2)
    assert (some.bench, some.left) == (None, [late.cursor])
    assert not late.lent


def test_of_a_group_those_move_who_stand_where_it_begins_and_the_others_stay():
    one = ring()
    here, behind, within, gone = lending(one, 4)
    for version in (1, 2):
        one.link(chunk(version, 3), version - 1)
    poll(one, behind.cursor, 1)
    poll(one, within.cursor, 2, events=1)
    one.move(gone.cursor, Occurrence.SEEK)
    some = Round(0)
    some.place = None
    some.waiting = [(0, KIND, [owner.cursor for owner in (here, behind, within, gone)], [])]
    one.take("c", some, 2)
    assert (some.ahead.events, list(some.lent)) == (6, [here])
    assert some.left == [behind.cursor, within.cursor, gone.cursor]
    assert [owner.lent for owner in (here, behind, within, gone)] == [True, False, False, False]
    assert poll(one, behind.cursor, 2) == [(2, 1), (2, 2), (2, 3)]
    assert poll(one, within.cursor, 2) == [(1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert one.statistics().chunks == 0
    assert one.statistics().live == 3
    assert one.recall(here.cursor) is False  # its round gives the flag back
    assert here.lent
    some.bench.served(some)
    assert not here.lent
    assert here.cursor.next == Position(3)
    assert poll(one, here.cursor, 2) == []


def test_those_on_a_bench_move_as_one_and_keep_their_place_when_they_leave():
    one = ring()
    first, second = lending(one, 2)
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    bench = some.bench
    bench.served(some)
    one.link(chunk(2, 3), 1)
    assert one.recall(second.cursor) is True
    second.release_hold(second.cursor)
    some = took(one, 2, place=1)
    assert (some.bench, set(some.lent)) == (bench, {first, second})
    assert some.bench.members.keys() == {first.cursor, second.cursor}
    bench.served(some)
    bench.served(some)  # again is harmless
    assert first.lent is second.lent is True
    assert one.recall(first.cursor) is one.recall(second.cursor) is True
    assert one.recall(second.cursor) is False  # once
    assert [owner.cursor.next for owner in (first, second)] == [Position(3)] * 2
    assert one.statistics().live == 2


def test_a_bench_that_is_being_served_is_left_to_its_round():
    one = ring()
    lending(one, 2)
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    one.link(chunk(2, 3), 1)
    assert took(one, 2).bench is None
    some.bench.served(some)
    assert some.again
    later = took(one, 2)
    assert later.bench is some.bench
    some.bench.served(some)  # which is not its round any more
    one.link(chunk(3, 3), 2)
    assert took(one, 3).bench is None
    later.bench.served(later)
    assert later.again


def test_a_bench_takes_who_comes_later_until_it_is_full_and_others_of_its_kind_only():
    one = ring()
    lending(one, TURN - 1)
    one.link(chunk(1, 1), 0)
    some = took(one, 1)
    bench = some.bench
    bench.served(some)
    others = [
        RingCursor(Position(2), owner=Lending(), group="c", kind=kind)
        for kind in (KIND, KIND, KIND._replace(batches=False))
    ]
    for cursor in others:
        cursor.owner.cursor = cursor
        assert one.move(cursor, Occurrence.ENTER)
    one.link(chunk(2, 1), 1)
    some, benches = Round(0), []
    while some.place is not None or some.waiting:
        some.clear()
        one.take("c", some, 2)
        benches.append((some.bench is bench, some.drain_count))
    assert sorted(benches) == [(False, 1), (False, 1), (True, TURN)]
    assert one.statistics().live == TURN + 2


def test_whom_eviction_overtakes_on_a_bench_leaves_the_ring_where_it_has_to_read_on():
    one = ring(4)
    first, second = lending(one, 2)
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    bench = some.bench
    bench.served(some)
    one.link(chunk(2, 3), 1)
    assert set(one.link(chunk(3, 3), 2)) == {first.cursor, second.cursor}
    assert [owner.cursor.live for owner in (first, second)] == [False, False]
    assert [owner.cursor.next for owner in (first, second)] == [Position(2)] * 2
    assert one.recall(first.cursor) is True
    assert one.statistics().live == 0
    assert took(one, 3).bench is None


def test_who_lacks_demand_leaves_its_bench_and_who_stands_where_nothing_fits_too():
    one = ring()
    poor, rich = lending(one, 2)
    poor.demand = 5
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    bench = some.bench
    bench.served(some)
    poor.demand -= 3
    one.link(chunk(2, 3), 1)
    some = took(one, 2)
    assert (some.bench, list(some.lent), some.left) == (bench, [rich], [poor.cursor])
    bench.served(some)
    one.link(chunk(3, 100), 2)
    some = took(one, 3, place=2)
    assert (some.bench, some.left) == (None, [rich.cursor])
    assert poll(one, rich.cursor, 3)


def test_what_cannot_be_taken_at_once_is_left_alone_while_another_round_is_at_it():
    one = ring()
    (reader,) = lending(one, 1)
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    one.link(chunk(2, 100), 1)
    assert took(one, 2, place=1).left == []
    some.bench.served(some)
    assert some.again
    assert took(one, 2, place=1).left == [reader.cursor]


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt."""


def test_who_is_interrupted_when_he_has_his_flag_back_keeps_nobody_elses():
    one = ring()
    readers = lending(one, 3)
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    for reader in readers:
        assert not one.recall(reader.cursor)
    had = []

    def struck(lender):
        if not had:
            had.append(lender)
            raise Interrupt
        readers[1].lent = False

    readers[1].release_hold = struck
    with pytest.raises(Interrupt):
        some.bench.served(some)
    assert not any(reader.lent for reader in readers)


def test_one_that_has_to_wait_although_it_has_demand_leaves_its_bench():
    one = ring()
    first, second = lending(one, 2, KIND._replace(asks=True))
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    some.bench.served(some)
    second.busy = lambda: True
    one.link(chunk(2, 3), 1)
    some = took(one, 2)
    assert (list(some.lent), some.left) == ([first], [second.cursor])


def test_benches_that_stand_together_become_one_as_far_as_there_is_room():
    one = ring()
    lending(one, 3 * TURN)
    one.link(chunk(1, 1), 0)
    first = Round(0, 3 * TURN)
    while first.place is not None or first.waiting:
        first.clear()
        one.take("c", first, 1)
        first.bench.served(first)
        assert first.drain_count == TURN
    one.link(chunk(2, 1), 1)
    later, taken = Round(1, 2 * TURN), []
    while later.place is not None or later.waiting:
        later.clear()
        one.take("c", later, 2)
        later.bench.served(later)
        taken.append(later.drain_count)
        assert all(cursor.bench is later.bench for cursor in later.bench.members)
    assert taken == [2 * TURN, TURN]
    assert one.statistics().live == 3 * TURN
    assert one.statistics().chunks == 0


def test_one_whose_queue_is_not_empty_gets_its_flag_back_and_stays():
    one = ring()
    (reader,) = lending(one, 1)
    reader.queued = 1
    one.link(chunk(1, 3), 0)
    some = took(one, 1)
    assert (some.bench, some.left, reader.lent) == (None, [reader.cursor], True)
    assert one.recall(reader.cursor) is True
    assert poll(one, reader.cursor, 1) == [(1, 1), (1, 2), (1, 3)]

"""One subscriber's place, at its edges."""

from publishers.blocks.block import Block
from publishers.criteria.criteria import Criteria
from publishers.criteria.predicate import Predicate
from publishers.fanout.cursor import Cursor
from publishers.fanout.ring import Ring
from publishers.fanout.watermark import Watermark
from publishers.model.position import Position
from tests.harness.inside import files_of
from tests.publishers.support import fill, opened


def cursor_at(start, visible, until=None):
    ring = Ring(start, max_events=100, max_bytes=2**30)
    return Cursor(
        start,
        ring=ring,
        predicate=Predicate(Criteria.of()),
        watermark=Watermark(visible),
        until=until,
        owner=None,
    )


def blocks(log):
    reader = files_of(log).reader
    location = reader.locate(1)
    while (frame := reader.read(location)) is not None:
        yield Block.of(frame.header, *frame.decoded)
        location = frame.next


def test_one_outside_the_ring_does_not_wait_for_its_lock():
    cursor = cursor_at(1, 5)
    with cursor._ring.lock:
        assert cursor.poll(10, 1000) is None


def test_a_block_that_lies_before_the_next_position_gives_nothing_and_moves_nothing():
    """F30: a place in the log may be that of a frame before the one that is wanted."""
    with opened() as log:
        fill(log, 3, 2)
        first, second, third = blocks(log)
    cursor = cursor_at(Position(2, 1), 3)
    assert cursor.take(first, 100, 2**20) is None
    assert cursor.next == Position(2, 1)
    assert list(cursor.take(second, 100, 2**20).indices) == [1, 2]
    assert cursor.next == Position(3)
    assert list(cursor.take(third, 1, 2**20).indices) == [0]
    assert cursor.next == Position(3, 1)


def test_it_reads_no_further_than_the_watermark_and_its_own_end():
    """F30."""
    assert cursor_at(Position(1), 7).upto == 7
    cursor = cursor_at(Position(1), 7, until=4)
    assert (cursor.upto, cursor.finished) == (4, False)
    cursor.next = Position(5)
    assert cursor.finished

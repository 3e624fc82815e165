"""What one turn reads from the WAL."""

import pytest

from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.errors import LogError
from publishers.fanout.cursor import Cursor
from publishers.fanout.replayer import FrameCache
from publishers.fanout.resync_slice import SliceBounds, read_kept, read_slice
from publishers.fanout.ring import Ring
from publishers.fanout.watermark import Watermark
from publishers.model.position import Position
from tests.harness.constants import set_constant
from tests.harness.inside import files_of
from tests.publishers.support import fill, opened, order


@pytest.fixture
def log():
    with opened() as log:
        fill(log, 3, 2)
        yield log


def reading(log, start, *wishes):
    cursor = Cursor(
        start,
        ring=Ring(start, max_events=1, max_bytes=1),
        predicate=Predicate(Criteria.of(*wishes)),
        watermark=Watermark(3),
        until=None,
        owner=None,
    )
    return cursor, FrameCache(files_of(log).reader, 1 << 20)


def bounds(upto=3, events=100, whole=False):
    return SliceBounds(upto, events, 1 << 20, 1 << 20, whole)


def told(taken):
    return [(piece.block.version, index) for piece in taken for index in piece.indices]


def test_a_log_that_ends_before_what_was_published_is_an_error_and_what_was_read_counts(log):
    """F37: never taken for a place where nothing matches."""
    cursor, frames = reading(log, Position(2, 2))
    taken = []
    with pytest.raises(LogError, match="although version 5 was published"):
        read_slice(cursor, frames, bounds(upto=5), taken)
    assert told(taken) == [(2, 2), (3, 0), (3, 1), (3, 2)]
    assert cursor.next == Position(4)


def test_a_position_behind_the_last_change_of_the_newest_version_reads_nothing(log):
    """F30: it is a place that a client may have kept."""
    cursor, frames = reading(log, Position(3, 9))
    taken = []
    read_slice(cursor, frames, bounds(), taken)
    assert (taken, cursor.next) == ([], Position(4))


def test_what_is_in_memory_is_taken_without_the_disk_and_nothing_else(log):
    """F30."""
    cursor, frames = reading(log, Position(2))
    assert read_kept(cursor, frames, 3, 100, 1 << 20) == []
    taken = []
    read_slice(cursor, frames, bounds(events=1), taken)
    assert told(taken) == [(2, 0)]
    reads = frames.reads
    assert told(read_kept(cursor, frames, 3, 100, 1 << 20)) == [(2, 1), (2, 2)]
    assert read_kept(cursor, frames, 3, 100, 1 << 20) == []
    assert (frames.reads, cursor.next) == (reads, Position(3))
    assert read_kept(cursor, frames, 2, 100, 1 << 20) == []


def test_what_is_at_hand_is_looked_at_in_bounded_steps(monkeypatch):
    """A subscriber of few changes must not scan all that is in memory on an executor that others wait for."""
    set_constant(monkeypatch, "publishers.fanout.resync_slice._AT_HAND", 4)
    with opened() as log:
        fill(log, 6, 1)
        cursor, frames = reading(log, Position(1))
        cursor.location = frames.locate(1, 0)
        read_slice(*reading_all(cursor, frames))
        cursor.next, cursor.location = Position(1), frames.locate(1, 0)
        assert told(read_kept(cursor, frames, 6, 100, 1 << 20)) == [
            (v, i) for v in range(1, 5) for i in (0, 1)
        ]
        assert cursor.next == Position(5)


def reading_all(cursor, frames):
    return cursor, frames, bounds(upto=6), []


@pytest.mark.parametrize("wish", [Criterion(), Criterion(keys={"1"}), Criterion(entity_types={"none"})])
@pytest.mark.parametrize("kept", [False, True], ids=["from the disk", "from memory"])
@pytest.mark.parametrize("events", [1, 2, 3, 100])
@pytest.mark.parametrize("weight", [1, 1 << 20])
def test_pieces_of_any_size_give_each_change_once_and_begin_where_the_one_before_ended(
    wish, kept, events, weight
):
    """F30, E33: also where nothing matches, so that no frame is read twice."""
    with opened() as log:
        for version in range(4):
            log.commit([order(number) for number in range(version, version + 3)])
        upto = log.head.version - 1
        whole = [tuple(one.position) for one in log.history(wish, "earliest").changes]
        cursor, frames = reading(log, Position(1), wish)
        cursor.location = frames.locate(1, 0)
        if kept:
            read_slice(cursor, frames, bounds(upto), [])
            cursor.next, cursor.location = Position(1), frames.locate(1, 0)
        found = []
        while cursor.next.version <= upto:
            before = cursor.next
            if kept:
                found += told(read_kept(cursor, frames, upto, events, 1 << 20))
            else:
                taken = []
                read_slice(cursor, frames, SliceBounds(upto, events, 1 << 20, weight, False), taken)
                found += told(taken)
            assert cursor.next > before
            assert cursor.location == frames.locate(*cursor.next)
        assert found == whole

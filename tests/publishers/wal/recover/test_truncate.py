"""Cutting the end of a log off where the log itself turns out to be damaged."""

import pytest

from publishers.errors import LogFailed, WalCorrupted
from publishers.wal.files.head import CUT, HEAD_NAME, Head, read_head
from publishers.wal.files.segment import segment_name
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

WIDE = options(segment_bytes=1 << 20)


def withholding(system, settings=WIDE):
    """Versions that are shown, more than what lies between two entries of an index, and some that are not."""
    log = opened(system, settings)
    for number in range(20):
        commit(log, b"%03d" % number * 2000)
    log.show(20)
    for number in range(20, 30):
        commit(log, b"%03d" % number * 2000)
    return log


def test_what_is_damaged_before_the_place_of_a_cut_fails_the_log_and_is_never_given_a_new_end():
    """F28, F37: the frames that stay are read again before the log goes on behind them."""
    system = SimulatedFileSystem()
    log = withholding(system)
    system.content(LOG / segment_name(1))[2000] ^= 1
    with pytest.raises(WalCorrupted):
        log.forget_after(20)
    assert log.failed is not None
    with pytest.raises(LogFailed):
        commit(log, b"more")
    log.abandon()
    with pytest.raises(WalCorrupted):
        opened(system, WIDE)


def test_whichever_read_fails_nothing_has_changed_or_the_next_opening_settles_it():
    """F28: before HEAD tells of the cut it may be tried again, afterwards the log has failed."""
    unchanged = failed = 0
    for read in range(1, 100):
        system = SimulatedFileSystem()
        log = withholding(system)
        before = system.snapshot(LOG)
        system.read_faults = {system.reads + read}
        try:
            log.forget_after(20)
        except (WalCorrupted, LogFailed):
            if log.failed is None:
                unchanged += 1
                assert system.snapshot(LOG) == before
                log.forget_after(20)
            else:
                failed += 1
                log.abandon()
                log = opened(system, WIDE)
        else:
            break
        assert contents(log) == [(number + 1, [b"%03d" % number * 2000]) for number in range(20)]
        log.close()
    assert unchanged >= 2  # where the cut is, and the header of that segment
    assert failed >= 2  # HEAD, and what is left


def test_where_the_segment_of_a_cut_is_missing_nothing_else_is_removed():
    """F28: what lies behind it is all that is left."""
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 4)
    log.show(1)
    place = log.reader.locate(1)
    log.close()
    file = system.open(LOG / HEAD_NAME, "write")
    head = Head(file, read_head(file))
    head.write(1, 0, place.segment, place.offset, flags=CUT)
    head.close()
    system.unlink(LOG / segment_name(place.segment))
    before = [name for name in system.listing(LOG) if name.startswith("wal-")]
    assert len([name for name in before if name.endswith(".log")]) >= 3
    with pytest.raises(WalCorrupted, match="a truncation in this segment"):
        opened(system)
    assert [name for name in system.listing(LOG) if name.startswith("wal-")] == before


def test_segments_that_were_closed_within_what_is_forgotten_get_no_index():
    """F28: they are gone before housekeeping came to them."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.show(1)
    fill_segments(log, 4)
    log.forget_after(1)
    while log.maintain():
        pass
    assert log.failed is None
    assert [name for name in system.listing(LOG) if name.endswith(".idx")] == []
    assert contents(log) == [(1, [b"one"])]
    assert commit(log, b"again") == 2
    log.close()


def test_the_owner_reads_what_is_withheld_too_and_nobody_else_does():
    """F28: to find out what a cut would take; nothing of it stays in the cache of readers."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.show(1)
    commit(log, b"two")
    whole = log.whole
    assert whole.read(whole.locate(2)).header.version == 2
    assert contents(log) == [(1, [b"one"])]
    log.forget_after(1)
    commit(log, b"other")
    assert bytes(log.whole.read(log.whole.locate(2)).columns.body[0]) == b"other"
    log.close()

"""A disk that has no room for HEAD, not even what is kept back: copy-on-write file systems want room for a slot too."""

import errno
from unittest import mock

import pytest

from publishers.errors import LogFull
from publishers.wal.files.head import read_head
from tests.harness.inside import filesystem_of
from tests.publishers.wal.logs import commit, contents, fill_segments, opened
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG

PWRITE = SimulatedFile.pwrite


def _full(file, data, offset):
    if file._path.stem == "HEAD" and len(data) > 8:  # which was HEAD.tmp when it was made
        raise OSError(errno.ENOSPC, "simulated: no room for a slot")
    return PWRITE(file, data, offset)


def full():
    """No slot of HEAD can be written; to make one invalid needs no room."""
    return mock.patch.multiple(SimulatedFile, pwrite=_full)


@pytest.fixture
def log():
    log = opened(SimulatedFileSystem())
    commit(log, b"one")
    yield log
    log.abandon()


def head_of(log):
    file = filesystem_of(log).open(LOG / "HEAD", "read")
    try:
        return read_head(file)
    finally:
        file.close()


def test_what_head_has_no_room_for_is_not_withheld_and_can_be_tried_again(log):
    """F28: nothing has changed."""
    with full(), pytest.raises(LogFull):
        log.show(1)
    assert (log.withholding, log.failed) == (False, None)
    log.show(1)
    commit(log, b"two")
    assert (log.withholding, log.visible, log.durable) == (True, 1, 2)


def test_a_cut_for_which_head_has_no_room_is_not_begun(log):
    """F28: nothing has changed."""
    log.show(1)
    commit(log, b"two")
    with full(), pytest.raises(LogFull):
        log.forget_after(1)
    assert (log.failed, log.durable) == (None, 2)
    log.show(2)
    log.publish_tail(2)
    assert contents(log) == [(1, [b"one"]), (2, [b"two"])]
    log.show(1)
    commit(log, b"three")
    log.forget_after(2)
    assert log.durable == 2


def test_a_segment_is_rolled_although_head_has_no_room(log):
    """F38: the closed segment and the header of the next one are evidence enough."""
    with full():
        fill_segments(log, 3)
    assert log.failed is None
    newest, system = log.durable, filesystem_of(log)
    log.abandon()
    system.power_cut()
    log = opened(system)
    assert log.durable == newest
    log.close()


def test_a_log_is_closed_although_head_has_no_room(log):
    """F38: the next opening looks at the end instead."""
    system = filesystem_of(log)
    with full():
        log.close()
    log = opened(system)
    assert contents(log) == [(1, [b"one"])]
    log.close()


def test_what_is_kept_back_is_spent_before_head_says_that_there_is_no_room(log):
    """F38: a slice each time, and at the end all of it is given back."""
    reserve = log._reserve
    if not reserve.nbytes:
        reserve.fill()
    assert reserve.nbytes > 0
    with full(), pytest.raises(LogFull):
        log.show(1)
    assert reserve.nbytes == 0
    log.maintain()
    assert reserve.nbytes == reserve.wanted

"""Damage and full disks beside withheld versions: nothing withheld is shown, nothing acknowledged is lost."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from publishers.errors import LogFailed, LogFull, WalCorrupted
from publishers.wal import Follower, Wal, withholding
from publishers.wal.files.head import CUT, Head
from tests.harness.inside import head_writer_of
from tests.harness.scale import each
from tests.publishers.wal.logs import commit, contents, opened, options
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

pytestmark = pytest.mark.usefixtures("quiet")

_write_head = Head.write


@contextmanager
def owner(**settings: object) -> Iterator[tuple[SimulatedFileSystem, Wal]]:
    """Somebody with a new log, who dies in the end."""
    system = SimulatedFileSystem()
    log = opened(system, options(**settings))
    yield system, log
    log.abandon()


def just_withheld() -> SimulatedFileSystem:
    """The owner dies as soon as something is withheld: HEAD tells nothing beyond what ``show`` has written."""
    with owner(head_sync=1000.0) as (system, log):
        commit(log, b"one")
        log.show(1)
        commit(log, b"two")
    return system


def withheld_again() -> SimulatedFileSystem:
    """Shown, and something else withheld at once."""
    with owner(head_sync=1000.0) as (system, log):
        log.show(0)
        commit(log, b"one")
        log.show(None)
        log.show(1)
        commit(log, b"two")
    return system


def opened_again() -> SimulatedFileSystem:
    """Opened after such a death, and left again."""
    system = just_withheld()
    system.power_cut()
    opened(system, options(head_sync=1000.0)).abandon()
    return system


def just_forgotten() -> SimulatedFileSystem:
    """The owner dies behind the first commit after a cut."""
    with owner(head_sync=1000.0) as (system, log):
        commit(log, b"one")
        log.show(1)
        commit(log, b"forgotten")
        log.forget_after(1)
        commit(log, b"acknowledged")
    return system


def shown_for_a_while() -> SimulatedFileSystem:
    """What was withheld is shown, and the housekeeping has looked since."""
    with owner() as (system, log):
        log.show(0)
        commit(log, b"one")
        log.maintain()
        log.show(None)
        log.maintain()
    return system


@pytest.mark.parametrize(
    "life", [just_withheld, withheld_again, opened_again, just_forgotten, shown_for_a_while]
)
def test_no_flipped_bit_of_head_shows_what_is_withheld_or_takes_what_was_acknowledged(life):
    """F28, F29, T3: each bit of both slots; the same is found, or damage is told."""

    def seen(files: dict[str, bytes]) -> tuple[int, int, list[tuple[int, list[bytes | None]]], int]:
        system = SimulatedFileSystem.of(LOG, {name: data for name, data in files.items() if name != "TAIL"})
        follower = Follower.open(LOG, filesystem=system)
        assert follower.visible <= whole
        follower.close()
        log = opened(system)
        visible, durable, found = log.visible, log.durable, contents(log)
        log.abandon()
        return visible, durable, found, log.epoch

    files = life().snapshot(LOG)
    whole = 1 << 40
    expected = seen(files)
    whole = expected[0]
    told = 0
    for start in (0, 4096):
        for bit in each(range(88 * 8)):
            head = bytearray(files["HEAD"])
            head[start + bit // 8] ^= 1 << bit % 8
            try:
                assert seen({**files, "HEAD": bytes(head)}) == expected
            except WalCorrupted:
                told += 1
    assert told < 2 * 88 * 8


def test_head_that_tells_it_in_one_slot_only_is_noticed(monkeypatch):
    """F28: without the second write, some bit shows what is withheld."""
    monkeypatch.setattr(withholding.Withholding, "show", _tell_once)
    with pytest.raises(AssertionError):
        test_no_flipped_bit_of_head_shows_what_is_withheld_or_takes_what_was_acknowledged(just_withheld)


def _tell_once(kept: withholding.Withholding, visible: int | None) -> None:
    head_writer_of(kept).write(visible=visible)
    kept.active = visible is not None


def test_a_disk_that_is_full_for_the_second_slot_refuses_the_commit_and_nothing_else_is_hidden():
    """F28, F43: HEAD tells of something withheld that does not exist; the next commit puts that right."""
    system = SimulatedFileSystem()
    log = opened(system, options(reserve_bytes=0))
    commit(log, b"one")
    system.faults = {system.operations + 3: "ENOSPC"}
    with pytest.raises(LogFull):
        log.show(1)
    assert log.withholding
    log.show(None)
    commit(log, b"two")
    log.abandon()
    system.power_cut()
    assert len(contents(opened(system))) == 2


def test_a_disk_that_is_full_behind_a_cut_leaves_the_second_slot_to_the_housekeeping():
    """F29, F43: the cut is done, and told so."""
    system = SimulatedFileSystem(trace=True)
    log = opened(system, options(reserve_bytes=0))
    commit(log, b"one")
    log.show(1)
    commit(log, b"two")
    before = system.operations
    with mock.patch.object(Head, "write", _full_at_third):
        log.forget_after(1)
    assert system.operations > before
    assert log.failed is None
    assert not head_writer_of(log).head.even
    log.maintain()
    assert head_writer_of(log).head.even
    log.close()


def _full_at_third(head: Head, *arguments, **named) -> None:
    if not named and head.state.flags & CUT == 0:
        raise OSError(errno.ENOSPC, "full")
    _write_head(head, *arguments, **named)


def test_a_disk_that_fails_for_the_second_slot_behind_a_cut_fails_the_log():
    """F29: the cut is done; what else the disk has lost nobody knows."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.show(1)
    commit(log, b"two")
    with mock.patch.object(Head, "write", _broken_at_third), pytest.raises(LogFailed):
        log.forget_after(1)
    assert log.failed
    log.abandon()
    assert contents(opened(system)) == [(1, [b"one"])]


def _broken_at_third(head: Head, *arguments, **named) -> None:
    if not named and head.state.flags & CUT == 0:
        raise OSError(errno.EIO, "broken")
    _write_head(head, *arguments, **named)

"""F144: what a target may hold already, and what damage and retention do to a backup."""

from pathlib import Path

import pytest

from publishers import backup, restore
from publishers.errors import BackupRefused, LogBusy, WalCorrupted
from publishers.model.position import Position
from publishers.wal import Wal
from publishers.wal.backups import copy, source
from publishers.wal.backups.source import Overtaken, open_ahead
from publishers.wal.checks import Verdict
from publishers.wal.disk.filesystem import sync_names
from publishers.wal.files.segment import check_header, segment_name, segment_number
from tests.harness.constants import set_constant
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import commit, contents, fill_segments, options
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

TARGET = Path("/backup")
KEEP = options(retain_bytes=None, retain_age=None)


def opened(system, settings=KEEP):
    return Wal.open(LOG, settings, filesystem=system, clock=Clock(2_000_000_000))


def grow(system, segments):
    wal = opened(system)
    fill_segments(wal, segments)
    commit(wal, b"the last one")
    wal.close()


def prune(system, first):
    """Retention takes every segment before one."""
    wal = opened(system, options(retain_bytes=1, retain_age=None))
    hold = wal.retention.holds.add("the test", _position(wal, first))
    while wal.maintain():
        pass
    hold.release()
    wal.abandon()
    assert min(numbers(system, LOG)) == first


def _position(wal, number):
    return Position(catalog_of(wal.reader).entries[number - 1].first_version)


def numbers(system, path):
    return sorted(number for name in system.snapshot(path) if (number := segment_number(name)))


def change(system, path, offset, data):
    file = system.open(path, "write")
    file.pwrite(data, offset)
    file.sync()
    file.close()


@pytest.fixture
def system():
    system = SimulatedFileSystem(0)
    system.make_directory(LOG)
    system.make_directory(TARGET)
    grow(system, 4)
    return system


def refused(system, *words):
    before = system.snapshot(TARGET)
    with pytest.raises(BackupRefused) as caught:
        backup(LOG, TARGET, filesystem=system)
    assert all(word in str(caught.value) for word in words), caught.value
    assert system.snapshot(TARGET) == before


def sound(system):
    """It is completed, and holds what the log holds."""
    (done,) = backup(LOG, TARGET, filesystem=system).logs
    assert done.report.verdict is Verdict.SOUND, done.report.findings
    wal = Wal.open(TARGET, KEEP, filesystem=system, clock=Clock(2_000_000_000))
    found = contents(wal)
    wal.close()
    wal = opened(system)
    whole = contents(wal)
    wal.close()
    assert found[-len(whole) :] == whole
    return done


def interrupted(system, renames, *, copy=False):
    """A first backup that ended after so many segments."""
    rename = system.rename

    def stop(one, other):
        nonlocal renames
        if not renames:
            raise OSError("the end")
        renames -= 1
        rename(one, other)

    system.rename = stop
    with pytest.raises(OSError, match="the end"):
        backup(LOG, TARGET, copy=copy, filesystem=system)
    system.rename = rename


def test_a_lock_that_was_removed_in_the_meantime_is_not_taken_for_one(system, monkeypatch):
    """F144: another backup has just ended, and a third one may have begun."""
    real = SimulatedFile.is_at
    monkeypatch.setattr(SimulatedFile, "is_at", lambda file, path: path.parent != TARGET and real(file, path))
    with pytest.raises(LogBusy):
        backup(LOG, TARGET, filesystem=system)


def test_what_an_unfinished_backup_has_before_a_hole_goes(system):
    """F144: retention has taken what follows it, and without HEAD it was no backup yet."""
    interrupted(system, 2)
    assert numbers(system, TARGET) == [1, 4]
    prune(system, 3)
    done = sound(system)
    assert min(numbers(system, TARGET)) == 3
    assert done.report.oldest > 1


def test_what_an_unfinished_backup_has_up_to_the_log_stays(system):
    """F144: also of what retention has taken meanwhile, if it goes on in what the log has."""
    interrupted(system, 3)
    assert numbers(system, TARGET) == [1, 2, 4]
    prune(system, 3)
    assert sound(system).report.oldest == 1


def test_a_target_whose_next_segment_cannot_be_joined_is_refused(system):
    """F144: the end of what it has is damaged, or not what the log goes on from."""
    interrupted(system, 3, copy=True)
    change(system, TARGET / segment_name(2), 0, bytes(8))
    prune(system, 3)
    done = sound(system)
    assert done.report.oldest > 1
    assert min(numbers(system, TARGET)) == 3


def test_a_damaged_header_in_a_backup_is_copied_anew(system):
    """F144: it tells of no history at all."""
    backup(LOG, TARGET, copy=True, filesystem=system)
    change(system, TARGET / segment_name(2), 3, b"\xff")
    assert backup(LOG, TARGET, copy=True, filesystem=system).logs[0].copied == 2
    sound(system)


def test_a_damaged_end_of_a_backup_is_refused_and_copied_anew_without_head(system):
    """F144: HEAD of a backup, and the segment that it ends in, tell which history it is of."""
    backup(LOG, TARGET, filesystem=system)
    grow(system, 5)
    last = TARGET / segment_name(4)
    change(system, last, 100, b"\xff\xff")
    refused(system, segment_name(4), "damaged", "another history")
    system.unlink(last)
    refused(system, "last segment", "remove its HEAD")
    change(system, TARGET / "HEAD", 4096, bytes(8))
    refused(system, "HEAD is damaged", "remove its HEAD")
    system.unlink(TARGET / "HEAD")
    sound(system)


def test_segments_without_head_are_compared_before_anything_is_changed(system):
    """F144: of another log, of another history, or beyond the end of this one."""
    files = system.snapshot(LOG)
    grow(system, 6)
    backup(LOG, TARGET, copy=True, filesystem=system)
    system.unlink(TARGET / "HEAD")
    for name in (*system.snapshot(LOG),):
        if name not in files:
            system.unlink(LOG / name)
    for name, data in files.items():
        file = system.open(LOG / name, "create")
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
    system.restart()
    refused(system, "shows only version")
    other = SimulatedFileSystem(7)
    other.make_directory(LOG)
    grow(other, 2)
    for name in system.listing(TARGET):
        system.unlink(TARGET / name)
    file = system.open(TARGET / segment_name(2), "create")
    file.pwrite(other.snapshot(LOG)[segment_name(2)], 0)
    file.close()
    refused(system, segment_name(2), "is of log")


def test_damage_where_the_log_ends_is_told_before_there_is_a_backup(system):
    """F144: the copy of the last segment is scanned before it gets its name."""
    change(system, LOG / segment_name(4), 400, b"\xff\xff\xff")
    with pytest.raises(WalCorrupted) as caught:
        backup(LOG, TARGET, filesystem=system)
    assert caught.value.segment == 4
    assert numbers(system, TARGET) == []
    assert "LOCK" not in system.snapshot(TARGET)


def test_a_last_segment_that_was_cut_short_is_told(system):
    """F144."""
    file = system.open(LOG / segment_name(4), "write")
    file.truncate(file.size() - 100)
    file.close()
    with pytest.raises(WalCorrupted, match="ends before byte"):
        backup(LOG, TARGET, filesystem=system)


def test_schemas_that_are_damaged_in_both_copies_are_told(system):
    """F144: a backup without them would give their versions twice; an older one keeps its own."""
    for name in ("SCHEMAS", "SCHEMAS.copy"):
        file = system.open(LOG / name, "create")
        file.pwrite(b"nonsense", 0)
        file.close()
    sync_names(system, LOG)
    with pytest.raises(WalCorrupted, match="SCHEMAS"):
        backup(LOG, TARGET, filesystem=system)


def test_retention_that_takes_what_is_being_compared_begins_again(system, monkeypatch):
    """F144."""
    backup(LOG, TARGET, filesystem=system)
    grow(system, 5)
    look, looks = copy.look, []

    def late(*arguments):
        found = look(*arguments)
        looks.append(found.first)
        if len(looks) == 1:
            prune(system, 3)
        return found

    monkeypatch.setattr(copy, "look", late)
    assert sound(system).report.oldest == 1
    assert looks == [1, 3, 3]


def test_segments_are_opened_a_bounded_number_ahead(system, monkeypatch):
    """F144: and one that is missing there is told, with nothing left open."""
    set_constant(monkeypatch, source, "_OPEN", 2)
    with pytest.raises(Overtaken) as caught:
        next(open_ahead(system, LOG, [4, 1, 9]))
    assert caught.value.number == 9
    assert next(open_ahead(system, LOG, [4, 1, 2, 9]))[0] == 4
    with pytest.raises(Overtaken):
        next(open_ahead(system, LOG, [1, 9]))


def test_a_header_that_was_damaged_meanwhile_is_told(system):
    """F144."""
    change(system, LOG / segment_name(1), 0, b"?")
    file = system.open(LOG / segment_name(1), "read")
    with pytest.raises(WalCorrupted):
        check_header(file, 1)
    file.close()


def test_nothing_is_restored_over_a_file(system):
    """F144."""
    backup(LOG, TARGET, filesystem=system)
    system.open(Path("/file"), "create").close()
    with pytest.raises(BackupRefused, match="not a directory"):
        restore(TARGET, Path("/file"), filesystem=system)

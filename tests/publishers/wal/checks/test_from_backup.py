"""F49: a repair takes from a backup what the log has lost, and nothing else."""

import errno
import shutil
from random import Random

import pytest

from publishers.backups import backup
from publishers.errors import BackupRefused, LogBusy
from publishers.wal import RealFileSystem
from publishers.wal.checks import Verdict, repair, verify
from tests.harness.scale import SCALE
from tests.publishers.wal.checks.damage import (
    change,
    copy_log,
    damage,
    flip,
    frames_of,
    make_log,
    opened_really,
    snapshot,
)
from tests.publishers.wal.checks.dying import Died, DyingFileSystem
from tests.publishers.wal.logs import commit, contents

SEGMENTS = 3


def segment(path, number):
    return path / f"wal-{number:012d}.log"


def flipped(path, number):
    flip(segment(path, number), frames_of(segment(path, number))[1][0] + 85)


def truncated(path, number):
    with segment(path, number).open("r+b") as file:
        file.truncate(frames_of(segment(path, number))[1][0] + 40)


def zeroed(path, number):
    change(segment(path, number), 0, bytes(segment(path, number).stat().st_size))


def exchanged(path, number):
    shutil.copyfile(segment(path, 1 if number > 1 else 2), segment(path, number))


def deleted(path, number):
    segment(path, number).unlink()


DAMAGES = (flipped, truncated, zeroed, exchanged, deleted)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A log, its backup, a copy with another history, and another log."""
    home = tmp_path_factory.mktemp("logs")
    acknowledged = make_log(home / "log", segments=SEGMENTS)
    backup(home / "log", home / "backup", copy=True)
    copy_log(home / "log", home / "fork")
    wal = opened_really(home / "fork")
    commit(wal, b"of another history")
    wal.close()
    make_log(home / "other", segments=SEGMENTS + 1)
    return home, acknowledged


@pytest.mark.parametrize("numbers", [(1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("hurt", DAMAGES)
def test_each_damage_is_undone_without_a_loss(logs, tmp_path, hurt, numbers):
    """F49: whatever was done to which segments: the log is what it was, and its positions stay valid."""
    home, acknowledged = logs
    path = copy_log(home / "log", tmp_path / "log")
    for number in numbers:
        hurt(path, number)
    before = snapshot(path)
    planned = repair(path, source=home / "backup")
    assert snapshot(path) == before
    assert {step.action for step in planned.steps} == {"take"}
    assert (planned.untaken, planned.lost, planned.done) == ({}, None, False)
    done = repair(path, write=True, source=home / "backup")
    assert [step.segment for step in done.steps] == [step.segment for step in planned.steps]
    assert done.after.verdict is Verdict.SOUND
    whole = snapshot(home / "log")
    kept = {f"{name}.broken" for name in before if name.endswith(".log") and before[name] != whole[name]}
    assert {*done.kept} == kept
    assert all(snapshot(path)[name] == before[name.removesuffix(".broken")] for name in kept)
    assert not [name for name in snapshot(path) if name.endswith(".tmp")]
    assert repair(path, write=True, source=home / "backup").steps == []
    wal = opened_really(path)
    assert contents(wal) == acknowledged
    assert wal.log_id.hex == planned.before.log_id
    wal.close()


def short(home, path):
    """The backup of a time at which the last segment had fewer versions."""
    wal = opened_really(path)
    commit(wal, b"after the backup")
    wal.close()
    return home / "backup"


def elsewhere(home, path):
    return home / "other"


def broken_too(home, path):
    target = copy_log(home / "backup", path.parent / "broken")
    for number in range(1, SEGMENTS + 1):
        flipped(target, number)
    return target


def of_the_same_files(home, path):
    """A backup by hard links shares a damage."""
    for one in path.glob("wal-*.log"):
        flip(one, 300)
    backed = path.parent / "links"
    backed.mkdir()
    for one in path.iterdir():
        if one.is_file():
            (backed / one.name).hardlink_to(one)
    return backed


def test_a_backup_that_shares_the_damage_cannot_help(logs, tmp_path):
    """F49: frames in another order, each of which is intact, look like the consequence of a damage before them."""
    path = copy_log(logs[0] / "log", tmp_path / "log")
    data = bytearray(segment(path, 1).read_bytes())
    (first, a), (second, b) = frames_of(segment(path, 1))[1:3]
    data[first : second + b] = data[second : second + b] + data[first : first + a]
    segment(path, 1).write_bytes(data)
    with pytest.raises(BackupRefused, match="segment 1: "):
        repair(path, source=copy_log(path, tmp_path / "shared"))


def absent(home, path):
    target = copy_log(home / "backup", path.parent / "absent")
    for number in range(1, SEGMENTS + 1):
        deleted(target, number)
    return target


def none(home, path):
    return path.parent / "none"


def of_another_history(home, path):
    """The last segment has the same number, and another end."""
    wal = opened_really(path)
    commit(wal, b"of this history")
    wal.close()
    return home / "fork"


def of_a_history_that_went_on(home, path):
    """The log has not: nothing that it has acknowledged is missing there, and more is there."""
    return home / "fork"


def of_an_earlier_epoch(home, path):
    """The log was opened since, and nothing was committed."""
    opened_really(path).close()
    return home / "backup"


def beside_a_damaged_head(home, path):
    for slot in (0, 4096):
        change(path / "HEAD", slot, bytes(88))
    return home / "backup"


SOURCES = (
    short, elsewhere, broken_too, of_the_same_files, absent, none, of_another_history, of_a_history_that_went_on, of_an_earlier_epoch,
    beside_a_damaged_head,
)  # fmt: skip


@pytest.mark.parametrize("hurt", DAMAGES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_segment_that_the_log_does_not_continue_with_is_refused(logs, tmp_path, hurt, source):
    """F49: by name, and nothing is changed."""
    home, _ = logs
    path = copy_log(home / "log", tmp_path / "log")
    given = source(home, path)
    last = max(int(one.name[4:16]) for one in path.glob("wal-*.log"))
    hurt(path, last)
    before = snapshot(path)
    for write in (False, True):
        with pytest.raises(BackupRefused) as refused:
            repair(path, write=write, source=given)
        assert refused.value.path == given
        assert snapshot(path) == before


def test_what_the_backup_has_is_taken_and_what_it_lacks_is_told(logs, tmp_path):
    """F49: the repair without it cuts less off then."""
    home, acknowledged = logs
    path = copy_log(home / "log", tmp_path / "log")
    wal = opened_really(path)
    commit(wal, b"after the backup")
    wal.close()
    last = max(int(one.name[4:16]) for one in path.glob("wal-*.log"))
    flipped(path, 1)
    flip(segment(path, last), frames_of(segment(path, last))[-1][0] + 85)
    done = repair(path, write=True, source=home / "backup")
    assert ([step.segment for step in done.steps], [*done.untaken]) == ([1], [last])
    assert {one.segment for one in done.after.findings if one.verdict is Verdict.CORRUPT} == {last}
    assert repair(path, write=True).after.verdict is Verdict.SOUND
    wal = opened_really(path)
    assert contents(wal)[: len(acknowledged)] == acknowledged
    wal.close()


@pytest.mark.parametrize("hurt", [flipped, deleted])
def test_a_repair_that_dies_anywhere_is_finished_by_the_next_one(logs, tmp_path, hurt):
    """F49: at no moment is there less than before."""
    home, acknowledged = logs
    steps = 0
    while True:
        path = copy_log(home / "log", tmp_path / "log")
        for number in (1, 2):
            hurt(path, number)
        try:
            repair(path, write=True, source=home / "backup", filesystem=DyingFileSystem(steps))
        except Died:
            pass
        else:
            break
        repair(path, write=True, source=home / "backup")
        assert verify(path).verdict is Verdict.SOUND, steps
        steps += 1
    assert steps > 10
    wal = opened_really(path)
    assert contents(wal) == acknowledged
    wal.close()


@pytest.mark.parametrize("seed", range(int(30 * SCALE)))
def test_random_damage_is_undone_or_refused(logs, tmp_path, seed):
    """F49: no damage makes it take what does not belong there; what it says that it did is done."""
    home, acknowledged = logs
    random = Random(seed)
    path = copy_log(home / "log", tmp_path / "log")
    done = [damage(path, random) for _ in range(random.randrange(1, 4))]
    segments = not all(one.split()[1].endswith("HEAD") or ".idx" in one for one in done)
    try:
        repaired = repair(path, write=True, source=home / "backup")
    except BackupRefused:
        return
    if repaired.refused is None and segments and repaired.steps and not repaired.untaken:
        assert not [
            one
            for one in repaired.after.findings
            if one.verdict is Verdict.CORRUPT and one.name.endswith(".log")
        ], done
    if verify(path).verdict < Verdict.CORRUPT:
        wal = opened_really(path)
        assert contents(wal) == acknowledged, done
        wal.close()


def test_what_the_log_still_shows_is_not_given_up(tmp_path):
    """F49: HEAD does not know of versions that lie behind the damage, but they are there to be read."""
    path = tmp_path / "log"
    make_log(path, segments=2)
    wal = opened_really(path)
    backup(path, tmp_path / "backup", copy=True)
    last = max(path.glob("wal-*.log"))
    known = len(frames_of(last))
    for body in (b"first", b"second", b"third"):
        commit(wal, body)
    wal.abandon()
    (path / "TAIL").unlink()
    flip(last, frames_of(last)[known][0] + 85)
    assert verify(path).verdict is Verdict.CORRUPT
    with pytest.raises(BackupRefused, match=r"the backup ends with version \d+, and the log had"):
        repair(path, source=tmp_path / "backup")


def test_a_consumer_of_links_reads_the_new_segment(logs, tmp_path):
    """F49: a link to the damaged file would stay damaged."""
    home, _ = logs
    path = copy_log(home / "log", tmp_path / "log")
    held = path / "held" / "spark"
    held.mkdir(parents=True)
    flipped(path, 1)
    (held / segment(path, 1).name).hardlink_to(segment(path, 1))
    repair(path, write=True, source=home / "backup")
    assert (held / segment(path, 1).name).read_bytes() == segment(home / "backup", 1).read_bytes()
    assert (held / segment(path, 1).name).samefile(segment(path, 1))


def test_what_it_cannot_do_is_told(logs, tmp_path):
    """F49: a log in use, one that cannot be read, and damage that is in no segment."""
    home, _ = logs
    path = copy_log(home / "log", tmp_path / "log")
    change(path / "HEAD", 0, bytes(88))
    change(path / "HEAD", 4096, bytes(88))
    assert "no segment is damaged" in repair(path, source=home / "backup").refused
    path = copy_log(home / "log", tmp_path / "log")
    flipped(path, 1)
    lock = RealFileSystem().open(path / "LOCK", "create")
    assert lock.lock()
    with pytest.raises(LogBusy):
        repair(path, write=True, source=home / "backup")
    lock.close()
    with pytest.raises(ValueError, match="cannot be combined"):
        repair(path, source=home / "backup", head=True)
    assert repair(tmp_path / "none", source=home / "backup").refused

    class Failing(RealFileSystem):
        def open(self, path, mode, /):
            if path.parent == home / "backup":
                raise OSError(errno.EIO, "Input/output error")
            return super().open(path, mode)

    before = snapshot(path)
    with pytest.raises(OSError, match="Input/output"):
        repair(path, write=True, source=home / "backup", filesystem=Failing())
    assert snapshot(path) == before

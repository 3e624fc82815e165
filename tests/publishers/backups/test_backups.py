"""F144: backups of logs and of stores, beside their writers, and what clients see after a restore."""

import errno
import itertools
import shutil
import threading

import pytest

from penstock_cdc.errors import BackupRefused, InvalidOption, LogBusy, NotALog
from penstock_cdc.mutations import schema
from publishers import ChangeLog, ChangeStore, backup, restore
from publishers.errors import WalCorrupted
from publishers.wal import RealFileSystem
from publishers.wal.backups import copy as copies
from publishers.wal.backups.source import open_ahead
from publishers.wal.checks import Verdict, verify
from publishers.wal.checks.heads import examine_head
from tests.publishers.backups.trees import OPTIONS, files, grow, keys, prune, refused, segments, shared
from tests.publishers.support import order, wait_until

# --- what a backup holds -------------------------------------------------------------------------------------------------


def test_a_backup_beside_an_open_log_holds_what_is_shown_and_only_files_of_a_log(log, target):
    """F144: closed segments are links; the one that is being written is not."""
    grow(log, 70)
    while not list(log.path.glob("*.idx")):
        log.commit([order(1)])
    done = backup(log.path, target)
    (one,) = done.logs
    assert (done.verdict, one.since, one.report.version) == (Verdict.SOUND, 0, log.head.version - 1)
    assert (one.linked, one.copied, one.kept) == (len(segments(log.path)) - 1, 1, 0)
    assert shared(target, log.path) == [path.name for path in segments(target)[:-1]]
    assert all(name.startswith(("HEAD", "OPTIONS", "wal-")) for name in files(target))
    assert keys(target) == keys(log.path)


def test_a_second_backup_copies_what_is_new_and_a_third_one_nothing(log, target):
    """F144: what is there is compared. The segment in which the one before ended is copied, as it may be cut there."""
    grow(log, 70)
    backup(log.path, target)
    before = len(segments(target))
    grow(log, 70)
    wait_until(lambda: len(list(log.path.glob("*.idx"))) == len(segments(log.path)) - 1)
    (one,) = backup(log.path, target).logs
    assert one.kept == before - 1
    assert one.copied == 2
    assert one.linked == len(segments(target)) - before - 1
    assert keys(target) == keys(log.path)
    there = files(target)
    (one,) = backup(log.path, target).logs
    assert (one.linked, one.copied, one.kept, one.bytes) == (0, 0, len(segments(target)), 0)
    assert files(target) == there


def test_an_empty_log_has_a_backup(log, target):
    """F144."""
    assert backup(log.path, target).verdict is Verdict.SOUND
    assert keys(target) == []
    grow(log, 2)
    backup(log.path, target)
    assert len(keys(target)) == 2


def test_copies_are_made_on_request_and_where_there_are_no_links(log, target, tmp_path):
    """F144: another file system refuses links with EXDEV."""

    class Elsewhere(RealFileSystem):
        def link(self, source, target, /):
            raise OSError(errno.EXDEV, "another file system", str(target))

    grow(log, 70)
    backup(log.path, target, copy=True)
    backup(log.path, tmp_path / "elsewhere", filesystem=Elsewhere())
    for path in (target, tmp_path / "elsewhere"):
        assert shared(path, log.path) == []
        assert keys(path) == keys(log.path)
    backup(log.path, tmp_path / "linked")
    (one,) = backup(log.path, tmp_path / "linked", copy=True).logs
    assert one.copied == len(segments(log.path)), "links do not stay where copies are wanted"
    assert shared(tmp_path / "linked", log.path) == []


def test_progress_is_told_of_the_copying_and_then_of_the_look_at_every_byte(log, target):
    """F144: in bytes, rising; the last of each is all of it."""
    grow(log, 70)
    told = []
    (one,) = backup(log.path, target, copy=True, progress=lambda done, total: told.append((done, total))).logs
    assert all(0 <= done <= total for done, total in told)
    done = [done for done, _ in told]
    assert sum(before > after for before, after in itertools.pairwise(done)) <= 1
    assert told[-1] == (one.report.bytes, one.report.bytes)
    assert len(told) > one.copied


def test_a_link_that_fails_otherwise_ends_the_backup(log, target):
    """F144."""

    class Broken(RealFileSystem):
        def link(self, source, target, /):
            raise OSError(errno.EIO, "the disk fails", str(target))

    grow(log, 70)
    with pytest.raises(OSError, match="the disk fails"):
        backup(log.path, target, filesystem=Broken())
    assert backup(log.path, target).verdict is Verdict.SOUND


def test_what_is_withheld_is_not_in_a_backup_until_it_is_shown(log, target, tmp_path):
    """F144, E20: whoever opens the backup sees no more than who reads the log; what is forgotten was never in it."""
    grow(log, 30)
    log.commit([order("withheld")], visible=False)
    grow(log, 30)
    backup(log.path, target)
    assert keys(target) == keys(log.path)
    shutil.copytree(target, tmp_path / "opened")
    with ChangeLog.open(tmp_path / "opened", **OPTIONS) as opened:
        assert (opened.visible, opened.head.version) == (30, 31)
        assert "withheld" not in {change.key for change in opened.history(limit=1000).changes}
    log.forget_after(30)
    assert backup(log.path, target).verdict is Verdict.SOUND
    last = log.commit([order("shown later")], visible=False).version
    grow(log, 30)
    log.publish(last)
    assert backup(log.path, target).verdict is Verdict.SOUND
    assert keys(target)[30] == "shown later"
    assert keys(target) == keys(log.path)


def test_schemas_come_along_and_go_on_where_they_were(log, target, tmp_path):
    """F144: those told behind what was copied are left out by the next opening."""
    log.commit([schema("order", {"type": "object"})])
    backup(log.path, target)
    log.commit([schema("order", {"type": "object", "title": "two"})])
    shutil.copy(log.path / "SCHEMAS", target)
    restore(target, tmp_path / "back")
    with ChangeLog.open(tmp_path / "back", **OPTIONS) as back:
        assert back.schema("order").version == 1
        back.commit([schema("order", {"type": "object", "title": "another"})])
        assert back.schema("order").version == 2
        assert back.schema("order").body["title"] == "another"


def test_retention_between_two_backups_takes_nothing_from_the_backup(tmp_path, target):
    """F144: as long as the log still has what follows, a backup keeps what the log deletes."""
    with ChangeLog.open(tmp_path / "log", **{**OPTIONS, "retain_bytes": 200_000}) as log:
        while len(segments(log.path)) < 3:
            grow(log, 1)
        backup(log.path, target)
        log.hold("the next backup", log.head)
        prune(log)
        assert log.oldest.version > 1
        assert backup(log.path, target).verdict is Verdict.SOUND
        with ChangeLog.open(target, read_only=True) as found:
            assert (found.oldest.version, found.head) == (1, log.head)


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_a_target_that_holds_something_else_is_refused_and_left_as_it_is(log, target, tmp_path):
    """F144."""
    grow(log, 30)
    with ChangeLog.open(tmp_path / "other", **OPTIONS) as other:
        grow(other, 3)
    backup(tmp_path / "other", target)
    refused(lambda: backup(log.path, target), target, "is of log")
    (target / "notes.txt").write_text("mine")
    refused(lambda: backup(log.path, target), target, "notes.txt", "another directory")
    refused(lambda: backup(log.path, tmp_path / "other"), tmp_path / "other", "opened for writing")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(BackupRefused, match="not a directory"):
        backup(log.path, tmp_path / "file")
    with pytest.raises(NotALog):
        backup(tmp_path / "nowhere", target)
    for named in ({"copy": "no"}, {"target": None}):
        with pytest.raises(InvalidOption):
            backup(**{"path": log.path, "target": target, **named})
    for place in (log.path, log.path / "in", tmp_path):
        with pytest.raises(InvalidOption, match="beside"):
            backup(log.path, place)


def test_another_history_of_the_same_log_is_refused(log, target, tmp_path):
    """F144: of two copies that went on, and of a log that lost its end, as far as it differs."""
    grow(log, 30)
    backup(log.path, target)
    restore(target, tmp_path / "twin")
    with ChangeLog.open(tmp_path / "twin", **OPTIONS) as twin:
        grow(twin, 30)
    grow(log, 30)
    backup(log.path, target)
    refused(lambda: backup(tmp_path / "twin", target), target, "history of the log")
    backup(tmp_path / "twin", tmp_path / "of the twin")
    refused(lambda: backup(log.path, tmp_path / "of the twin"), tmp_path / "of the twin", "history")
    shutil.rmtree(tmp_path / "twin")
    log.commit([order(1)])
    backup(log.path, tmp_path / "further")
    refused(lambda: backup(target, tmp_path / "further"), tmp_path / "further", "another history")


def test_a_backup_with_a_hole_is_refused_before_it_is_made(tmp_path, target):
    """F144: retention has deleted what follows the backup before."""
    with ChangeLog.open(tmp_path / "log", **{**OPTIONS, "retain_bytes": 100_000}) as log:
        grow(log, 5)
        backup(log.path, target)
        while log.oldest.version <= 6:
            grow(log, 1)
        refused(lambda: backup(log.path, target), target, "has deleted the versions between", "retain_bytes")


def test_a_target_that_is_open_for_writing_is_busy(log, target):
    """F144."""
    grow(log, 3)
    backup(log.path, target)
    with ChangeLog.open(target, **OPTIONS):
        with pytest.raises(BackupRefused, match="opened for writing"):
            backup(log.path, target)
        with pytest.raises(LogBusy):
            restore(log.path, target, replace=True)


def test_one_backup_at_a_time_writes_to_a_target(log, target):
    """F144: while it is made nobody opens it for writing, and no other backup goes on in it."""
    grow(log, 70)
    met = []

    class Meeting(RealFileSystem):
        def link(self, source, other, /):
            for act in (lambda: backup(log.path, target), lambda: ChangeLog.open(target, **OPTIONS)):
                with pytest.raises(LogBusy):
                    act()
                met.append(act)
            super().link(source, other)

    backup(log.path, target, filesystem=Meeting())
    assert met
    assert "LOCK" not in files(target)


def test_a_segment_that_is_missing_is_told(log, target):
    """F144: that is damage, and not retention."""
    grow(log, 70)
    segments(log.path)[1].unlink()
    with pytest.raises(WalCorrupted) as caught:
        backup(log.path, target)
    assert caught.value.segment == 2
    assert not (target / "HEAD").exists()


def test_damage_in_the_log_is_told_by_the_verdict_of_the_backup(log, target):
    """F144: at the same place; what was there before stays as it was."""
    grow(log, 70)
    damaged = segments(log.path)[1]
    data = bytearray(damaged.read_bytes())
    data[10_000] ^= 1
    damaged.write_bytes(data)
    done = backup(log.path, target)
    assert done.verdict is Verdict.CORRUPT
    assert {one.name for one in done.logs[0].report.findings if one.verdict} == {damaged.name}
    with pytest.raises(BackupRefused, match=damaged.name):
        restore(target, log.path.with_name("back"))


def test_a_damaged_segment_of_a_backup_is_copied_anew_when_it_is_removed(log, target):
    """F144: as docs/backup.md says."""
    grow(log, 70)
    backup(log.path, target, copy=True)
    segments(target)[1].unlink()
    (one,) = backup(log.path, target, copy=True).logs
    assert (one.report.verdict, one.copied) == (Verdict.SOUND, 2)
    assert keys(target) == keys(log.path)


# --- retention while it is copied ---------------------------------------------------------------------------------------------


def test_retention_during_a_backup_never_leaves_a_hole(tmp_path, target):
    """F144: what is open is copied; what was deleted before it was opened makes the backup begin again."""
    pruned = threading.Event()

    class Pruning(RealFileSystem):
        def rename(self, source, other, /):
            super().rename(source, other)
            if not pruned.is_set() and other.name.startswith("wal-"):
                pruned.set()  # once; the last segment is there, and none of the others
                prune(log)

    with ChangeLog.open(tmp_path / "log", **{**OPTIONS, "retain_bytes": 300_000}) as log:
        while len(segments(log.path)) < 4:
            grow(log, 1)
        for place, copy in ((target, False), (tmp_path / "copies", True)):
            pruned.clear()
            hold = log.hold("the next backup", log.head)
            assert backup(log.path, place, copy=copy, filesystem=Pruning()).verdict is Verdict.SOUND
            assert backup(log.path, place, copy=copy).verdict is Verdict.SOUND
            assert keys(place)[-1] == keys(log.path)[-1]
            hold.release()


def test_retention_that_is_always_faster_ends_the_backup_with_what_to_do(tmp_path, target, monkeypatch):
    """F144: it begins again a bounded number of times, and leaves no log that has a hole."""
    begun = []

    def late(filesystem, directory, numbers):
        numbers = list(numbers)
        begun.append(numbers)
        while (log.path / f"wal-{min(numbers):012d}.log").exists():
            prune(log)
        return open_ahead(filesystem, directory, numbers)

    monkeypatch.setattr(copies, "open_ahead", late)
    with ChangeLog.open(tmp_path / "log", **{**OPTIONS, "retain_bytes": 100_000}) as log:
        grow(log, 40)
        with pytest.raises(BackupRefused, match="retention has deleted") as caught:
            backup(log.path, target)
        assert "retain_bytes" in caught.value.choice
        assert len(begun) == 8
        assert not (target / "HEAD").exists()
        monkeypatch.undo()
        assert backup(log.path, target).verdict is Verdict.SOUND


# --- restoring --------------------------------------------------------------------------------------------------------


# --- stores -----------------------------------------------------------------------------------------------------------


def test_a_store_is_copied_log_by_log_and_its_system_log_last(tmp_path, target):
    """F144: logs that are made meanwhile are copied too, as soon as the system log tells of them."""
    made = []

    class Making(RealFileSystem):
        def make_directory(self, path, /):
            if path == target / "orders" and not made:
                made.append(store.create("late"))
                made[0].commit([order("late")])
            super().make_directory(path)

    with ChangeStore.open(tmp_path / "shop", **OPTIONS) as store:
        for name in ("orders", "items"):
            grow(store.create(name), 3)
        done = backup(store.path, target, filesystem=Making())
        assert made
        assert [one.target.name for one in done.logs] == ["items", "orders", "late", ".system"]
        assert done.verdict is Verdict.SOUND
        store.drop("items")
        grow(store["orders"], 3)
        backup(store.path, target)
        store.create("items")
        refused(lambda: backup(store.path, target), target / "items", "is of log")
    restore(target, tmp_path / "back")
    assert not (tmp_path / "back" / "items").exists()
    with ChangeStore.open(tmp_path / "back", **OPTIONS) as back:
        assert sorted(back.names()) == ["late", "orders"]
        assert back["orders"].head.version == 7
        with pytest.raises(LogBusy):
            restore(target, tmp_path / "back", replace=True)
    done = restore(target, tmp_path / "back", replace=True)
    assert (done.replaced / ".system" / "HEAD").exists()


def test_a_log_that_is_dropped_meanwhile_is_left_out(tmp_path, target):
    """F144."""

    class Dropping(RealFileSystem):
        def make_directory(self, path, /):
            if path == target / "items" and "orders" in store:
                store.drop("orders")
            super().make_directory(path)

    with ChangeStore.open(tmp_path / "shop", **OPTIONS) as store:
        store.create("items"), store.create("orders")
        done = backup(store.path, target, filesystem=Dropping())
        assert [one.target.name for one in done.logs] == ["items", ".system"]
    with ChangeStore.open(target, read_only=True) as found:
        assert found.names() == ["items"]


def test_logs_that_are_made_without_end_do_not_hold_a_backup_for_ever(tmp_path, target):
    """F144: what is copied is kept, and the next one goes on."""

    class Making(RealFileSystem):
        def make_directory(self, path, /):
            if path.parent == target and path.name.startswith("log"):
                store.create(f"log{len(store)}")
            super().make_directory(path)

    with ChangeStore.open(tmp_path / "shop", **OPTIONS) as store:
        store.create("log0")
        with pytest.raises(BackupRefused, match="8 times"):
            backup(store.path, target, filesystem=Making())
        done = backup(store.path, target)
        assert len(done.logs) == len(store) + 1
        (target / "orders").mkdir()
        (target / "orders" / "notes.txt").touch()
        refused(lambda: backup(store.path, target), target, "orders")


def test_a_restore_of_a_store_that_was_interrupted_is_completed(tmp_path, target):
    """F144: until the system log is there it is no store."""
    with ChangeStore.open(tmp_path / "shop", **OPTIONS) as store:
        grow(store.create("orders"), 3)
        backup(store.path, target)
    restore(target, tmp_path / "back")
    (tmp_path / "back" / ".system" / "HEAD").unlink()
    done = restore(target, tmp_path / "back")
    assert (done.verdict, done.replaced) == (Verdict.SOUND, None)
    refused(lambda: restore(target, tmp_path / "back"), tmp_path / "back", "not empty")
    (tmp_path / "back" / ".system" / "HEAD").unlink()
    (tmp_path / "back" / "notes.txt").touch()
    refused(lambda: restore(target, tmp_path / "back"), tmp_path / "back", "not empty")


def test_a_store_is_not_copied_over_something_else(tmp_path, target, log):
    """F144."""
    with ChangeStore.open(tmp_path / "shop", **OPTIONS) as store:
        store.create("orders")
        backup(log.path, target)
        refused(lambda: backup(store.path, target), target, "HEAD")
        (tmp_path / "file").touch()
        with pytest.raises(BackupRefused, match="not a directory"):
            backup(store.path, tmp_path / "file")
        backup(store.path, tmp_path / "ours")
        refused(lambda: backup(log.path, tmp_path / "ours"), tmp_path / "ours", "orders")
        refused(lambda: restore(target, tmp_path / "ours"), tmp_path / "ours", "not empty")


# --- other tools ------------------------------------------------------------------------------------------------------


def copied(source, target, names, meanwhile):
    """What a tool does that copies file by file, while the writer goes on."""
    target.mkdir()
    for name in names:
        shutil.copy(source / name, target / name)
        meanwhile()
    return target


@pytest.mark.parametrize("names", ["HEAD first", "HEAD last"])
def test_of_a_log_that_is_being_written_head_must_be_copied_first(log, tmp_path, names):
    """F144: segments only grow, so an older HEAD vouches for what is there; a newer one for what is not, which is told."""
    grow(log, 30)
    log.close()
    with ChangeLog.open(log.path, **{**OPTIONS, "head_sync": 0.0, "sync": "always"}) as log:
        order_of = [path.name for path in segments(log.path)]
        order_of = ["HEAD", *order_of] if names == "HEAD first" else [*order_of, "HEAD"]

        def meanwhile():
            grow(log, 2)
            wait_until(lambda: examine_head(RealFileSystem(), log.path).state.durable == log.visible)

        path = copied(log.path, tmp_path / "copy", order_of, meanwhile)
        whole = keys(log.path)
    if names == "HEAD last":
        with pytest.raises(WalCorrupted):
            ChangeLog.open(path, **OPTIONS)
        return
    with ChangeLog.open(path, **OPTIONS) as found:
        held = [change.key for change in found.history(limit=1000).changes if change.index]
    assert held == whole[: len(held)]
    assert len(held) >= 30


def test_no_order_makes_a_copy_of_a_log_that_is_being_written_a_backup(log, tmp_path):
    """F144, E20: what is withheld behind HEAD is shown, and a segment that is read in pieces may have a hole."""
    grow(log, 3)
    log.close()
    with ChangeLog.open(log.path, **{**OPTIONS, "sync": "always", "head_sync": 3600.0}) as log:
        copied(log.path, tmp_path / "shown", ["HEAD"], lambda: None)
        log.commit([order("withheld")], visible=False)
        shutil.copy(segments(log.path)[0], tmp_path / "shown")
        log.publish(log.head.version - 1)
        path = copied(log.path, tmp_path / "pieces", ["HEAD"], lambda: None)
        (segment,) = segments(log.path)
        end = len(segment.read_bytes().rstrip(b"\0"))
        first = segment.read_bytes()[: end + 4000]
        grow(log, 4)
        (path / segment.name).write_bytes(first + segment.read_bytes()[end + 4000 :])
    with ChangeLog.open(tmp_path / "shown", **OPTIONS) as opened:
        assert "withheld" in [change.key for change in opened.history(limit=1000).changes]
    with pytest.raises(WalCorrupted):
        ChangeLog.open(path, **OPTIONS)


def test_a_backup_is_copied_by_any_tool_in_any_order(log, target, tmp_path):
    """F144: nobody writes to it, and it has no files of the running writer. An older copy gets HEAD last, and is good meanwhile."""
    grow(log, 70)
    backup(log.path, target)
    shutil.copytree(target, tmp_path / "copy")
    assert verify(tmp_path / "copy").verdict is Verdict.SOUND
    grow(log, 70)
    backup(log.path, target)
    for path in segments(target):
        shutil.copy(path, tmp_path / "copy")
    assert verify(tmp_path / "copy").verdict is Verdict.SOUND
    shutil.copy(target / "HEAD", tmp_path / "copy")
    assert keys(tmp_path / "copy") == keys(target)
    grow(log, 70)
    assert backup(log.path, tmp_path / "copy").verdict is Verdict.SOUND
    assert keys(tmp_path / "copy") == keys(log.path)

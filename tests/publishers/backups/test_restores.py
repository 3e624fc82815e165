"""F144: what a restore makes of a backup, and what clients see then."""

import json

import pytest

from penstock_cdc.errors import BackupRefused, LogBusy, PositionAhead, PositionForked
from publishers import ChangeLog, Position, backup, restore
from publishers.journal import JOURNAL_NAMES
from publishers.slots.inspection import forget_restored_place, restored_place
from publishers.wal import RealFileSystem
from publishers.wal.checks import Verdict, verify
from tests.publishers.backups.trees import OPTIONS, grow, keys, refused, shared
from tests.publishers.support import order


def test_a_restored_log_is_another_history_from_its_next_opening_on(log, target, tmp_path):
    """F144: places of what it has are good; those of the part that was lost are refused by name, also when it grew past them."""
    grow(log, 30)
    backup(log.path, target)
    kept = log.token(log.head)
    grow(log, 10)
    lost = log.token(log.head)
    log.close()
    done = restore(target, tmp_path / "back")
    assert done.verdict is Verdict.SOUND
    assert shared(tmp_path / "back", target) == []
    with ChangeLog.open(tmp_path / "back", read_only=True) as back, pytest.raises(PositionAhead):
        back.position_of(lost)  # nobody has begun another history yet
    with ChangeLog.open(tmp_path / "back", **OPTIONS) as back:
        assert back.position_of(kept) == back.head
        with pytest.raises(PositionForked):
            back.position_of(lost)
        grow(back, 20)
        assert back.position_of(kept).version == 31
        with pytest.raises(PositionForked) as caught:
            back.position_of(lost)
        assert caught.value.end.version == 31
    assert verify(target).verdict is Verdict.SOUND


def test_a_directory_that_is_not_empty_is_refused_or_kept_beside(log, target, tmp_path):
    """F144: under a name that is told; nothing in it is lost."""
    grow(log, 30)
    backup(log.path, target)
    grow(log, 3)
    with pytest.raises(LogBusy):
        restore(target, log.path)
    with pytest.raises(LogBusy):
        restore(target, log.path, replace=True)
    whole = keys(log.path)
    log.close()
    refused(lambda: restore(target, log.path), log.path, "not empty", "--replace")
    done = restore(target, log.path, replace=True)
    assert done.replaced == tmp_path / "log.replaced-1"
    assert keys(done.replaced) == whole
    assert keys(log.path) == keys(target) == whole[:30]
    assert restore(target, log.path, replace=True).replaced == tmp_path / "log.replaced-2"
    assert restore(target, tmp_path / "new").replaced is None
    (tmp_path / "empty").mkdir()
    assert restore(target, tmp_path / "empty").replaced is None
    with pytest.raises(BackupRefused, match="not-a-log"):
        restore(tmp_path / "nowhere", tmp_path / "other")


def test_exactly_once_goes_on_from_what_was_restored(log, target, tmp_path):
    """F144, F36: the sequences of producers are those of the backup, so that lost batches are written again."""
    log.commit([order(1)], producer=("etl", 1))
    backup(log.path, target)
    log.commit([order(2)], producer=("etl", 2))
    restore(target, tmp_path / "back")
    with ChangeLog.open(tmp_path / "back", **OPTIONS) as back:
        assert back.commit([order(1)], producer=("etl", 1)).duplicate
        assert not back.commit([order(2)], producer=("etl", 2)).duplicate


def test_the_places_of_slots_go_with_a_backup_and_slots_do_not(log, target, tmp_path):
    """F144, F178: as of the newest backup, also through a restored log; a journal that is damaged stops no backup."""
    grow(log, 3)
    log.slots.create("stock", since="earliest")
    log.slots.create("other")
    backup(log.path, target)
    assert read_places(target) == {"stock": str(log.token(log.oldest)), "other": str(log.token(log.head))}
    log.slots.drop("other")
    log.slots.seek("stock")
    grow(log, 1)
    backup(log.path, target)
    place = {"stock": str(log.token(Position(4)))}
    assert read_places(target) == place
    assert verify(target).verdict is Verdict.SOUND
    restore(target, tmp_path / "back")
    with ChangeLog.open(tmp_path / "back", **OPTIONS) as back:
        assert list(back.slots) == []
        backup(back.path, tmp_path / "next")
    assert read_places(tmp_path / "next") == place
    for name in JOURNAL_NAMES:
        (log.path / "slots" / name).write_bytes(b"x" * 200)
    backup(log.path, target)
    assert read_places(target) == place


def read_places(path):
    return json.loads((path / "PLACES").read_bytes())["slots"]


def test_a_place_of_a_backup_ends_with_the_slot_that_takes_its_name(log, target, tmp_path):
    """F178: each by itself; a backup of a log without any has none, and takes away what was there."""
    grow(log, 3)
    for name in ("stock", "other"):
        log.slots.create(name)
    places = dict.fromkeys(("stock", "other"), str(log.token(log.head)))
    backup(log.path, target)
    backup(log.path, target)  # nothing has changed
    assert read_places(target) == places
    back = tmp_path / "back"
    restore(target, back)
    storage = RealFileSystem()
    assert restored_place(storage, back, "stock") == places["stock"]
    for name in ("stock", "stock", "third"):
        forget_restored_place(storage, back, name)
    assert restored_place(storage, back, "stock") is None
    assert read_places(back) == {"other": places["other"]}
    forget_restored_place(storage, back, "other")
    assert not (back / "PLACES").exists()
    for name in ("stock", "other"):
        log.slots.drop(name)
    backup(log.path, target)
    assert not (target / "PLACES").exists()
    backup(log.path, target)

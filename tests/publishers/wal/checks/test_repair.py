"""F49: a repair keeps every intact frame before the damage, and never makes a log worse."""

import errno
import os
from random import Random

import pytest

from publishers.errors import LogBusy
from publishers.wal import RealFileSystem
from publishers.wal.checks import Dumped, Verdict, dump, repair, verify
from tests.harness.scale import SCALE
from tests.publishers.wal.checks.damage import (
    append_unsynced,
    change,
    copy_log,
    damage,
    flip,
    frames_of,
    make_log,
    opened_really,
    snapshot,
)
from tests.publishers.wal.checks.dying import finished
from tests.publishers.wal.logs import commit, contents

SECOND = "wal-000000000002.log"


def test_a_cut_keeps_all_before_and_a_copy_of_all_behind(log, made):
    """F49."""
    at = frames_of(log / SECOND)[4][0]
    flip(log / SECOND, at + 85)
    before = snapshot(log)
    planned = repair(log)
    assert snapshot(log) == before
    assert [step.action for step in planned.steps] == ["cut"]
    epoch = planned.before.epoch
    done = repair(log, write=True)
    assert done.done
    assert done.after.verdict is Verdict.SOUND
    assert done.after.epoch > epoch
    first, last = done.lost
    assert last == made[1][-1][0]
    wal = opened_really(log)
    assert contents(wal) == [one for one in made[1] if one[0] < first]
    assert commit(wal, b"again") == first
    wal.close()
    salvaged = {
        one.header.version
        for one in dump(verify(log), salvage=True)
        if isinstance(one, Dumped) and one.salvaged and one.columns is not None
    }
    assert salvaged >= set(range(first + 1, last + 1))


def test_a_repaired_log_is_left_alone(log):
    """F49."""
    flip(log / SECOND, 200)
    repair(log, write=True)
    before = snapshot(log)
    again = repair(log, write=True)
    assert (again.steps, again.refused, again.done) == ([], None, False)
    assert snapshot(log) == before


def test_a_log_without_head_gets_one_and_keeps_everything(log, made):
    """F49."""
    (log / "HEAD").unlink()
    done = repair(log, write=True, head=True)
    assert done.after.verdict is Verdict.SOUND
    wal = opened_really(log)
    assert contents(wal) == made[1]
    assert wal.log_id.hex == done.before.log_id
    wal.close()


def test_indexes_are_built_anew(log):
    """F49."""
    good = snapshot(log)["wal-000000000001.idx"]
    flip(log / "wal-000000000001.idx", 9)
    (log / "wal-000000000002.idx").unlink()
    done = repair(log, write=True, index=True)
    assert [step.action for step in done.steps] == ["index", "index"]
    assert done.after.findings == []
    assert snapshot(log)["wal-000000000001.idx"] == good


def test_what_is_torn_is_settled(tmp_path):
    """F49, F38."""
    acknowledged = make_log(tmp_path / "log", crash=True)
    append_unsynced(tmp_path / "log", b"a" * 500, b"b" * 500)
    last = max((tmp_path / "log").glob("wal-*.log"))
    flip(last, frames_of(last)[-2][0] + 100)
    done = repair(tmp_path / "log", write=True)
    assert [step.action for step in done.steps] == ["reopen"]
    assert done.after.verdict is Verdict.SOUND
    wal = opened_really(tmp_path / "log")
    assert contents(wal) == acknowledged
    wal.close()


def test_a_log_that_is_open_is_not_repaired(log):
    """F49."""
    flip(log / SECOND, 200)
    lock = RealFileSystem().open(log / "LOCK", "create")
    assert lock.lock()
    with pytest.raises(LogBusy):
        repair(log, write=True)
    lock.close()


def test_where_nothing_is_intact_nothing_is_done(log):
    """F49."""
    os.unlink(log / "wal-000000000001.log")
    before = snapshot(log)
    refused = repair(log, write=True)
    assert refused.refused
    assert not refused.done
    assert snapshot(log) == before


def test_bytes_behind_a_payload_are_made_zeros_again(log, made):
    """F49."""
    good = snapshot(log)
    data = good[SECOND]
    at = next(
        at + 80 + length
        for at, _ in frames_of(log / SECOND)
        if (length := int.from_bytes(data[at : at + 4], "little")) % 8
    )
    flip(log / SECOND, at)
    done = repair(log, write=True)
    assert [(step.action, step.segment, step.offset) for step in done.steps] == [("padding", 2, at)]
    assert done.after.findings == []
    assert done.lost is None
    assert snapshot(log) == good


@pytest.mark.parametrize("what", ["cut", "padding"])
def test_a_repair_writes_to_no_segment_that_a_backup_shares(log, tmp_path, what):
    """F49, F144: a backup has closed segments by hard links; a consumer of links gets one to what it reads on in."""
    held = log / "held" / "spark"
    held.mkdir(parents=True)
    further = held.with_name("further")
    further.mkdir()
    os.link(log / "wal-000000000003.log", further / "wal-000000000003.log")  # the others it has released
    if what == "cut":
        flip(log / SECOND, frames_of(log / SECOND)[2][0] + 85)
    else:
        data = (log / SECOND).read_bytes()
        at = next(
            at + 80 + length
            for at, _ in frames_of(log / SECOND)
            if (length := int.from_bytes(data[at : at + 4], "little")) % 8
        )
        flip(log / SECOND, at)
    os.link(log / SECOND, tmp_path / "shared")
    os.link(log / SECOND, held / SECOND)
    shared = (tmp_path / "shared").read_bytes()
    done = repair(log, write=True)
    assert {step.action for step in done.steps} >= {what}
    assert done.after.verdict is Verdict.SOUND
    opened_really(log).close()
    assert SECOND not in os.listdir(further)
    assert (tmp_path / "shared").read_bytes() == shared
    assert os.path.samefile(held / SECOND, log / SECOND)


def test_of_what_is_cut_off_nothing_is_kept_where_it_is_only_zeros(log, made):
    """F49."""
    last = max(log.glob("wal-*.log"))
    at, size = frames_of(last)[-1]
    change(last, at, bytes(size))
    done = repair(log, write=True)
    assert [(step.action, step.offset) for step in done.steps] == [("cut", at)]
    assert [name for name in done.kept if not name.startswith("HEAD")] == []
    assert done.lost == (made[1][-1][0],) * 2
    wal = opened_really(log)
    assert contents(wal) == made[1][:-1]
    wal.close()


def test_head_is_not_made_up_where_the_log_does_not_begin(log):
    """F49: nothing that is intact tells which version HEAD should vouch for."""
    (log / "HEAD").unlink()
    flip(log / "wal-000000000001.log", 64 + 85)
    before = snapshot(log)
    refused = repair(log, write=True, head=True)
    assert "so HEAD cannot be rebuilt" in refused.refused
    assert (refused.steps, refused.done) == ([], False)
    assert snapshot(log) == before


class WithoutLinks(RealFileSystem):
    """The real one, where no hard link can be made."""

    def __init__(self, number):
        self.number = number

    def link(self, source, target, /):
        raise OSError(self.number, os.strerror(self.number), str(source))


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_where_there_are_no_links_what_is_cut_off_is_copied(log, made, number):
    """F49."""
    third = (log / "wal-000000000003.log").read_bytes()
    flip(log / SECOND, frames_of(log / SECOND)[4][0] + 85)
    done = repair(log, write=True, filesystem=WithoutLinks(number))
    assert "wal-000000000003.log.broken" in done.kept
    assert third.startswith((log / "wal-000000000003.log.broken").read_bytes().rstrip(b"\0"))
    assert done.after.verdict is Verdict.SOUND


def test_a_link_that_fails_otherwise_stops_the_repair_before_anything_is_cut(log):
    """F49."""
    flip(log / SECOND, frames_of(log / SECOND)[4][0] + 85)
    before = snapshot(log)
    with pytest.raises(OSError, match="space"):
        repair(log, write=True, filesystem=WithoutLinks(errno.ENOSPC))
    after = snapshot(log)
    assert {name: after[name] for name in before if name != "LOCK"} == {
        name: data for name, data in before.items() if name != "LOCK"
    }
    assert repair(log, write=True).after.verdict is Verdict.SOUND


@pytest.mark.parametrize("crash", [False, True])
def test_a_repair_after_any_damage_keeps_every_version_before_it(tmp_path, crash):
    """F49: and is a no-op the second time, and changes nothing when it is only planned."""
    acknowledged = make_log(tmp_path / "whole", crash=crash)
    for seed in range(round(40 * SCALE)):
        path = copy_log(tmp_path / "whole", tmp_path / "log")
        what = [damage(path, Random(seed * 2 + crash)) for _ in range(1 + seed % 3)]
        before = snapshot(path)
        planned = repair(path)
        assert snapshot(path) == before, (seed, what)
        done = repair(path, write=True)
        assert done.steps == planned.steps, (seed, what)
        if done.refused:
            assert snapshot(path) == before, (seed, what)
            continue
        assert verify(path).verdict is Verdict.SOUND, (seed, what)
        after = snapshot(path)
        assert not repair(path, write=True).done, (seed, what)
        assert snapshot(path) == after, (seed, what)
        wal = opened_really(path)
        found = contents(wal)
        wal.close()
        assert found == acknowledged[: len(found)], (seed, what)
        assert len(found) >= done.before.version, (seed, what)


def test_a_repair_that_dies_at_any_step_is_finished_by_the_next_one(made, tmp_path):
    """F49."""

    def hurt(path):
        flip(path / SECOND, frames_of(path / SECOND)[4][0] + 85)
        flip(path / "HEAD", 4000)

    path = copy_log(made[0], tmp_path / "log")
    hurt(path)
    first = verify(path).lost[0]
    kept = [one for one in made[1] if one[0] < first]
    deaths = 0
    for found in finished(made[0], path, hurt):
        assert found == kept, deaths
        deaths += 1
    assert deaths > 10

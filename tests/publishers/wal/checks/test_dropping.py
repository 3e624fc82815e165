"""F49: a damaged beginning is dropped on request, with a copy, and what is intact behind it stays."""

import json
from random import Random
from unittest import mock

import pytest

from publishers.errors import HistoryPruned
from publishers.wal import RealFileSystem
from publishers.wal.checks import Verdict, dump, repair, segments, verify
from publishers.wal.checks.verify import examine
from publishers.wal.files.head import CUT, Head, read_head
from publishers.wal.files.mirrored_file import MirroredFile
from tests.harness.inside import catalog_of, head_writer_of
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
from tests.publishers.wal.checks.dying import finished
from tests.publishers.wal.logs import commit, contents
from transports.cli.program import main

FIRST, SECOND, THIRD, LAST = (f"wal-{number:012d}.log" for number in range(1, 5))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "whole"
    return path, make_log(path, segments=4)


def begins(path, number):
    """First version of a segment."""
    return int.from_bytes((path / f"wal-{number:012d}.log").read_bytes()[24:32], "little")


def header(path):
    flip(path / FIRST, 20)


def frame(path):
    flip(path / FIRST, frames_of(path / FIRST)[2][0] + 90)


def end(path):
    flip(path / FIRST, frames_of(path / FIRST)[-1][0] + 90)


def gone(path):
    (path / FIRST).unlink()


@pytest.mark.parametrize("hurt", [header, frame, end, gone])
def test_the_damaged_oldest_segment_goes_and_everything_behind_it_stays(log, made, hurt):
    """F49: what is lost is told exactly, and kept in a copy."""
    first = begins(log, 2)
    hurt(log)
    before = snapshot(log)
    planned = repair(log, drop_oldest=True)
    assert snapshot(log) == before
    assert [step.action for step in planned.steps] == ["drop"]
    assert planned.lost == (1, first - 1)
    assert planned.as_json()["lost"] == [1, first - 1]
    done = repair(log, drop_oldest=True, write=True)
    assert done.done
    assert done.after.verdict is Verdict.SOUND
    assert (done.after.oldest, done.after.version) == (first, made[1][-1][0])
    after = snapshot(log)
    if hurt is not gone:
        assert after[f"{FIRST}.broken"] == before[FIRST]
    assert after["HEAD.broken"].rstrip(b"\0") == before["HEAD"].rstrip(b"\0")
    assert set(done.kept) == {name for name in after if name.endswith(".broken")}
    wal = opened_really(log)
    assert contents(wal) == [one for one in made[1] if one[0] >= first]
    with pytest.raises(HistoryPruned):
        wal.reader.locate(first - 1)
    commit(wal, b"on")
    wal.close()
    assert repair(log, drop_oldest=True, write=True).steps == []


def test_what_is_damaged_in_the_middle_takes_all_before_it(log, made):
    """F49: the last damage counts; a segment that is missing is one."""
    first = begins(log, 4)
    flip(log / SECOND, frames_of(log / SECOND)[1][0] + 85)
    (log / THIRD).unlink()
    done = repair(log, drop_oldest=True, write=True)
    assert done.after.verdict is Verdict.SOUND
    assert done.lost == (1, first - 1)
    wal = opened_really(log)
    assert contents(wal) == [one for one in made[1] if one[0] >= first]
    wal.close()
    salvaged = {one.header.version for one in dump(verify(log), salvage=True) if hasattr(one, "header")}
    assert 1 in salvaged


def test_several_segments_that_are_missing_are_behind_the_new_beginning(log, made):
    """F49: a hole is named by its first segment."""
    first = begins(log, 4)
    for name in (SECOND, THIRD):
        (log / name).unlink()
    done = repair(log, drop_oldest=True, write=True)
    assert done.after.verdict is Verdict.SOUND
    assert done.lost == (1, first - 1)
    assert done.beginning.numbers == (1,)


def test_padding_is_made_zeros_again_in_what_stays(log, made):
    """F49."""
    header(log)
    padded = 0
    for at, size in frames_of(log / LAST):
        length = int.from_bytes((log / LAST).read_bytes()[at : at + 4], "little")
        if length % 8:
            padded = at + size - 1
    flip(log / LAST, padded)
    done = repair(log, drop_oldest=True, write=True)
    assert [step.action for step in done.steps] == ["padding", "drop"]
    assert done.after.verdict is Verdict.SOUND


def test_where_the_last_segment_is_damaged_too_it_is_refused(log):
    """F49: and nothing is changed."""
    header(log)
    flip(log / LAST, frames_of(log / LAST)[1][0] + 85)
    before = snapshot(log)
    refused = repair(log, drop_oldest=True, write=True)
    assert "the last segment is damaged" in refused.refused
    assert snapshot(log) == before


def test_where_head_is_damaged_too_it_is_refused(log):
    """F49: nobody could tell whether the end is whole."""
    header(log)
    change(log / "HEAD", 0, bytes(8192))
    refused = repair(log, drop_oldest=True, write=True)
    assert "HEAD is damaged" in refused.refused


def test_a_log_without_such_a_damage_is_repaired_as_always(log):
    """F49: nothing is dropped that is not damaged."""
    flip(log / "HEAD", 4200)
    done = repair(log, drop_oldest=True, write=True)
    assert done.beginning is None
    assert done.after.verdict is Verdict.SOUND
    with pytest.raises(ValueError, match="cannot be combined with head or index"):
        repair(log, drop_oldest=True, head=True)


def test_what_was_withheld_from_before_stays_withheld(tmp_path):
    """F28, F49: from the new beginning on."""
    path = tmp_path / "log"
    make_log(path, segments=1)
    wal = opened_really(path)
    visible = wal.visible
    wal.show(visible)
    while len(catalog_of(wal.reader).entries) < 3:
        commit(wal, b"x" * 20_000)
    wal.close()
    header(path)
    first = begins(path, 2)
    repair(path, drop_oldest=True, write=True)
    wal = opened_really(path)
    assert wal.withholding
    assert wal.visible == first - 1
    assert contents(wal) == []
    wal.show(None)
    wal.publish_tail(wal.durable)
    assert contents(wal)[0][0] == first
    wal.close()


def tell_of_a_cut(path, number):
    """A writer has died after HEAD told of a cut; answers the newest version that it keeps."""
    at = frames_of(path / f"wal-{number:012d}.log")[3][0]
    wal = opened_really(path)
    version = begins(path, number)
    while tuple(wal.reader.locate(version + 1)) < (number, at):
        version += 1
    place = wal.reader.locate(version + 1)
    wal.abandon()
    file = RealFileSystem().open(path / "HEAD", "write")
    state = read_head(file)
    head = Head(file, state)
    head.write(state.epoch, version, *place, flags=CUT)
    head.close()
    return version


def test_where_all_before_a_cut_is_damaged_it_is_refused_and_nothing_is_lost(log, made):
    """F49: what lies behind the place of a cut is going to be removed, so it is nothing that would be left."""
    tell_of_a_cut(log, 2)
    flip(log / SECOND, frames_of(log / SECOND)[1][0] + 90)
    before = snapshot(log)
    refused = repair(log, drop_oldest=True, write=True)
    assert "nothing would be left" in refused.refused
    assert snapshot(log) == before
    first = begins(log, 2)
    done = repair(log, write=True)
    assert done.after.verdict is Verdict.SOUND
    wal = opened_really(log)
    found = contents(wal)
    wal.close()
    assert found == made[1][: len(found)]
    assert len(found) >= first - 1


def test_a_beginning_goes_before_a_cut_is_finished(log, made):
    """F28, F49: both are carried out."""
    kept = tell_of_a_cut(log, 3)
    first = begins(log, 2)
    header(log)
    done = repair(log, drop_oldest=True, write=True)
    assert done.after.verdict is Verdict.SOUND
    assert (done.after.oldest, done.after.version) == (first, kept)
    wal = opened_really(log)
    assert contents(wal) == [one for one in made[1] if first <= one[0] <= kept]
    wal.close()


def test_a_drop_that_dies_at_any_step_is_finished_by_the_next_one(made, tmp_path):
    """F49."""

    def hurt(path):
        header(path)
        flip(path / SECOND, frames_of(path / SECOND)[1][0] + 85)

    first = begins(made[0], 3)
    kept = [one for one in made[1] if one[0] >= first]
    deaths = 0
    for found in finished(made[0], tmp_path / "log", hurt, drop_oldest=True):
        assert found == kept, deaths
        deaths += 1
    assert deaths > 8


def test_whatever_the_damage_what_stays_is_what_was_written(made, tmp_path):
    """F49, T3: dropped or refused, never made worse; versions that stay have their content."""
    whole = dict(made[1])
    for seed in range(60):
        path = copy_log(made[0], tmp_path / "log")
        what = damage(path, Random(seed))
        done = repair(path, drop_oldest=True, write=True)
        if done.refused is not None:
            continue
        assert verify(path).verdict is Verdict.SOUND, (seed, what)
        wal = opened_really(path)
        found = contents(wal)
        wal.close()
        assert all(whole[version] == bodies for version, bodies in found), (seed, what)
        if done.beginning is not None:
            assert found[-1][0] == made[1][-1][0], (seed, what)


def test_the_command_drops_on_request(log, capsys):
    """F49."""
    header(log)
    first = begins(log, 2)
    assert main(["repair", str(log), "--json"]) == 2
    assert "no frame before the damage" in json.loads(capsys.readouterr().out)["refused"]
    assert main(["repair", str(log), "--drop-oldest"]) == 1
    assert f"versions 1 to {first - 1} would be lost" in capsys.readouterr().out
    assert main(["repair", str(log), "--drop-oldest", "--write"]) == 0
    assert f"versions 1 to {first - 1} are lost" in capsys.readouterr().out


# --- files that lie there twice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SCHEMAS", "SCHEMAS.copy"])
def test_a_damaged_copy_is_named_and_made_anew(log, name):
    """F49: the class ``copies``."""
    twin = MirroredFile(RealFileSystem(), log, "SCHEMAS")
    twin.write(b'{"told":[]}')
    assert verify(log).verdict is Verdict.SOUND
    flip(log / name, 3)
    (found,) = verify(log).findings
    assert (found.kind, found.verdict, found.name) == ("copies", Verdict.TORN, name)
    done = repair(log, write=True)
    assert [step.action for step in done.steps] == ["copies"]
    assert done.after.verdict is Verdict.SOUND
    assert twin.read().even


def test_two_damaged_copies_are_corrupt_and_nobody_makes_them_up(log):
    """F49."""
    twin = MirroredFile(RealFileSystem(), log, "SCHEMAS")
    twin.write(b'{"told":[]}')
    for name in ("SCHEMAS", "SCHEMAS.copy"):
        flip(log / name, 3)
    assert verify(log).verdict is Verdict.CORRUPT
    assert repair(log, write=True).steps == []
    (log / "SCHEMAS.copy").unlink()
    (log / "SCHEMAS.copy").mkdir()
    assert verify(log).verdict is Verdict.UNREADABLE


# --- retention that overtakes -----------------------------------------------------------------------------------------------


def test_an_examination_that_retention_overtakes_is_begun_anew_and_tells_the_newest_version(log, made):
    """F49: the version that is told is never too low for what has gone meanwhile."""
    system = RealFileSystem()
    wal = opened_really(log)
    guarded = segments.Segments._guarded
    takes = [2]

    def overtaken(self, number, *, last):
        if takes[0] and number == self._numbers[0]:
            takes[0] -= 1
            while len(catalog_of(wal.reader).entries) < 7:
                commit(wal, b"y" * 30_000)
            gone = range(catalog_of(wal).entries[0].number, catalog_of(wal.reader).entries[-1].number)
            head_writer_of(wal).write(gone.stop)
            catalog_of(wal).drop(gone.stop)
            for one in gone:
                (log / f"wal-{one:012d}.log").unlink()
        guarded(self, number, last=last)

    with mock.patch.object(segments.Segments, "_guarded", overtaken):
        once = examine(system, log, live=True)
        assert once.overtaken
        assert not once.broken
        assert once.version == once.seen == made[1][-1][0]
        report = verify(log)
    assert report.verdict is Verdict.SOUND, report.findings
    assert report.version == wal.visible
    assert not report.overtaken
    wal.close()

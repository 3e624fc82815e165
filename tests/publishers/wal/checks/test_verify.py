"""F49: each damage is named, and nothing that is damaged passes for sound."""

import os
from random import Random

import pytest

from publishers.errors import PenstockError
from publishers.wal import RealFileSystem, Wal
from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.head import Head, read_head
from tests.harness.scale import SCALE
from tests.publishers.wal.checks.damage import (
    SMALL,
    Moody,
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
from tests.publishers.wal.logs import commit, contents, opened
from tests.simulation.workload import LOG

SECOND = "wal-000000000002.log"


def kinds(path):
    return {finding.kind for finding in verify(path).findings if finding.verdict}


def test_a_log_that_was_closed_is_sound_and_nothing_is_written(log):
    """F49."""
    before = snapshot(log)
    report = verify(log)
    assert (report.verdict, report.findings, report.live) == (Verdict.SOUND, [], False)
    assert report.segments == 3
    assert report.lost is None
    assert snapshot(log) == before


def test_what_a_crash_leaves_is_sound_or_torn(tmp_path):
    """F49, F38."""
    make_log(tmp_path / "log", crash=True)
    assert verify(tmp_path / "log").verdict is Verdict.SOUND
    append_unsynced(tmp_path / "log", b"a" * 500, b"b" * 500)
    last = max((tmp_path / "log").glob("wal-*.log"))
    flip(last, frames_of(last)[-2][0] + 100)
    report = verify(tmp_path / "log")
    assert report.verdict is Verdict.TORN
    assert [(one.kind, one.offset) for one in report.findings] == [("crc", frames_of(last)[-2][0])]
    Wal.open(tmp_path / "log", SMALL, filesystem=RealFileSystem()).close()
    assert verify(tmp_path / "log").verdict is Verdict.SOUND


def _lose_end(log):
    last = max(log.glob("wal-*.log"))
    at, size = frames_of(last)[-1]
    change(last, at, bytes(size))


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("crc", lambda log: flip(log / SECOND, frames_of(log / SECOND)[2][0] + 90)),
        ("chain", lambda log: _swap(log / SECOND)),
        ("zeroed", lambda log: _zero_frame(log / SECOND)),
        ("length", lambda log: change(log / SECOND, frames_of(log / SECOND)[2][0], bytes(4))),
        ("truncated", lambda log: os.truncate(log / SECOND, (log / SECOND).stat().st_size - 9)),
        ("segment-header", lambda log: flip(log / SECOND, 3)),
        ("numbering", lambda log: (log / SECOND).write_bytes((log / "wal-000000000001.log").read_bytes())),
        ("segment-missing", lambda log: (log / SECOND).unlink()),
        ("padding", lambda log: _pad(log / SECOND)),
        ("head-missing", lambda log: (log / "HEAD").unlink()),
        ("head", lambda log: (log / "HEAD").write_bytes(bytes(8192))),
        ("head-slot", lambda log: change(log / "HEAD", 4096, bytes(88))),
        ("padding", lambda log: flip(log / "HEAD", 4000)),
        ("index", lambda log: flip(log / "wal-000000000001.idx", 5)),
        ("lost-end", _lose_end),
        ("leftover", lambda log: (log / "wal-000000000009.idx").write_bytes(b"x")),
    ],
)
def test_each_damage_is_named_with_its_place(log, kind, harm):
    """F49."""
    harm(log)
    assert kind in kinds(log)
    assert verify(log).verdict in (Verdict.TORN, Verdict.CORRUPT)


def _swap(path):
    data = path.read_bytes()
    (first, a), (second, b) = frames_of(path)[2:4]
    change(path, first, data[second : second + b] + data[first : first + a])


def _zero_frame(path):
    at, size = frames_of(path)[2]
    change(path, at, bytes(size))


def _pad(path):
    data = path.read_bytes()
    for at, _ in frames_of(path):
        length = int.from_bytes(data[at : at + 4], "little")
        if length % 8:
            flip(path, at + 80 + length)
            return


def test_a_log_of_another_identity_is_named(log, tmp_path):
    """F49."""
    make_log(tmp_path / "other")
    (log / SECOND).write_bytes((tmp_path / "other" / SECOND).read_bytes())
    assert "log-id" in kinds(log)


def test_what_is_no_log_is_unreadable_and_not_damaged(tmp_path):
    """F49."""
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        report = verify(path)
        assert report.verdict is Verdict.UNREADABLE
        assert [finding.kind for finding in report.findings] == ["not-a-log"]


def test_a_log_of_which_all_segments_are_gone_is_corrupt_and_cannot_be_repaired(log):
    """F49: HEAD tells of them."""
    for path in log.glob("wal-*"):
        path.unlink()
    report = verify(log)
    assert [(one.kind, one.verdict) for one in report.findings] == [("segment-missing", Verdict.CORRUPT)]
    assert "there are no segments" in report.findings[0].why
    assert report.lost == (1, report.seen)
    before = snapshot(log)
    assert "no frame before the damage is intact" in repair(log, write=True).refused
    assert snapshot(log) == before


def test_a_damaged_head_alone_is_still_a_trace_of_a_log(log):
    """F49: so nobody is told that there is none."""
    for path in log.glob("wal-*"):
        path.unlink()
    (log / "HEAD").write_bytes(bytes(8192))
    assert kinds(log) == {"head"}
    assert repair(log, write=True).refused


def test_a_lock_that_may_not_be_asked_for_makes_the_log_count_as_live():
    """F49: so that nothing of a possible owner's is taken for damage."""
    system = Moody()
    wal = opened(system)
    commit(wal, b"one")
    wal.close()
    assert not verify(LOG, filesystem=system).live
    for what, live in (("open", False), ("lock", True)):  # TAIL tells those who may not open LOCK
        system.refused = {"LOCK": what}
        report = verify(LOG, filesystem=system)
        assert (report.live, report.verdict, report.version) == (live, Verdict.SOUND, 1)


def test_a_log_that_never_holds_still_is_told_as_it_was_found_last():
    """F49: the examination is begun anew a few times, not for ever."""
    system = Moody()
    wal = opened(system)
    commit(wal, b"one")
    wal.close()
    system.replace(LOG / "wal-000000000009.idx", b"x")
    looks = 0

    def touch():
        nonlocal looks
        looks += 1
        file = system.open(LOG / "HEAD", "write")
        state = read_head(file)
        Head(file, state).write(state.epoch, state.durable, state.segment, state.offset)
        file.close()

    system.before["HEAD"] = [touch] * 1000
    report = verify(LOG, filesystem=system)
    assert [one.kind for one in report.findings] == ["leftover"]
    assert 5 <= looks < 50


@pytest.mark.parametrize("crash", [False, True])
def test_a_damaged_log_is_reported_or_reads_exactly_what_was_acknowledged(tmp_path, crash):
    """F49, F38: flips, cuts, zeros, frames in another order, segments twice, files away, HEAD and index damaged."""
    acknowledged = make_log(tmp_path / "whole", crash=crash)
    reported = 0
    for seed in range(round(150 * SCALE)):
        path = copy_log(tmp_path / "whole", tmp_path / "log")
        what = damage(path, Random(seed * 2 + crash))
        report = verify(path)
        if report.verdict is Verdict.SOUND:
            assert _read(path) == acknowledged, (seed, what)
        else:
            reported += 1
            assert all(finding.offset >= 0 for finding in report.findings), (seed, what)
    assert reported > 50 * SCALE


def _read(path):
    try:
        wal = opened_really(path)
    except PenstockError as error:
        return error
    try:
        return contents(wal)
    finally:
        wal.close()


CHURNER = """
import sys
from pathlib import Path
from publishers.errors import LogBusy
from publishers.wal import RealFileSystem, Wal
from tests.publishers.wal.logs import commit, options
print("open", flush=True)
for turn, _ in enumerate(sys.stdin, 1):
    while True:
        try:
            wal = Wal.open(Path(sys.argv[1]), options(retain_bytes=262144), filesystem=RealFileSystem())
            break
        except LogBusy:
            continue  # the lock was being looked at
    for _ in range(10):
        commit(wal, b"x" * 5000)
        wal.maintain()
    wal.show(wal.visible)
    commit(wal, b"w" * 9000)
    wal.forget_after(wal.visible)
    wal.show(None)
    wal.close() if turn % 2 else wal.abandon()
    print("done", flush=True)
"""

WRITER = """
import sys
from pathlib import Path
from publishers.wal import RealFileSystem, Wal
from tests.publishers.wal.logs import commit, options
wal = Wal.open(Path(sys.argv[1]), options(retain_bytes=1048576), filesystem=RealFileSystem())
print("open", flush=True)
for _ in sys.stdin:
    for _ in range(20):
        commit(wal, b"x" * 5000)
        wal.maintain()
    print("done", flush=True)
"""


@pytest.mark.parametrize("code", [WRITER, CHURNER], ids=["WRITER", "CHURNER"])
def test_beside_a_writer_in_another_process_it_is_quiet(tmp_path, script, code):
    """F49: whatever commits, rolls, retention, cuts, closing and opening do meanwhile.

    One turn of the writer for each look, because retention must not overtake who looks.
    """
    make_log(tmp_path / "log", segments=1)
    path = tmp_path / "log"
    with script(code, path) as writer:
        assert writer.stdout.readline() == "open\n"
        newest = 0
        while newest < 500 * SCALE:  # several segments, and the first ones are gone
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            report = verify(path)
            assert writer.stdout.readline() == "done\n"
            assert report.live or code == CHURNER
            assert [one for one in report.findings if one.verdict] == []
            assert report.version >= newest
            newest = report.version
    assert verify(path).verdict <= Verdict.TORN

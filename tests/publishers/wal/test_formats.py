"""F144: logs of format 1 under this version, and logs of a later version under this one."""

import json
import struct
from contextlib import suppress
from zlib import crc32

import pytest

from publishers.errors import FormatTooNew, LogError, LogFailed, LogFull
from publishers.log.lineage import Lineage
from publishers.model.position import Position, PositionToken
from publishers.wal import Follower, Wal
from publishers.wal.append.active_segment import control_frame
from publishers.wal.checks import Verdict, dump, repair, verify
from publishers.wal.files.head import HEAD_NAME, HeadState, read_head
from publishers.wal.files.segment import DATA_START, FORMAT, SegmentHeader, segment_name, segment_number
from publishers.wal.format.frame import CONTROL, Chain, Scan
from tests.harness.inside import writer_of
from tests.publishers.wal.logs import OPTIONS, commit, contents, fill_segments, opened, options
from tests.simulation import format1
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.golden import GOLDEN
from tests.simulation.ledger import contents as everything
from tests.simulation.workload import LOG, Clock

LARGE = sorted(path.name for path in (GOLDEN / "format-1").iterdir() if path.is_dir())
ONE = b"one", b"two" * 300


def golden(name):
    files = {path.name: path.read_bytes() for path in (GOLDEN / "format-1" / name).iterdir()}
    del files["expected.json"]
    return files


def older(*bodies, settings=OPTIONS, seed=0):
    """A log of format 1, with an epoch that wrote nothing at its end."""
    system = SimulatedFileSystem(seed)
    with format1.written():
        log = opened(system, settings)
        for body in bodies:
            commit(log, body)
        log.close()
        opened(system, settings).close()
    return system


def forms(system):
    """The format of each segment; no frame in it is of another one."""
    found = {}
    for name in system.listing(LOG):
        number = segment_number(name)
        if number is None:
            continue
        file = system.open(LOG / name, "read")
        header = SegmentHeader.unpack(file.pread(DATA_START, 0))
        found[number] = header.form
        for _, frame, payload in Scan(
            file, DATA_START, file.size(), Chain(header.previous, header.first_version - 1)
        ):
            if frame.flags & CONTROL:
                assert struct.unpack_from("<I", payload, 4)[0] == (header.form if header.form > 1 else 0)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("name", LARGE)
def test_a_log_of_format_1_is_read_verified_and_dumped_as_it_is(name):
    system = SimulatedFileSystem.of(LOG, golden(name))
    before = system.snapshot(LOG)
    report = verify(LOG, filesystem=system)
    assert report.verdict is Verdict.SOUND
    assert sum(1 for _ in dump(report, filesystem=system)) == report.frames
    assert not repair(LOG, filesystem=system).steps
    follower = Follower.open(LOG, filesystem=system)
    assert len(everything(follower.reader)) == follower.visible
    assert follower.opening[1] == 0
    assert all(not epoch.random for epoch in follower.epochs)
    follower.close()
    assert system.snapshot(LOG) == before


@pytest.mark.parametrize("name", LARGE)
def test_an_opening_for_writing_begins_a_segment_of_the_present_format_once(name):
    system = SimulatedFileSystem.of(LOG, golden(name))
    files = golden(name)
    kept = json.loads((GOLDEN / "format-1" / name / "expected.json").read_text())
    segments = len(forms(system))
    for _ in range(2):
        log = Wal.open(LOG, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))
        assert forms(system) == [1] * segments + [2]
        assert [list(epoch[:2]) for epoch in log.epochs[:-1]] == kept["epochs"][:-1]
        assert not any(epoch.random for epoch in log.epochs[:-1])
        assert log.epochs[-1].random == writer_of(log).random > 0
        while log.maintain():
            pass
        log.close()
        assert verify(LOG, filesystem=system).verdict is Verdict.SOUND
    for number in range(1, segments + 1):
        name = segment_name(number)
        assert bytes(system.content(LOG / name)).rstrip(b"\0") == files[name].rstrip(b"\0")


@pytest.mark.parametrize("name", LARGE)
def test_a_damaged_log_of_format_1_is_repaired(name):
    files = golden(name)
    last = max(name for name in files if name.endswith(".log"))
    damaged = bytearray(files[last])
    end = len(bytes(damaged).rstrip(b"\0"))
    damaged[end - 100] ^= 1
    system = SimulatedFileSystem.of(LOG, {**files, last: bytes(damaged)})
    assert verify(LOG, filesystem=system).verdict is Verdict.CORRUPT
    done = repair(LOG, write=True, filesystem=system)
    assert done.after.verdict is Verdict.SOUND
    assert forms(system)[-1] == FORMAT
    kept = everything(Follower.open(LOG, filesystem=system).reader)
    whole = everything(Follower.open(LOG, filesystem=SimulatedFileSystem.of(LOG, files)).reader)
    assert kept == {version: whole[version] for version in kept}
    assert done.after.version == done.before.version


@pytest.mark.parametrize("bodies", [(), ONE, (b"%04d" % 7 * 4000,) * 9], ids=["empty", "small", "segments"])
@pytest.mark.parametrize("ending", ["kill", "power"])
def test_a_crash_in_any_step_of_the_opening_that_changes_the_format_leaves_the_log_whole(bodies, ending):
    """F144, F38: and in any step of the opening after it."""
    settings = options(fill_step=0, reserve_bytes=4096)
    struck = 0
    for last in range(1, 200):
        system = older(*bodies, settings=settings, seed=last)
        expected = contents(Follower.open(LOG, filesystem=system))
        system.faults = {system.operations + last: "crash"}
        try:
            opened(system, settings).abandon()
            break
        except PowerCut:
            pass
        getattr(system, {"kill": "kill", "power": "power_cut"}[ending])()
        struck += 1
        assert verify(LOG, filesystem=system).verdict is not Verdict.CORRUPT, last
        system.faults = {system.operations + 1 + last % 7: "crash"}
        with suppress(PowerCut):
            opened(system, settings).abandon()
        system.faults.clear()
        system.power_cut()
        log = opened(system, settings)
        assert contents(log) == expected, last
        assert (log.epochs[-1].first_version, log.epoch > 2) == (len(bodies) + 1, True)
        assert [epoch.random > 0 for epoch in log.epochs] == [False] * (len(log.epochs) - 1) + [True]
        commit(log, b"new")
        found = forms(system)
        assert found == sorted(found)
        assert found[-1] == FORMAT
        log.close()
        assert verify(LOG, filesystem=system).verdict is Verdict.SOUND, last
    assert struck > 12


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
def test_an_opening_that_changes_the_format_and_fails_can_be_tried_again(kind):
    """F144, F39."""
    failed = 0
    for last in range(1, 200):
        system = older(*ONE)
        operations = system.operations
        system.faults = {operations + last: kind}
        try:
            opened(system).abandon()
        except (LogFailed, LogFull):
            failed += 1
        if system.operations < operations + last:
            break
        system.faults.clear()
        system.power_cut()
        log = opened(system)
        assert contents(log) == [(1, [b"one"]), (2, [b"two" * 300])]
        assert forms(system)[-1] == FORMAT
        log.close()
        assert verify(LOG, filesystem=system).verdict is Verdict.SOUND
    assert failed > (8 if kind == "EIO" else 2)


def test_a_full_disk_does_not_keep_a_log_from_the_present_format():
    """F144: room is kept back for the segment that the opening begins."""
    settings = options(reserve_bytes=4096, fill_step=0)
    system = older(*ONE, settings=settings)
    system.capacity = sum(map(len, system.snapshot(LOG).values()))
    log = opened(system, settings)
    assert contents(log) == [(1, [b"one"]), (2, [b"two" * 300])]
    assert forms(system) == [1, 2]
    with pytest.raises(LogFull):
        commit(log, b"more")
    log.close()


def test_forgetting_back_into_a_segment_of_format_1_begins_another_one_behind_it():
    """F144, E20: what is withheld there was committed before the format changed."""
    system = SimulatedFileSystem()
    with format1.written():
        log = opened(system)
        commit(log, b"one")
        log.show(1)
        commit(log, b"two")
        log.close()
    log = opened(system)
    commit(log, b"three")
    assert forms(system) == [1, 2]
    log.forget_after(1)
    assert forms(system) == [1, 2]
    log.show(None)
    commit(log, b"new")
    assert contents(log) == [(1, [b"one"]), (2, [b"new"])]
    assert [epoch.first_version for epoch in log.epochs] == [1, 2]
    log.abandon()
    system.power_cut()
    log = opened(system)
    assert contents(log) == [(1, [b"one"]), (2, [b"new"])]
    log.close()
    assert verify(LOG, filesystem=system).verdict is Verdict.SOUND


def test_links_are_made_in_the_order_of_the_segments_when_the_format_changes():
    """F144, F46: also one that a crash has left to be made."""
    system = SimulatedFileSystem()
    with format1.written():
        log = opened(system)
        log.links.add("spark")
        commit(log, b"one")
        fill_segments(log, 2)
        log.close()
    system.unlink(LOG / "held" / "spark" / segment_name(2))
    log = opened(system)
    commit(log, b"last")
    held = Follower.open(LOG, filesystem=system, consumer="spark")
    assert contents(held) == contents(log)
    held.close()
    log.close()


def test_tokens_of_format_1_stay_valid_over_the_change_of_format():
    """F144: those of the last epoch too, which wrote nothing and is no longer known."""
    system = older(*ONE)
    follower = Follower.open(LOG, filesystem=system)
    told = [Lineage(follower).token(Position(*place)) for place in ((1, 0), (1, 2), (2, 1), (3, 0))]
    head = PositionToken(follower.log_id, 2, Position(3))
    log = opened(system)
    commit(log, b"three")
    lineage = Lineage(log)
    assert not any("." in str(token) for token in told)
    for token in (*told, head):
        assert lineage.judge(token, Position(1), Position(4)) == token.position
    follower.refresh()
    assert Lineage(follower).judge(lineage.token(Position(4)), Position(1), Position(4)) == Position(4)
    assert follower.opening == log.epochs[-1][::2]
    follower.close()
    log.close()


def test_a_reader_through_links_knows_the_epochs_that_retention_has_taken_from_the_log():
    """F144, F46: what it reads has the ids, and the places, that everybody saw who read it earlier."""
    system = SimulatedFileSystem()
    settings = options(retain_bytes=0)
    log = opened(system, settings)
    log.links.add("spark")
    places = [Position(version, index) for version in range(1, 5) for index in (0, 2)]
    seen = []
    for number in range(4):
        if number:
            log.close()
            log = opened(system, settings)
        commit(log, b"%d" % number)
        lineage = Lineage(log)
        seen += [
            (lineage.change_id(place), lineage.token(place)) for place in places[2 * number : 2 * number + 2]
        ]
    fill_segments(log, 4)
    while log.maintain():
        pass
    fill_segments(log, 4)
    log.close()
    log = opened(system, settings)
    assert log.reader.oldest > 4
    assert log.epochs[0].first_version > 1
    held = Follower.open(LOG, filesystem=system, consumer="spark")
    lineage = Lineage(held)
    assert [(lineage.change_id(place), lineage.token(place)) for place in places] == seen
    head = Position(held.visible + 1)
    for _, token in seen:
        assert lineage.judge(token, Position(1), head) == token.position
    assert held.epochs == log.epochs
    held.close()
    log.close()


# --- later formats -----------------------------------------------------------------------------------------------------


def with_slot(system, addition):
    """A slot of HEAD that counts, with another addition."""
    content = system.content(LOG / HEAD_NAME)
    state = read_head(system.open(LOG / HEAD_NAME, "read"))
    slot = state._replace(counter=state.counter + 1).pack()[:88]
    at = 4096 * ((state.counter + 1) % 2)
    content[at : at + 4096] = bytes(4096)
    data = slot + addition
    content[at : at + len(data) + 4] = data + struct.pack("<I", crc32(addition, crc32(slot[:84])))


def newer_head(system):
    with_slot(system, struct.pack("<HHQQQ", 3, 32, 1, 2, 3))


def newer_segment(system):
    content = system.content(LOG / segment_name(1))
    content[:DATA_START] = SegmentHeader.unpack(bytes(content[:DATA_START]))._replace(form=3).pack()


def newer_frame(payload):
    def change(system):
        file = system.open(LOG / segment_name(1), "read")
        header = SegmentHeader.unpack(file.pread(DATA_START, 0))
        chain = Chain(header.previous, header.first_version - 1)
        scan = Scan(file, DATA_START, file.size(), chain)
        frames = list(scan)
        data = control_frame(payload, chain, frames[-1][1].committed_at, chain.version)
        system.content(LOG / segment_name(1))[scan.end : scan.end + len(data)] = data
        state = read_head(system.open(LOG / HEAD_NAME, "read"))
        slot = state._replace(counter=state.counter + 1, offset=scan.end + len(data)).pack()
        at = 4096 * ((state.counter + 1) % 2)
        system.content(LOG / HEAD_NAME)[at : at + len(slot)] = slot

    return change


LATER = {
    "HEAD": (newer_head, "format", 3, 2),
    "segment": (newer_segment, "format", 3, 2),
    "frame": (newer_frame(struct.pack("<IIQ", 2, 3, 1)), "format", 3, 2),
    "kind": (newer_frame(struct.pack("<IIQ", 77, 2, 1)), "control kind", 77, None),
}


@pytest.mark.parametrize("name", LATER)
def test_what_a_later_version_wrote_is_too_new_and_never_called_damaged(name):
    """F144."""
    change, what, found, known = LATER[name]
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.close()
    change(system)
    left = {file: data for file, data in system.snapshot(LOG).items() if file not in ("LOCK", "TAIL")}
    with pytest.raises(FormatTooNew, match=f"has {what} {found}") as caught:
        opened(system)
    assert isinstance(caught.value, LogError)
    assert (caught.value.found, caught.value.known) == (found, known or caught.value.known)
    if name == "HEAD":
        now = {file: data for file, data in system.snapshot(LOG).items() if file not in ("LOCK", "TAIL")}
        assert now == left
    system.unlink(LOG / "TAIL")
    for read in (contents, lambda follower: follower.epochs):
        with pytest.raises(FormatTooNew):
            read(Follower.open(LOG, filesystem=system))
    report = verify(LOG, filesystem=system)
    assert report.verdict is Verdict.UNREADABLE
    assert [one.kind for one in report.findings] == ["format"]
    assert f"has {what} {found}" in report.findings[0].why
    refused = repair(LOG, write=True, filesystem=system)
    assert refused.refused is not None
    assert not refused.steps
    assert sum(1 for _ in dump(report, salvage=True, filesystem=system)) >= 3


def test_an_unfinished_file_of_a_later_version_stays():
    """F144: nothing is tidied up before it is known that the log can be opened."""
    system = SimulatedFileSystem()
    opened(system).close()
    newer_head(system)
    system.open(LOG / "theirs.tmp", "create").close()
    with pytest.raises(FormatTooNew):
        opened(system)
    assert "theirs.tmp" in system.listing(LOG)


def test_head_of_format_1_stays_as_it_was_until_an_epoch_begins():
    """F144: a crash before leaves a log that the version that wrote it still opens."""
    system = older(*ONE)
    state = read_head(system.open(LOG / HEAD_NAME, "read"))
    assert state.random == 0
    assert len(state.pack()) == 88
    assert HeadState.unpack(state.pack()) == state

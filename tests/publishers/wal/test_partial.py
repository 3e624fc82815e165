"""F144: a directory of which a part is older than the rest, or missing: told, and never taken for a whole log."""

import contextlib

import pytest

from publishers.errors import PositionForked, WalCorrupted
from publishers.log.lineage import Lineage
from publishers.model.position import Position
from publishers.wal import Follower
from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.head import HEAD_NAME, SLOT_BYTES, read_head
from publishers.wal.files.segment import index_name, segment_name
from publishers.wal.files.tail_page import TAIL_NAME
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG

ROLLED = options(segment_bytes=65536, fill_step=0)


def life(copies: int = 1) -> tuple[SimulatedFileSystem, dict[str, bytes], list, object]:
    """A log of four segments, a copy of it that was made in the second, what it held, and a token at its end."""
    system = SimulatedFileSystem()
    log = opened(system, ROLLED)
    fill_segments(log, 2)
    commit(log, b"copied")
    log.close()
    copy = system.snapshot(LOG)
    for _ in range(copies):
        log = opened(system, ROLLED)
        fill_segments(log, 4)
    commit(log, b"last")
    found = contents(log)
    token = Lineage(log).token(Position(log.visible + 1))
    log.close()
    return system, copy, found, token


def put_back(system, copy, *, beyond: bool) -> None:
    """HEAD and segments of a copy over the log; what came later goes, or all but the newest segment does."""
    for name, data in copy.items():
        if name == HEAD_NAME or name.startswith("wal-"):
            system.replace(LOG / name, data)
    for number in (3, 4):
        for name in (segment_name(number), index_name(number)):
            if (beyond or number == 4) and name in system.listing(LOG):
                system.unlink(LOG / name)


@pytest.mark.parametrize("beyond", [True, False], ids=["all of the later segments", "the newest segment"])
def test_an_older_head_without_the_newest_segments_is_corrupt_for_the_owner_as_for_a_reader(beyond):
    """F144, F37: TAIL tells what was shown since the machine was started, and no crash can have taken it."""
    system, copy, _, _ = life()
    put_back(system, copy, beyond=beyond)
    with pytest.raises(WalCorrupted, match="segment is missing"):
        Follower.open(LOG, filesystem=system)
    for _ in range(2):
        with pytest.raises(
            WalCorrupted, match=r"segment is missing; some files.*'penstock repair DIR' repairs it"
        ) as caught:
            opened(system, ROLLED)
        assert caught.value.segment == (3 if beyond else 4)
    assert verify(LOG, filesystem=system).verdict is Verdict.CORRUPT


def test_an_older_segment_with_an_older_head_is_corrupt():
    """F144: the segment that is there has not all that was shown of it."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.close()
    copy = system.snapshot(LOG)
    log = opened(system)
    assert commit(log, b"two") == 2
    log.close()
    for name in (HEAD_NAME, segment_name(1)):
        system.replace(LOG / name, copy[name])
    with pytest.raises(WalCorrupted, match="TAIL records version 2 as visible"):
        opened(system)
    system.unlink(LOG / TAIL_NAME)
    log = opened(system)
    assert contents(log) == [(1, [b"one"])]
    log.close()


def test_a_head_that_is_merely_older_than_the_segments_is_no_loss():
    """F37: whatever HEAD does not tell is found by the scan."""
    system, copy, found, _ = life()
    system.replace(LOG / HEAD_NAME, copy[HEAD_NAME])
    log = opened(system, ROLLED)
    assert contents(log) == found
    log.close()


def test_what_was_shown_before_the_machine_was_started_is_told_by_head_alone():
    """F144: TAIL is never synced, so another boot does not believe it; the places that were kept are told apart all the same."""
    system, copy, _, token = life()
    put_back(system, copy, beyond=True)
    system.restart()
    log = opened(system, ROLLED)
    with pytest.raises(PositionForked) as caught:
        Lineage(log).judge(token, Position(1), Position(log.visible + 1))
    assert caught.value.end is None
    log.close()


def test_the_repair_of_such_a_log_names_the_choices_and_what_each_loses():
    """F144, F49."""
    system, copy, found, token = life()
    put_back(system, copy, beyond=True)
    files = system.snapshot(LOG)
    planned = repair(LOG, filesystem=system)
    assert planned.refused is None
    assert [step.action for step in planned.steps] == ["cut"]
    kept = verify(LOG, filesystem=system).version
    assert planned.lost == (kept + 1, len(found))
    first, second = planned.choices
    assert "restore HEAD and the missing" in first
    assert "nothing is lost" in first
    assert f"versions {kept + 1} to {len(found)} are lost" in second
    assert planned.as_json()["choices"] == planned.choices
    assert {name: data for name, data in system.snapshot(LOG).items() if name != "LOCK"} == {
        name: data for name, data in files.items() if name != "LOCK"
    }
    done = repair(LOG, write=True, filesystem=system)
    assert done.after.verdict is Verdict.SOUND
    log = opened(system, ROLLED)
    assert contents(log) == found[:kept]
    commit(log, b"another")
    with pytest.raises(PositionForked):
        Lineage(log).judge(token, Position(1), Position(log.visible + 1))
    log.close()
    assert verify(LOG, filesystem=system).verdict is Verdict.SOUND


def test_a_repair_that_dies_anywhere_leaves_the_choice_or_has_made_it():
    """F144, F38: no opening goes on without what was shown unless the repair has said that it is given up."""
    outcomes = set()
    for last in range(1, 200):
        system, copy, found, _ = life()
        put_back(system, copy, beyond=True)
        system.faults = {system.operations + last: "crash"}
        try:
            repair(LOG, write=True, filesystem=system)
            break
        except PowerCut:
            system.kill()
        system.faults = {}
        head = read_head(system.open(LOG / HEAD_NAME, "read"))
        try:
            log = opened(system, ROLLED)
        except WalCorrupted:
            outcomes.add("refused")
            assert repair(LOG, write=True, filesystem=system).after.verdict is Verdict.SOUND
            log = opened(system, ROLLED)
        else:
            outcomes.add("opened")
            assert head.epoch > 1, last  # it was that of the copy before
        assert found[: len(contents(log))] == contents(log)
        log.close()
        assert verify(LOG, filesystem=system).verdict is Verdict.SOUND, last
    assert outcomes == {"refused", "opened"}


def test_a_directory_that_was_emptied_holds_a_new_log():
    """F144: what TAIL tells of another log is no evidence, also if the creation of the new one dies."""
    for last in (*range(1, 12), None):
        system, _, _, token = life()
        for name in system.listing(LOG):
            if name not in ("LOCK", TAIL_NAME):
                system.unlink(LOG / name)
        if last is not None:
            system.faults = {system.operations + last: "crash"}
            with contextlib.suppress(PowerCut):
                opened(system, ROLLED).abandon()
            system.faults = {}
            system.kill()
        log = opened(system, ROLLED)
        assert log.log_id != token.log_id
        assert commit(log, b"new") == 1
        log.close()


def two_histories() -> tuple[SimulatedFileSystem, dict[str, bytes]]:
    """A log, and the files of a copy of it that went on by itself; the number of the epoch is the same."""
    ours = SimulatedFileSystem()
    log = opened(ours)
    commit(log, b"common")
    log.close()
    theirs = SimulatedFileSystem.of(LOG, ours.snapshot(LOG), 1)
    for system, body in ((ours, b"ours"), (theirs, b"theirs")):
        log = opened(system)
        commit(log, body)
        log.close()
    return ours, theirs.snapshot(LOG)


def test_head_of_another_history_is_corrupt_although_every_number_fits():
    """F144: their epochs have one number and other random bits."""
    system, copy = two_histories()
    ours = system.content(LOG / HEAD_NAME)
    assert [ours[:88] == copy[HEAD_NAME][:88], ours[:108] == copy[HEAD_NAME][:108]] == [True, False]
    system.replace(LOG / HEAD_NAME, copy[HEAD_NAME])
    system.restart()
    with pytest.raises(
        WalCorrupted, match=r"it is of epoch 2\.[\w-]{11}, and HEAD of 2\.[\w-]{11}; some files"
    ):
        opened(system)
    report = verify(LOG, filesystem=system)
    assert [(one.kind, one.name, one.verdict) for one in report.findings] == [
        ("history", "HEAD", Verdict.CORRUPT)
    ]
    files = system.snapshot(LOG)
    done = repair(LOG, write=True, filesystem=system)
    assert "two histories" in done.refused
    assert not done.steps
    assert ["restore HEAD" in done.choices[0], "remove HEAD" in done.choices[1]] == [True, True]
    assert {**system.snapshot(LOG), "LOCK": b""} == {**files, "LOCK": b""}


def test_a_cut_that_an_older_head_tells_of_takes_nothing_that_was_committed_since():
    """F144, F29: that one was finished, and the log went on; TAIL tells of a later epoch."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"kept")
    log.show(1)
    commit(log, b"forgotten")
    system.faults = {system.operations + 3: "crash"}  # HEAD tells of the cut by then
    with pytest.raises(PowerCut):
        log.forget_after(1)
    system.faults = {}
    system.kill()
    older = bytes(system.content(LOG / HEAD_NAME))
    log = opened(system)
    commit(log, b"committed since")
    log.publish_tail(log.visible)
    whole = contents(log)
    log.abandon()
    system.replace(LOG / HEAD_NAME, older)
    files = system.snapshot(LOG)
    with pytest.raises(
        WalCorrupted, match=r"HEAD records a truncation in epoch .*: HEAD is older than the rest"
    ):
        opened(system)
    report = verify(LOG, filesystem=system)
    assert ("history", "HEAD", Verdict.CORRUPT) in [
        (one.kind, one.name, one.verdict) for one in report.findings
    ]
    assert "two histories" in repair(LOG, write=True, filesystem=system).refused
    kept = system.snapshot(LOG)
    assert {name: kept[name] for name in files if name.startswith("wal-")} == {
        name: data for name, data in files.items() if name.startswith("wal-")
    }
    system.unlink(LOG / HEAD_NAME)
    repair(LOG, write=True, filesystem=system)
    log = opened(system)
    assert contents(log) == whole == [(1, [b"kept"]), (2, [b"committed since"])]
    log.close()


def test_removing_head_settles_which_history_is_meant():
    """F144: as the repair says."""
    system, copy = two_histories()
    system.replace(LOG / HEAD_NAME, copy[HEAD_NAME])
    system.unlink(LOG / HEAD_NAME)
    done = repair(LOG, write=True, filesystem=system)
    assert done.after.verdict is Verdict.SOUND
    state = read_head(system.open(LOG / HEAD_NAME, "read"))
    assert len(state.pack()) == SLOT_BYTES
    log = opened(system)
    assert contents(log) == [(1, [b"common"]), (2, [b"ours"])]
    log.close()

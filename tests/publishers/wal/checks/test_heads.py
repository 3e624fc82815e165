"""F49: what HEAD tells of itself."""

import contextlib
from uuid import UUID

import pytest

from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.head import CUT, SLOT_BYTES, HeadState, read_head
from publishers.wal.files.segment import segment_name
from tests.publishers.wal.checks.damage import Moody
from tests.publishers.wal.logs import commit, contents, fill_segments, opened
from tests.simulation.filesystem import PowerCut
from tests.simulation.workload import LOG


def slots(system):
    """Both slots, the older one first, with their places."""
    data = bytes(system.content(LOG / "HEAD"))
    found = [(HeadState.unpack(data[at : at + SLOT_BYTES]), at) for at in (0, 4096)]
    return sorted(found, key=lambda slot: slot[0].counter)


@pytest.mark.parametrize(
    "change",
    [
        lambda slot: slot._replace(log_id=UUID(int=7)),
        lambda slot: slot._replace(counter=slot.counter - 2),
        lambda slot: slot._replace(counter=slot.counter - 1),
    ],
    ids=["another log", "an old write", "the place of the other one"],
)
def test_a_valid_slot_that_does_not_fit_the_other_one_is_named_and_repaired(change):
    """F49."""
    system = Moody()
    wal = opened(system)
    commit(wal, b"one")
    wal.close()
    older, at = slots(system)[0]
    system.content(LOG / "HEAD")[at : at + SLOT_BYTES] = change(older).pack()
    report = verify(LOG, filesystem=system)
    assert [(one.kind, one.verdict, one.offset) for one in report.findings] == [
        ("head-slot", Verdict.CORRUPT, at)
    ]
    done = repair(LOG, write=True, filesystem=system)
    assert [step.action for step in done.steps] == ["head", "reopen"]
    assert done.after.verdict is Verdict.SOUND
    wal = opened(system)
    assert contents(wal) == [(1, [b"one"])]
    wal.close()


def test_a_creation_that_died_at_any_operation_is_no_damage_and_the_next_opening_finishes_it():
    """F49, F38: HEAD is made first, with one slot; that there is no other one yet is no damage."""
    kinds = set()
    for last in range(1, 1000):
        system = Moody(last)
        system.faults = {last: "crash"}
        with contextlib.suppress(PowerCut):
            opened(system).abandon()
            break
        system.kill()
        report = verify(LOG, filesystem=system)
        assert report.verdict is not Verdict.CORRUPT, (last, report.findings)
        kinds |= {one.kind for one in report.findings}
        done = repair(LOG, write=True, filesystem=system)
        if report.verdict is Verdict.TORN:
            assert [step.action for step in done.steps] == ["reopen"], last
            assert done.after.verdict is Verdict.SOUND
        wal = opened(system)
        commit(wal, b"first")
        assert contents(wal) == [(1, [b"first"])]
        wal.close()
    assert last > 5
    assert {"unfinished", "not-a-log"} <= kinds


@pytest.mark.parametrize("size", [5000, 8191, 8193])
def test_a_head_of_another_size_is_named_and_repaired(size):
    """F49."""
    system = Moody()
    wal = opened(system)
    commit(wal, b"one")
    wal.close()
    good = bytes(system.content(LOG / "HEAD"))
    system.replace(LOG / "HEAD", good[:size].ljust(size, b"\0"))
    report = verify(LOG, filesystem=system)
    assert ("head", Verdict.CORRUPT, min(size, 8192)) in [
        (one.kind, one.verdict, one.offset) for one in report.findings
    ]
    assert repair(LOG, write=True, filesystem=system).after.verdict is Verdict.SOUND
    assert len(system.content(LOG / "HEAD")) == 8192


def test_a_cut_that_was_not_finished_is_torn_and_its_rest_is_no_part_of_the_log():
    """F49, F28: whatever was left of it when the owner died."""
    kinds = set()
    for last in range(1, 1000):
        system = Moody(last)
        wal = opened(system)
        commit(wal, b"shown")
        wal.show(1)
        fill_segments(wal, 3)
        system.faults = {system.operations + last: "crash"}
        with contextlib.suppress(PowerCut):
            wal.forget_after(1)
            break
        system.kill()
        state = read_head(system.open(LOG / "HEAD", "read"))
        report = verify(LOG, filesystem=system)
        assert report.verdict <= Verdict.TORN, (last, report.findings)
        kinds |= {one.kind for one in report.findings if one.verdict}
        if state.flags & CUT:
            assert "cut" in {one.kind for one in report.findings}
            assert (report.version, report.end.segment) == (1, 1)
            assert {one.name for one in report.findings if one.kind == "leftover"} == {
                name for name in system.listing(LOG) if name in (segment_name(2), segment_name(3))
            }
            done = repair(LOG, write=True, filesystem=system)
            assert [step.action for step in done.steps] == ["reopen"]
            assert done.after.verdict is Verdict.SOUND
            assert segment_name(2) not in system.listing(LOG)
    assert {"cut", "leftover"} <= kinds

"""F49: what is found in the segments, also when they cannot be read, or go while somebody looks."""

from zlib import crc32

import pytest

from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.checks.verify import examine
from publishers.wal.files.segment import segment_name, segment_number
from publishers.wal.format.frame import CONTROL, LAST, FrameHeader, seal
from tests.harness.inside import catalog_of
from tests.publishers.wal.checks.damage import Moody, frames_in
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.simulation.workload import LOG

LARGE = [b"%d" % number * 1500 for number in range(6)]


def filled(segments=3, **overrides):
    system = Moody()
    wal = opened(system, options(**overrides))
    fill_segments(wal, segments)
    return system, wal


def housekept(wal):
    while wal.maintain():
        pass


def found(report):
    return [(one.kind, one.verdict, one.segment) for one in report.findings if one.verdict]


@pytest.mark.parametrize("what", ["open", "pread"])
def test_a_segment_that_may_not_be_read_is_unreadable_and_what_is_behind_is_examined(what):
    """F49."""
    system, wal = filled()
    housekept(wal)
    wal.close()
    whole = verify(LOG, filesystem=system)
    system.refused = {segment_name(2): what}
    report = verify(LOG, filesystem=system)
    assert found(report) == [("unreadable", Verdict.UNREADABLE, 2)]
    assert report.broken is Verdict.UNREADABLE
    assert "Permission denied" in report.findings[0].why
    assert report.lost == (report.version + 1, whole.version)
    assert report.end.segment == 1
    assert report.frames > 2


def test_a_transaction_that_was_begun_and_never_ended_is_torn_and_settled():
    """F49, F38: its first frames are whole, and then nothing was written."""
    system, wal = filled(1)
    commit(wal, b"kept")
    last = wal.visible
    (begun,) = wal.append([sealed(*LARGE)])
    assert len(begun.frames) > 1
    wal.abandon()
    content = system.content(LOG / segment_name(1))
    at, size = frames_in(content)[-1]
    content[at : at + size] = bytes(size)
    report = verify(LOG, filesystem=system)
    assert found(report) == [("unfinished", Verdict.TORN, 1)]
    assert (report.version, report.seen) == (last, last + 1)
    done = repair(LOG, write=True, filesystem=system)
    assert [step.action for step in done.steps] == ["reopen"]
    assert done.after.verdict is Verdict.SOUND
    wal = opened(system)
    assert contents(wal)[-1] == (last, [b"kept"])
    wal.close()


def test_a_transaction_without_its_end_in_a_closed_segment_is_corrupt():
    """F49: a closed segment was synced as a whole before the next one got its name."""
    system = Moody()
    wal = opened(system)
    fill_segments(wal, 1)
    while len(frames_in(system.content(LOG / segment_name(1)))) < 4:
        commit(wal, *LARGE[:4])
    fill_segments(wal, 2)
    housekept(wal)
    wal.close()
    content = system.content(LOG / segment_name(1))
    headers = [(at, FrameHeader.unpack(content, at)) for at, _ in frames_in(content)]
    at = next(at for at, header in headers if header.flags & LAST and header.first_index > 1)
    del content[at:]
    report = verify(LOG, filesystem=system)
    assert ("unfinished", Verdict.CORRUPT, 1) in found(report)
    assert report.broken is Verdict.CORRUPT


def forged(content, at, **changes):
    """Gives the frame at a place other contents and the crc that belongs to them."""
    header = FrameHeader.unpack(content, at)
    payload = changes.pop("payload", bytes(content[at + 80 : at + 80 + header.length]))
    header = header._replace(length=len(payload), **changes)
    made, _ = seal(header.length, crc32(payload), *header[2:])
    content[at : at + 80 + len(payload)] = made + payload


def payloads(report):
    return [(one.segment, one.offset, one.why) for one in report.findings if one.kind == "payload"]


def test_a_segment_of_which_only_the_header_was_written_is_corrupt():
    """F49: a segment gets its name when its checkpoint is durable too."""
    system, wal = filled(2)
    wal.close()
    del system.content(LOG / segment_name(2))[64:]
    report = verify(LOG, filesystem=system)
    assert ("checkpoint", Verdict.CORRUPT, 2) in found(report)
    assert report.end.segment == 1


def test_zeros_behind_the_frames_of_a_closed_segment_are_corrupt():
    """F49: it was cut to its end before the next one was begun."""
    system, wal = filled(2)
    housekept(wal)
    wal.close()
    system.content(LOG / segment_name(1)).extend(bytes(800))
    report = verify(LOG, filesystem=system)
    assert found(report) == [("zeroed", Verdict.CORRUPT, 1)]
    assert "800 bytes before the segment" in report.findings[0].why


def test_a_segment_begins_with_a_checkpoint_and_has_no_other_one():
    """F49: frames whose crc is right, in places where none such is ever written."""
    system, wal = filled(1)
    commit(wal, b"last")
    wal.close()
    content = system.content(LOG / segment_name(1))
    places = [at for at, _ in frames_in(content)]
    kept = bytes(content)
    checkpoint = kept[places[0] + 80 : places[0] + 80 + FrameHeader.unpack(kept, places[0]).length]
    last = FrameHeader.unpack(kept, places[-1])
    forged(content, places[-1], payload=checkpoint, flags=CONTROL, version=last.version - 1)
    report = verify(LOG, filesystem=system)
    assert payloads(report) == [(1, places[-1], "a checkpoint in the wrong place")]
    content[:] = kept[: places[0]] + kept[places[-1] :]
    forged(content, places[0], version=1, previous=0)
    report = verify(LOG, filesystem=system)
    assert payloads(report) == [(1, places[0], "the segment does not begin with a checkpoint")]


def test_progress_is_told_each_mebibyte_and_never_falls():
    """F49."""
    system = Moody()
    wal = opened(system, options(segment_bytes=1 << 22, fill_step=1 << 20))
    settings = options(frame_bytes=1 << 18)
    for _ in range(3):
        for _ in range(2):
            wal.append([sealed(*[b"x" * 100_000] * 12, settings=settings)])
        wal.sync()
    wal.close()
    told = []
    report = verify(LOG, filesystem=system, progress=lambda done, total: told.append((done, total)))
    assert report.segments > 1
    total = sum(system.open(LOG / segment_name(one), "read").size() for one in (1, 2))
    assert {of for _, of in told} == {total}
    done = [one for one, _ in told]
    assert done == sorted(done)
    assert done[-1] == total
    assert 5 < len(done) <= 12


# --- beside a living owner -------------------------------------------------------------------------------------------------


def pruning(system, wal):
    """What deletes every segment but the last one, once."""

    def prune():
        housekept(wal)
        assert verify_names(system) == [catalog_of(wal.reader).entries[-1].number]

    return prune


def verify_names(system):
    return sorted(number for name in system.listing(LOG) if (number := segment_number(name)) is not None)


@pytest.mark.parametrize("moment", ["before the names are listed", "before the first segment is opened"])
def test_what_retention_takes_from_a_living_log_meanwhile_is_no_damage(moment):
    """F49: HEAD tells of it before a segment goes."""
    system, wal = filled(4, retain_bytes=1)
    prune = pruning(system, wal)
    if moment == "before the names are listed":
        system.before[LOG.name] = [prune]
    else:
        system.before[segment_name(1)] = [lambda: None, prune]  # the first time only its size is asked for
    report = examine(system, LOG, live=True)
    assert not any(system.before.values())
    assert found(report) == []
    assert (report.segments, report.version) == (1, wal.visible)
    assert report.oldest == wal.oldest
    wal.close()


@pytest.mark.parametrize("head", ["read", "refused"])
def test_a_segment_that_is_missing_and_was_not_taken_by_retention_is_damage_beside_a_living_owner_too(head):
    """F49."""
    system, wal = filled(3)
    housekept(wal)
    system.unlink(LOG / segment_name(2))
    if head == "refused":
        system.before[segment_name(1)] = [lambda: system.refused.update(HEAD="open")]
    report = verify(LOG, filesystem=system) if head == "read" else examine(system, LOG, live=True)
    assert report.live
    assert ("segment-missing", Verdict.CORRUPT, 2) in found(report)
    assert report.end.segment == 1
    wal.close()


def test_without_a_readable_tail_a_living_log_is_examined_as_far_as_head_vouches():
    """F49: what lies behind may be half written at this moment."""
    system, wal = filled(1)
    housekept(wal)
    vouched = wal.visible
    for _ in range(3):
        commit(wal, b"more")
    system.refused = {"TAIL": "open"}
    report = verify(LOG, filesystem=system)
    assert (report.live, report.version) == (True, vouched)
    assert found(report) == [("unreadable", Verdict.UNREADABLE, 0)]
    assert report.findings[0].name == "TAIL"
    system.refused = {}
    assert verify(LOG, filesystem=system).version == wal.visible == vouched + 3
    wal.close()

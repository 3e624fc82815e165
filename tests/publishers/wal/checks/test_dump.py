"""F49: what can be printed of a log, be it sound, damaged or cut."""

from zlib import crc32

from publishers.wal.checks import Dumped, Verdict, dump, repair, verify
from publishers.wal.checks.dump import DumpGap
from publishers.wal.files.segment import segment_name
from publishers.wal.format.frame import FrameHeader, seal
from tests.publishers.wal.checks.damage import Moody, change, flip, frames_of
from tests.publishers.wal.logs import opened, options, sealed
from tests.simulation.workload import LOG

SECOND = segment_name(2)


def bodies(dumped):
    """What was dumped, as versions with their bodies."""
    found = {}
    for one in dumped:
        if one.columns is not None:
            found.setdefault(one.header.version, []).extend(one.columns.body or [None] * one.header.count)
    return sorted(found.items())


def test_a_dump_of_a_sound_log_gives_what_was_acknowledged_from_any_version_on(log, made):
    """F49."""
    report = verify(log)
    assert bodies(dump(report)) == made[1]
    middle = report.version // 2
    assert bodies(dump(report, since=middle)) == [one for one in made[1] if one[0] >= middle]
    assert not any(one.salvaged for one in dump(report))


def test_a_dump_ends_with_the_unbroken_run_and_salvage_tells_the_gap_and_goes_on(log, made):
    """F49."""
    offset, _ = frames_of(log / SECOND)[4]
    flip(log / SECOND, offset + 85)
    report = verify(log)
    first, _ = report.lost
    assert bodies(dump(report)) == [one for one in made[1] if one[0] < first]
    salvaged = list(dump(report, salvage=True))
    assert [(one.name, one.offset, one.kind) for one in salvaged if isinstance(one, DumpGap)] == [
        (SECOND, offset, "crc")
    ]
    behind = [one for one in salvaged if isinstance(one, Dumped) and one.salvaged]
    assert bodies(behind)[-1] == made[1][-1]
    assert min(one.header.version for one in behind) >= first


def test_what_a_repair_has_kept_is_salvaged_from_the_version_that_is_asked_for(log, made):
    """F49: the damage itself is no gap there, because the file is known to be a rest."""
    offset, _ = frames_of(log / SECOND)[4]
    flip(log / SECOND, offset + 85)
    repair(log, write=True)
    last = made[1][-1][0]
    found = list(dump(verify(log), since=last, salvage=True))
    kept = [one for one in found if one.name.endswith(".broken")]
    assert bodies(kept) == [made[1][-1]]
    assert all(isinstance(one, Dumped) and one.salvaged for one in kept)


def test_a_rest_that_ends_within_its_garbage_is_read_to_its_end(log):
    """F49: such a file ends where recovery found the last byte that is not zero, be that in the middle of a frame."""
    data = (log / SECOND).read_bytes()
    first, second = frames_of(log / SECOND)[2:4]
    (log / f"{SECOND}.torn").write_bytes(data[first[0] : sum(first)] + b"\xff" * 40 + data[second[0] :][:300])
    found = [one for one in dump(verify(log), salvage=True) if one.name.endswith(".torn")]
    assert [(one.offset, one.salvaged) for one in found] == [(0, True)]


def test_a_payload_that_cannot_be_taken_apart_is_dumped_without_columns(log):
    """F49: its crc is right, so it was written like that."""
    path = max(log.glob("wal-*.log"))
    offset, _ = frames_of(path)[-1]
    header = FrameHeader.unpack(path.read_bytes(), offset)
    payload = b"\xff" * header.length
    forged, _ = seal(header.length, crc32(payload), *header[2:])
    change(path, offset, forged + payload)
    report = verify(path.parent)
    assert ("payload", Verdict.CORRUPT, offset) in [
        (one.kind, one.verdict, one.offset) for one in report.findings
    ]
    last = [one for one in dump(report, salvage=True) if isinstance(one, Dumped)][-1]
    assert (last.offset, last.columns, last.annotations) == (offset, None, b"")
    assert last.header.version == header.version


def test_a_compressed_log_is_verified_and_dumped_like_any_other():
    """F49."""
    system = Moody()
    wal = opened(system)
    many = [b"%03d" % number * 1900 for number in range(5)]
    wal.append([sealed(*many, settings=options(compress=True))])
    wal.sync()
    wal.close()
    assert system.content(LOG / segment_name(1)).count(many[1]) == 0
    report = verify(LOG, filesystem=system)
    assert (report.verdict, report.findings) == (Verdict.SOUND, [])
    assert bodies(dump(report, filesystem=system)) == [(1, many)]

"""F144: control frames that are read from the beginning, and written by nobody yet: SKIP and SCHEMAS."""

import struct
from zlib import crc32

import pytest

from publishers.errors import PositionAhead, WalCorrupted
from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.wal import Follower, Wal
from publishers.wal.checks import Verdict, dump, repair, verify
from publishers.wal.files.segment import index_name, segment_name
from publishers.wal.format.control import ControlTables, Kind, decode_control
from publishers.wal.format.frame import CONTROL, NO_PRODUCER, seal
from tests.harness.inside import catalog_of, files_of, writer_of
from tests.publishers.support import QUICK, Probe
from tests.publishers.wal.logs import commit, contents, opened
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

SKIP = struct.pack("<II", Kind.SKIP, 2)
SCHEMAS = struct.pack("<II", Kind.SCHEMAS, 2) + b'{"what":"ever"}'


def control(wal: Wal, payload: bytes, first: int = 0, last: int | None = None) -> None:
    """Writes a control frame as a later version would."""
    writer = writer_of(wal)
    version = writer.appended if last is None else last
    data, header = seal(
        len(payload), crc32(payload), writer._crc, 0, version, 0, CONTROL, writer.synced, writer._committed_at,
        NO_PRODUCER, first, 0, 0,
    )  # fmt: skip
    writer.active.put(data + payload + bytes(-len(payload) & 7))
    writer._crc, writer.appended = header.crc, version


def skip(wal: Wal, last: int) -> None:
    control(wal, SKIP, wal.appended + 1, last)


def mirrored() -> SimulatedFileSystem:
    """Versions 1, 2, 7, 8 in a segment, 20 and 21 in the next, which begins with what does not exist."""
    system = SimulatedFileSystem()
    wal = opened(system)
    commit(wal, b"1")
    commit(wal, b"2")
    skip(wal, 6)
    commit(wal, b"7")
    control(wal, SCHEMAS)
    commit(wal, b"8")
    writer_of(wal).roll()
    skip(wal, 19)
    commit(wal, b"20")
    commit(wal, b"21")
    while wal.maintain():
        pass
    wal.close()
    return system


VERSIONS = [1, 2, 7, 8, 20, 21]
FOUND = [(version, [b"%d" % version]) for version in VERSIONS]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_log_in_which_versions_do_not_exist_is_read_from_every_place(indexed):
    system = mirrored()
    if not indexed:
        system.unlink(LOG / index_name(1))
    follower = Follower.open(LOG, filesystem=system)
    assert (follower.visible, follower.oldest) == (21, 1)
    for version in range(1, 23):
        assert contents(follower, version) == [one for one in FOUND if one[0] >= version]
        seen = [frame.header.version for frame in follower.reader.backward(version, 2**32)]
        assert seen == [one for one in reversed(VERSIONS) if one <= version]
    follower.close()


def test_such_a_log_is_opened_verified_and_goes_on():
    system = mirrored()
    assert verify(LOG, filesystem=system).verdict is Verdict.SOUND
    system.unlink(LOG / index_name(1))
    wal = opened(system)
    assert (wal.appended, contents(wal)) == (21, FOUND)
    assert commit(wal, b"22") == 22
    wal.abandon()
    system.power_cut()
    wal = opened(system)
    assert contents(wal) == [*FOUND, (22, [b"22"])]
    wal.close()
    report = verify(LOG, filesystem=system)
    assert (report.verdict, report.version, report.transactions) == (Verdict.SOUND, 22, 7)
    assert sum(one.header.skips > 0 for one in dump(report, filesystem=system)) == 2


def test_what_does_not_exist_is_cut_off_with_the_transaction_that_a_crash_has_taken():
    """F38: they are written together, and are nothing without it."""
    system = mirrored()
    wal = opened(system)
    skip(wal, 30)
    wal.abandon()
    report = verify(LOG, filesystem=system)
    assert (report.verdict, report.version) == (Verdict.TORN, 21)
    assert [one.kind for one in report.findings if one.verdict] == ["unfinished"]
    wal = opened(system)
    assert (wal.appended, wal.torn_bytes > 0, contents(wal)) == (21, True, FOUND)
    assert commit(wal, b"22") == 22
    wal.close()
    assert verify(LOG, filesystem=system).verdict is Verdict.SOUND


def test_nothing_but_its_transaction_follows_what_does_not_exist():
    """F37."""
    for follow in (lambda wal: control(wal, SCHEMAS), lambda wal: control(wal, SKIP, 10, 12)):
        system = SimulatedFileSystem()
        wal = opened(system)
        commit(wal, b"1")
        skip(wal, 9)
        follow(wal)
        commit(wal, b"last")
        wal.close()
        with pytest.raises(WalCorrupted, match="a control frame out of place"):
            opened(system)


@pytest.mark.parametrize(("first", "last"), [(4, 9), (2, 9), (3, 2)])
def test_what_is_skipped_begins_behind_the_last_version_or_the_log_is_corrupt(first, last):
    system = SimulatedFileSystem()
    wal = opened(system)
    commit(wal, b"1")
    commit(wal, b"2")
    control(wal, SKIP, first, last)
    wal.sync()
    wal.close()
    with pytest.raises(WalCorrupted, match="a control frame out of place"):
        opened(system)


def test_a_version_that_should_exist_is_still_missed():
    """F37: only what is told not to exist may be left out."""
    system = mirrored()
    follower = Follower.open(LOG, filesystem=system)
    sparse = catalog_of(follower).index(1)
    sparse._keys[0], sparse._entries[0] = (1, 1), sparse._entries[0]
    second = follower.reader.locate(2)
    sparse._entries[0] = (sparse._entries[0][0], second.offset)
    with pytest.raises(WalCorrupted, match="version 1 is missing"):
        list(follower.reader.backward(1, 2**32))
    follower.close()


def test_a_damage_behind_versions_that_do_not_exist_loses_what_follows_it_only():
    """F49."""
    system = mirrored()
    content = system.content(LOG / segment_name(2))
    content[len(bytes(content).rstrip(b"\0")) - 3] ^= 1
    done = repair(LOG, write=True, filesystem=system)
    assert (done.lost, done.after.verdict) == ((21, 21), Verdict.SOUND)
    wal = opened(system)
    assert contents(wal) == FOUND[:-1]
    wal.close()
    # What is intact behind a damage is still one chain.
    system = mirrored()
    system.content(LOG / segment_name(1))[700] ^= 1
    report = verify(LOG, filesystem=system)
    assert [one.kind for one in report.findings] == ["crc"]


def test_subscribers_and_pages_of_history_pass_what_does_not_exist(tmp_path):
    """F30: positions among it are places like others, before the next change that exists."""
    path = tmp_path / "log"
    with ChangeLog.open(path, **QUICK) as log:
        with log.transaction() as tx:
            tx.upsert("order", "1", {})
        skip(files_of(log), 6)
        with log.transaction() as tx:
            tx.upsert("order", "7", {})
    with ChangeLog.open(path, **QUICK) as log, ChangeLog.open(path, read_only=True) as follower:
        for one in (log, follower):
            probe, late = Probe(first=100), Probe(first=100)
            one.changes(since=Position(1)).subscribe(probe)
            one.changes(since=one.token(Position(4, 1))).subscribe(late)
            probe.wait_for(4)
            late.wait_for(2)
            assert [change.version for change in probe.changes] == [1, 1, 7, 7]
            assert [change.version for change in late.changes] == [7, 7]
            assert [change.version for change in one.history(since=Position(3)).changes] == [7, 7]
            assert [change.version for change in one.history(reverse=True).changes] == [7, 7, 1, 1]
            assert one.head == Position(8)
            assert one.time_of(3) == one.time_of(7) > one.time_of(1)
            with pytest.raises(PositionAhead):
                one.time_of(8)


@pytest.mark.parametrize("payload", [struct.pack("<II", 0, 2), b"\x05"])
def test_a_control_frame_of_no_kind_is_damage_for_whoever_reads_past_it(payload):
    system = SimulatedFileSystem()
    wal = opened(system)
    commit(wal, b"1")
    control(wal, payload)
    commit(wal, b"2")
    with pytest.raises(WalCorrupted, match="a control frame of"):
        contents(wal)


def test_the_table_of_schemas_is_passed_over():
    tables = ControlTables()
    tables.opened(1, 1, 5)
    before = tables.epochs
    assert decode_control(SCHEMAS, tables) is Kind.SCHEMAS
    assert decode_control(SKIP, tables) is Kind.SKIP
    assert tables.epochs == before

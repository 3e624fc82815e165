"""Power cuts, truncations, flipped bits and failing disks under whole lives of a log (T1, T3, T4, T5).

The lives themselves are run by ``tests/simulation/test_proof.py``.
"""

import contextlib
import logging
import random
from unittest import mock

import pytest

from publishers.errors import LogFailed, LogFull, LogUnreadable, PenstockError, WalCorrupted
from publishers.wal.append import active_segment, writer
from publishers.wal.files import segment
from publishers.wal.files.head import Head
from publishers.wal.keep import holds, retention
from publishers.wal.recover import recovery
from tests.harness.inside import catalog_of, filesystem_of
from tests.harness.scale import each
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.simulation.filesystem import PowerCut, SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG, SmallTrial, Trial


@pytest.fixture(autouse=True)
def quiet():
    """Thousands of logs fail here on purpose, and each would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", [Trial, SmallTrial])
def test_the_lives_contain_what_they_are_meant_to_test(kind):
    trials = [kind(seed) for seed in range(150)]
    for trial in trials:
        trial.run()
    assert sum(trial.rolls for trial in trials) > 50
    assert sum(trial.retentions for trial in trials) > 10
    assert sum(trial.recoveries_cut for trial in trials) > 50
    assert sum(trial.retries for trial in trials) > 10
    assert sum(trial.held for trial in trials) > 3
    assert sum(trial.losses for trial in trials) > 0


def test_one_seed_has_one_result():
    def trace() -> list[str] | None:
        trial = Trial(7, trace=True)
        trial.run()
        return trial.system.trace

    assert trace() == trace()


# --- truncation and bit flips ------------------------------------------------------------------------------------------


def small_log(*, clean: bool) -> dict[str, bytes]:
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=300))
    for number in range(6):
        commit(log, b"body %d" % number, b"x" * 40)
    log.append([sealed(b"a" * 30, producer=None)])
    log.sync()
    if clean:
        log.close()
    else:
        log.maintain()
        log.abandon()
    return system.snapshot(LOG)


def reopened(files: dict[str, bytes]) -> list[tuple[int, list[bytes | None]]]:
    """What a log of these files holds; `PenstockError` if it refuses."""
    system = SimulatedFileSystem.of(LOG, files)
    log = opened(system)
    try:
        return contents(log)
    finally:
        log.abandon()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_truncated_anywhere_is_reported_or_whole(clean):
    files = small_log(clean=clean)
    name = segment.segment_name(1)
    whole = reopened(files)
    assert len(whole) == 7
    end = (len(files[name].rstrip(b"\0")) + 7) & -8
    for size in range(len(files[name])):
        damaged = {**files, name: files[name][:size]}
        if size < end:
            with pytest.raises(WalCorrupted):
                reopened(damaged)
        else:
            assert reopened(damaged) == whole


@pytest.mark.parametrize("name", ["HEAD", "TAIL", "LOCK"])
def test_any_truncation_of_a_small_file_is_reported_or_harmless(name):
    files = small_log(clean=False)
    whole = reopened(files)
    for size in range(0, len(files[name]), 7):
        try:
            assert reopened({**files, name: files[name][:size]}) == whole
        except WalCorrupted:
            assert name == "HEAD"


def test_unacknowledged_bytes_behind_the_end_are_torn_and_not_corrupt():
    """F38: Whatever part of one unsynced write reached the disk, the log opens with what was acknowledged."""
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=0))
    commit(log, b"one")
    before = system.snapshot(LOG)
    log.append([sealed(b"two" * 30), sealed(b"three")])
    name = segment.segment_name(1)
    after = system.content(LOG / name)
    start = len(before[name])
    for size in range(start, len(after)):
        found = reopened({**before, name: bytes(after[:size])})
        assert found in ([(1, [b"one"])], [(1, [b"one"]), (2, [b"two" * 30])])
    # The second of two lost: a hole, and a good frame behind it.
    hole = bytearray(after)
    hole[start : start + 100] = bytes(100)
    assert reopened({**before, name: bytes(hole)}) == [(1, [b"one"])]


def three_segments() -> dict[str, bytes]:
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=256))
    fill_segments(log, 3)
    commit(log, b"last but one")
    commit(log, b"last")
    while log.maintain():
        pass
    log.close()
    return system.snapshot(LOG)


def test_a_flipped_bit_is_reported_or_changes_nothing():
    """F37."""
    files = three_segments()
    whole = reopened(files)
    rng = random.Random(3)
    names = [name for name in files if name != "LOCK"]
    reported = 0
    for _ in range(900):
        name = rng.choice(names)
        damaged = bytearray(files[name])
        if name.endswith(".log") and rng.random() < 0.5:
            at = rng.choice([rng.randrange(400), len(damaged.rstrip(b"\0")) - 1 - rng.randrange(300)])
        else:
            at = rng.randrange(len(damaged))
        damaged[at] ^= 1 << rng.randrange(8)
        try:
            assert reopened({**files, name: bytes(damaged)}) == whole, f"{name} at {at}"
        except WalCorrupted:
            reported += 1
    assert reported > 100


# --- a disk that fails ---------------------------------------------------------------------------------------------------


def workload(system: SimulatedFileSystem, given: dict[int, bytes], acknowledged: list[int]) -> None:
    """A fixed workload with a roll, housekeeping, a spooled transaction and a clean close."""
    settings = options(spool_bytes=6000, retain_bytes=70_000)
    log = opened(system, settings)
    try:
        for number in range(14):
            body = b"%03d" % number * (4000 if number % 2 else 5)
            transaction = seal(system, settings, body)
            if transaction is not None:
                for attempt in range(2):
                    try:
                        given[log.appended + 1] = body
                        log.append([transaction])
                        acknowledged.append(log.sync())
                        break
                    except LogFull:
                        assert given.pop(log.appended + 1) == body
                        assert not attempt, "the disk has room, but the log stays full"
                with contextlib.suppress(OSError):
                    transaction.discard()
            log.maintain(max(log.durable - 4, 1))
            log.publish_tail(log.visible)
        log.close()
    finally:
        if not system.dead:
            log.abandon()


def seal(system, settings, body):
    try:
        return sealed(body[: len(body) // 2], body[len(body) // 2 :], settings=settings, spool=system)
    except OSError:
        return None


def check(system: SimulatedFileSystem, given: dict[int, bytes], acknowledged: list[int]) -> None:
    log = opened(system)
    assert log.durable >= max(acknowledged, default=0)
    for version, bodies in contents(log):
        assert b"".join(body or b"" for body in bodies) == given[version]
    commit(log, b"and on")
    log.close()


def operations() -> int:
    system = SimulatedFileSystem()
    workload(system, {}, [])
    return system.operations


KINDS = ["EIO", "ENOSPC", "EDQUOT", "EFBIG", "EMFILE", "ENOMEM", "EROFS", "short", "crash"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_operation_may_fail(kind):
    """In a commit's run each operation fails in one of the ways at least."""
    total = operations()
    assert total > 100
    for number in each(range(1, total + 1), beginning=KINDS.index(kind)):
        system = SimulatedFileSystem(number)
        system.faults[number] = kind
        given: dict[int, bytes] = {}
        acknowledged: list[int] = []
        try:
            workload(system, given, acknowledged)
            ended = True
        except (LogFailed, LogFull, LogUnreadable, PowerCut):
            ended = False
        if kind == "short":
            assert ended, f"a short write at operation {number} was not continued"
        try:
            system.power_cut()
            check(system, given, acknowledged)
        except BaseException as error:
            error.add_note(f"{kind} at operation {number} of {total}")
            raise


class Tearing(random.Random):
    """At the power cut every pending write is torn in its middle."""

    def random(self) -> float:
        return 0.77

    def randrange(self, start, stop=None, step=1):
        return start // 2 if stop is None else (start + stop) // 2


def die_twice(first: int, then: int) -> bool:
    """The process dies at one operation, and at one of the next opening the power goes; was there such a one?"""
    system = SimulatedFileSystem()
    system.random = Tearing()
    system.faults[first] = "crash"
    with contextlib.suppress(PowerCut):
        workload(system, {}, [])
    system.kill()
    system.faults = {system.operations + then: "crash"}
    try:
        opened(system).abandon()
    except PowerCut:
        system.power_cut()
        opened(system).abandon()
        return True
    return False


@pytest.mark.parametrize("start", range(1, 51, 10))
def test_a_process_may_die_at_any_operation_and_the_power_go_in_the_next_opening(start):
    """F38: What the dead one wrote and did not sync is made durable before anything else is written."""
    for first in each(range(start, start + 10)):
        then = 1
        while die_twice(first, then):
            then += 1
        assert then > 3


def test_a_slot_of_head_that_is_not_written_again_is_noticed():
    total = operations()

    def everywhere() -> None:
        for first in range(1, total + 1):
            for then in range(1, 15):
                die_twice(first, then)

    with (
        mock.patch.object(Head, "write_again", return_value=None),
        pytest.raises(WalCorrupted, match="valid slot"),
    ):
        everywhere()


def test_any_failing_read_during_recovery_is_reported():
    files = three_segments()
    system = SimulatedFileSystem.of(LOG, files)
    opened(system).abandon()
    for number in range(1, system.reads + 1):
        system = SimulatedFileSystem.of(LOG, files)
        system.read_faults = {number}
        with contextlib.suppress(WalCorrupted, LogFailed):
            opened(system).abandon()
        # It refused without having done harm, or did not need what it could not read.
        system.read_faults.clear()
        assert contents(opened(system)) == contents(opened(SimulatedFileSystem.of(LOG, files)))


def test_a_disk_that_fills_up_and_is_freed_goes_on():
    system = SimulatedFileSystem(capacity=200_000)
    log = opened(system, options(retain_bytes=None, retain_age=None))
    refused = 0
    for number in range(60):
        before = log.appended
        try:
            commit(log, b"%04d" % number * 1000)
        except LogFull:
            refused += 1
            assert log.appended == before
            assert log.failed is None
            system.capacity += 50_000
        log.maintain()
    assert refused > 0
    found = contents(log)
    assert [version for version, _ in found] == list(range(1, log.durable + 1))
    log.abandon()
    system.power_cut()
    assert contents(opened(system)) == found


# --- is the harness sharp? -------------------------------------------------------------------------------------------------


def _no_sync(file: SimulatedFile) -> None:
    file._check_writable()


def _acknowledge_first(log: writer.Writer) -> int:
    log.synced = log.appended
    log.synced_end = (log.active.number, log.active.offset)
    return log.synced


def _cut_without_sync(segment_: active_segment.ActiveSegment) -> None:
    segment_.file.truncate(segment_.offset)
    segment_.filled = segment_.offset


_write_head = Head.write


def _one_slot(head: Head, *arguments, **named) -> None:
    head.state = head.state._replace(counter=head.state.counter | 1)
    _write_head(head, *arguments, **named)


def _unlink_first(kept: retention.Retention, floor: int | None) -> bool:
    entries = catalog_of(kept).entries
    oldest = retention.oldest_to_keep(entries, kept.size, kept._options, floor, kept._ages.of(entries))
    for entry in entries:
        if entry.number < oldest:
            filesystem_of(kept).unlink(kept._directory / segment.segment_name(entry.number))
    catalog_of(kept).drop(oldest)
    kept._write_head(oldest)
    return False


def _nobody_is_asked(kept: holds.Holds) -> bool:
    return True


def _everything_is_synced(log: writer.Writer) -> writer.Limit:
    return writer.Limit(log.appended, log.active.number, log.active.offset)


def _leave_it(segment_: active_segment.ActiveSegment, start: int, end: int, filled: int) -> None:
    segment_.offset = start


MUTANTS = {
    "no sync": (SimulatedFile, "sync", _no_sync),
    "no directory sync": (SimulatedFileSystem, "sync_directory", lambda system, path: None),
    "acknowledge before sync": (writer.Writer, "sync", _acknowledge_first),
    "tail frames not written again": (recovery, "_write_again", lambda *arguments: None),
    "segment not synced at roll": (active_segment.ActiveSegment, "finish", _cut_without_sync),
    "HEAD in one slot": (Head, "write", _one_slot),
    "HEAD before sync": (writer.Writer, "evidence", _everything_is_synced),
    "unlink before HEAD": (retention.Retention, "step", _unlink_first),
    "places of readers not stored before retention": (holds.Holds, "synchronise", _nobody_is_asked),
    "failed write not undone": (active_segment.ActiveSegment, "undo", _leave_it),
}

NOTICED_BY = {
    "tail frames not written again": [101],
    "HEAD in one slot": [103],
    "HEAD before sync": [101],
    "places of readers not stored before retention": [58],
    "failed write not undone": [665],
}
"""Lives that have noticed a mutant which few notice: tried first, they save the others."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_does_not_survive(name):
    target, attribute, replacement = MUTANTS[name]
    with mock.patch.object(target, attribute, replacement):
        for seed in (*NOTICED_BY.get(name, ()), *range(4000)):
            try:
                Trial(seed).run()
            except (AssertionError, PenstockError, OSError, KeyError):
                return
    pytest.fail(f"{name} survived 4000 lives")

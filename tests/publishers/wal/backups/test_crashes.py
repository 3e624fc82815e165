"""F144: a backup, and a restore, that end at any of their operations, on a disk that loses what was not synced."""

import random
from pathlib import Path

import pytest

from publishers import backup, restore
from publishers.errors import BackupRefused, PenstockError
from publishers.wal import Follower, Wal
from publishers.wal.checks import Verdict, verify
from publishers.wal.files.segment import segment_number
from tests.harness.scale import LONG, each, scaled
from tests.publishers.wal.logs import OPTIONS, commit, contents, fill_segments, options, sealed
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

TARGET = Path("/backup")
RESTORED = Path("/restored")
ENDS = ("kill", "power cut")


def opened(system, path):
    return Wal.open(path, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))


def held(system, path):
    """What an owner finds who opens the directory and writes to it at once."""
    wal = opened(system, path)
    try:
        found = contents(wal) if wal.durable else []
        commit(wal, b"of the other history")
        return found
    finally:
        wal.close()


def grown(system, segments):
    """The log goes on up to so many segments; what is in it."""
    wal = opened(system, LOG)
    fill_segments(wal, segments)
    commit(wal, b"the last one", None)
    while wal.maintain():
        pass
    found = contents(wal)
    wal.close()
    return found


def disk(seed, *, before):
    """A disk with a log, and with a backup of its beginning; both contents."""
    system = SimulatedFileSystem(seed)
    system.make_directory(LOG)
    system.make_directory(TARGET)
    first = grown(system, 3) if before else []
    if before:
        backup(LOG, TARGET, filesystem=system)
    whole = grown(system, 5)
    system.restart()  # what its owner had not synced is not what a power cut is to take here
    return system, first, whole


def end(system, how):
    system.faults = {}
    if how == "kill":
        system.kill()
    else:
        system.power_cut()


def operations(act, seed, *, before):
    system, _, _ = disk(seed, before=before)
    begun = system.operations
    act(system)
    return range(1, system.operations - begun + 1)


def segments_in(system, path):
    return [name for name in system.snapshot(path) if segment_number(name)]


def judge(system, path, first, whole, when):
    """It is no log yet, and says so; or it opens, and holds a beginning of the history that is no shorter than before."""
    if not segments_in(system, path) and not first:
        return
    try:
        found = held(system, path)
    except PenstockError:
        assert not first, f"{when}: the backup before is gone"
        assert "HEAD" not in system.snapshot(path), f"{when}: it passes for a log"
        return
    assert found == whole[: len(found)], when
    assert len(found) >= len(first), when


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("how", ENDS)
def test_a_backup_that_ends_anywhere_leaves_a_backup_or_none_and_goes_on(copy, before, how):
    """F144: whoever opens what is left has a beginning of the history, and never writes into the log; else it is completed."""

    def act(system):
        return backup(LOG, TARGET, copy=copy, filesystem=system)

    for step in each(operations(act, 0, before=before)):
        for opens in (False, True):
            system, first, whole = disk(step, before=before)
            source = system.snapshot(LOG)
            system.faults = {system.operations + step: "crash"}
            with pytest.raises(PowerCut):
                act(system)
            end(system, how)
            assert system.snapshot(LOG) == source, f"operation {step}"
            if opens:
                judge(system, TARGET, first, whole, f"operation {step}")
            else:
                done = act(system)
                assert done.verdict is Verdict.SOUND, f"operation {step}: {done}"
                system.power_cut()
                assert held(system, TARGET) == whole, f"operation {step}"
            assert system.snapshot(LOG) == source, f"operation {step}"
            assert verify(LOG, filesystem=system).verdict is Verdict.SOUND


@pytest.mark.parametrize("how", ENDS)
def test_a_restore_that_ends_anywhere_leaves_no_log_and_is_completed(how):
    """F144: until HEAD is there nobody can take it for a log; the backup is as it was."""

    def prepared(seed):
        system, _, whole = disk(seed, before=True)
        backup(LOG, TARGET, filesystem=system)
        system.restart()
        return system, whole

    system, _ = prepared(0)
    begun = system.operations
    restore(TARGET, RESTORED, filesystem=system)
    for step in each(range(1, system.operations - begun + 1)):
        for opens in (False, True):
            system, whole = prepared(step)
            kept = system.snapshot(TARGET)
            system.faults = {system.operations + step: "crash"}
            with pytest.raises(PowerCut):
                restore(TARGET, RESTORED, filesystem=system)
            end(system, how)
            if "HEAD" in system.snapshot(RESTORED):
                assert held(system, RESTORED) == whole, f"operation {step}"
            elif opens and segments_in(system, RESTORED):
                with pytest.raises(PenstockError):
                    held(system, RESTORED)
            else:
                assert restore(TARGET, RESTORED, filesystem=system).verdict is Verdict.SOUND
                system.power_cut()
                assert held(system, RESTORED) == whole, f"operation {step}"
            assert system.snapshot(TARGET) == kept, f"operation {step}"


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
def test_a_disk_that_fails_is_told_and_the_next_run_goes_on(kind):
    """F144."""

    def act(system):
        return backup(LOG, TARGET, filesystem=system)

    for step in operations(act, 0, before=True):
        system, first, whole = disk(step, before=True)
        source = system.snapshot(LOG)
        system.faults = {system.operations + step: kind}
        try:
            act(system)
        except (PenstockError, OSError):
            assert verify(TARGET, filesystem=system).verdict <= Verdict.TORN, f"operation {step}"
        system.faults = {}
        assert act(system).verdict is Verdict.SOUND, f"operation {step}"
        assert held(system, TARGET) == whole
        assert first == whole[: len(first)]
        assert system.snapshot(LOG) == source


def step(system, rng):
    """The log goes on: commits, rolls, withholds, shows, forgets, deletes what is old."""
    wal = Wal.open(LOG, options(retain_bytes=300_000), filesystem=system, clock=Clock(2_000_000_000))
    for _ in range(rng.randrange(12)):
        commit(wal, rng.randbytes(rng.choice([10, 3000, 30_000])))
    if rng.random() < 0.5:
        shown = wal.visible
        if not wal.withholding:
            wal.show(shown)
        wal.append([sealed(rng.randbytes(3000)) for _ in range(rng.randrange(1, 30))])
        wal.sync()
        wal.forget_after(shown) if rng.random() < 0.5 else wal.show(rng.choice([None, wal.durable - 1]))
    while wal.maintain():
        pass
    wal.close()
    system.restart()


@pytest.mark.parametrize("seed", [*range(scaled(40) if LONG else 6), 103, 179, 220, 626, 894, 1193])
def test_backups_that_are_struck_again_and_again_while_the_log_goes_on_come_to_hold_what_it_shows(seed):
    """F144, E20: a random life; each of them keeps what the one before has, and adds to it."""
    rng = random.Random(seed)
    system = SimulatedFileSystem(seed)
    system.make_directory(LOG)
    system.make_directory(TARGET)
    known = {}
    for _ in range(12):
        step(system, rng)
        source = system.snapshot(LOG)
        if rng.random() < 0.7:
            kind = rng.choice(["crash", "crash", "EIO", "ENOSPC"])
            system.faults = {system.operations + rng.randrange(1, 40): kind}
        done = attempt(system, copy=rng.random() < 0.3)
        system.faults = {}
        if done is None:
            end(system, rng.choice(ENDS))
        elif done == "a hole":
            system = emptied(system)
        else:
            assert done.verdict is Verdict.SOUND, list(map(str, done.logs[0].report.findings))
            system.power_cut()
            whole = shown(system, LOG)  # nothing, where retention has taken all but what is withheld
            assert not whole or shown(system, TARGET)[-len(whole) :] == whole
        assert system.snapshot(LOG) == source
        if "HEAD" in system.snapshot(TARGET):
            for version, bodies in shown(system, TARGET):
                assert known.setdefault(version, bodies) == bodies, (
                    f"version {version} has become another one"
                )
    assert known


def attempt(system, *, copy):
    """What was done; None if it was struck."""
    try:
        return backup(LOG, TARGET, copy=copy, filesystem=system)
    except BackupRefused as error:
        if "has deleted the versions between" not in error.why:
            raise
        return "a hole"
    except (PowerCut, OSError, PenstockError):
        if not system.faults:
            raise
        return None


def emptied(system):
    """Another directory for the next backup, as is said."""
    for name in system.listing(TARGET):
        system.unlink(TARGET / name)
    system.restart()
    return system


def shown(system, path):
    follower = Follower.open(path, filesystem=system)
    try:
        return contents(follower)
    finally:
        follower.close()


def test_a_log_that_was_not_opened_since_the_machine_was_started_may_show_less_than_its_backup():
    """F144: HEAD is older than the end of the log, and TAIL does not count any more; an opening for writing tells the rest."""
    system = SimulatedFileSystem(0)
    system.make_directory(LOG)
    wal = Wal.open(LOG, options(head_sync=3600.0), filesystem=system, clock=Clock())
    for number in range(5):
        commit(wal, b"%d" % number)
    backup(LOG, TARGET, filesystem=system)
    files = system.snapshot(TARGET)
    system.power_cut()
    with pytest.raises(BackupRefused, match="open the log for writing"):
        backup(LOG, TARGET, filesystem=system)
    assert system.snapshot(TARGET) == files
    held(system, LOG)
    assert backup(LOG, TARGET, filesystem=system).verdict is Verdict.SOUND
    assert len(held(system, TARGET)) == 6

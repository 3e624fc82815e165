"""F144: backups of a log that another process writes, and backups that are killed."""

import signal

import pytest

from penstock_cdc.errors import BackupRefused
from publishers import ChangeLog, backup
from publishers.wal.checks import Verdict, verify
from tests.crash.support import Child
from tests.harness.scale import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

OPTIONS = {"sync": "os", "segment_bytes": 65_536, "fill_step": 65_536, "retain_bytes": 1_000_000}


def held(path):
    """Type and key of every change by its version, by a look that writes nothing."""
    found = {}
    with ChangeLog.open(path, read_only=True) as log:
        for change in log.history(limit=1_000_000).changes:
            if change.index:
                found.setdefault(change.version, []).append((change.entity_type, change.key))
    return found


def attempt(source, target, *, copy):
    """What was done; None if retention was faster than this test."""
    try:
        return backup(source, target, copy=copy).logs[0]
    except BackupRefused as error:
        if "has deleted the versions between" not in error.why:
            raise
        return None


@pytest.mark.parametrize("copy", [False, True])
def test_each_backup_beside_a_busy_writer_is_a_beginning_of_its_history(place, copy):
    """F144, E20: it rolls, prunes, withholds, shows and forgets; nothing that it forgets is ever in a backup."""
    source, number, grown, seen = place / "log", 0, 0, {}
    with Child("deferring", str(source), OPTIONS) as child:
        child.wait_for("round", 20)
        for turn in range(scaled(12)):
            child.wait_for("round", 20 + 3 * turn)
            target = place / f"backup{number}"
            done = attempt(source, target, copy=copy)
            if done is None:
                assert verify(target).verdict is Verdict.SOUND
                number += 1
                continue
            assert done.report.verdict is Verdict.SOUND, list(map(str, done.report.findings))
            grown += 0 < done.since < done.report.version
            found = held(target)
            assert list(found) == list(range(min(found), max(found) + 1)), "a hole"
            for version, changes in found.items():
                assert seen.setdefault(version, changes) == changes, f"version {version} is another one"
            assert {kind for changes in found.values() for kind, _ in changes} == {"shown"}
        child.kill()
        child.finish()
    final = held(source)
    assert all(seen[version] == final[version] for version in final.keys() & seen.keys())
    assert grown, "none was added to"
    assert backup(source, place / "last", copy=copy).verdict is Verdict.SOUND
    assert held(place / "last") == final
    with ChangeLog.open(place / "last", **OPTIONS) as log:
        assert log.commit([]).version == max(final) + 1
    assert verify(source).verdict <= Verdict.TORN


@pytest.mark.parametrize("arguments", [[], ["--copy"]])
@pytest.mark.parametrize("before", [False, True])
def test_the_command_is_killed_midway_and_run_again(place, arguments, before):
    """F144: what was put in its place is not copied again, and before that it is the backup before, or none."""
    source, target = place / "log", place / "backup"
    options = {**OPTIONS, "retain_bytes": None, "retain_age": None}
    with ChangeLog.open(source, **options) as log:

        def grow(versions):
            for _ in range(versions):
                log.commit([], meta={"fill": "x" * 3000})

        grow(50)
        if before:
            backup(source, target)
        grow(100)
        for steps in (1, 2, 3):
            with Child("killed_backup", str(source), str(target), arguments, steps) as child:
                assert child.finish() == -signal.SIGKILL
            assert (target / "HEAD").exists() == before
            if before:
                assert verify(target).version == 50
        there = len(list(target.glob("wal-*.log")))
        with Child("killed_backup", str(source), str(target), [*arguments, "--json"], 10**9) as child:
            assert child.finish() == 0
            assert child.said("code") == [["0"]]
        (again,) = backup(source, target, copy=bool(arguments)).logs
        assert (again.linked, again.copied) == (0, 0)
        assert there > 2
        assert verify(target).version == log.visible

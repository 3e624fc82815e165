"""F144: backups of logs of both formats, in the files that were kept of each."""

from pathlib import Path

import pytest

from publishers import backup, restore
from publishers.errors import FormatTooNew
from publishers.wal import Follower, Wal
from publishers.wal.checks import Verdict
from publishers.wal.files.segment import FORMAT
from tests.publishers.wal.logs import OPTIONS, commit, contents
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.golden import GOLDEN
from tests.simulation.workload import LOG, Clock

TARGET, RESTORED = Path("/backup"), Path("/restored")
KEPT = sorted(path for path in GOLDEN.glob("format-*/*") if path.is_dir())


def disk(path):
    files = {one.name: one.read_bytes() for one in path.iterdir() if one.name != "expected.json"}
    return SimulatedFileSystem.of(LOG, files)


def shown(system, path):
    follower = Follower.open(path, filesystem=system)
    try:
        return contents(follower)
    finally:
        follower.close()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name} {path.name}")
@pytest.mark.parametrize("copy", [False, True])
def test_a_log_of_either_format_is_copied_as_it_is_shown(path, copy):
    """F144, E20: also what it withholds is left out; the restored log goes on in format 2, and so does its next backup."""
    system = disk(path)
    files = system.snapshot(LOG)
    done = backup(LOG, TARGET, copy=copy, filesystem=system)
    assert done.verdict is Verdict.SOUND
    assert system.snapshot(LOG) == files
    assert shown(system, TARGET) == shown(system, LOG)
    restore(TARGET, RESTORED, filesystem=system)
    wal = Wal.open(RESTORED, OPTIONS, filesystem=system, clock=Clock(2_000_000_000))
    whole = contents(wal)
    assert whole == shown(system, LOG), "nothing that was withheld is shown by an opening"
    commit(wal, b"one more")
    assert backup(RESTORED, TARGET, copy=copy, filesystem=system).verdict is Verdict.SOUND
    assert len(shown(system, TARGET)) == len(whole) + 1
    wal.close()


def test_what_a_later_version_wrote_is_not_touched(monkeypatch):
    """F144: it is told as such, in the log as in the backup."""
    system = disk(GOLDEN / "format-2" / "plain")
    backup(LOG, TARGET, filesystem=system)
    files = system.snapshot(TARGET)
    for module in ("publishers.wal.files.segment.FORMAT", "publishers.wal.files.head.FORMAT"):
        monkeypatch.setattr(module, FORMAT - 1)
    with pytest.raises(FormatTooNew):
        backup(LOG, TARGET, filesystem=system)
    assert system.snapshot(TARGET) == files

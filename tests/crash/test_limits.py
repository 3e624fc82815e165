"""T5, T18: disks that are really full: a limit on the size of files, and a file system of a few pages in memory."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from publishers import ChangeLog
from tests.crash.support import SCALE, judge

pytestmark = pytest.mark.crash

ROOT = str(Path(__file__).parents[2])

LIMITED = """
import os, resource, signal, sys
sys.path.insert(0, sys.argv[3])
from publishers import ChangeLog, upsert
from publishers.errors import LogFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
most = int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
options = {"fill_step": 0, "segment_bytes": 1 << 20, "head_sync": 0.0, "frame_bytes": 4096, "retain_bytes": None}
with ChangeLog.open(sys.argv[1], **options) as log:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    refused = sequence = 0
    while refused < 3:
        rows = [upsert("producer0", f"{sequence}/{place}/4", {"fill": "x" * 700}) for place in range(4)]
        try:
            done = log.commit(rows, producer=("producer0", sequence))
            say("done", "producer0", sequence, done.version)
            sequence += 1
        except LogFull as error:
            assert type(error) is LogFull and error.retryable
            refused += 1
            before = log.head.version
            say("full", before)
            if refused == 1:
                assert log.history(limit=1).changes  # readers go on
            if refused == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most * 2, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    done = log.commit([upsert("producer0", f"{sequence}/0/1", {})], producer=("producer0", sequence))
    say("done", "producer0", sequence, done.version)
say("closed")
"""

SMALL = """
import os, sys
sys.path.insert(0, sys.argv[2])
from publishers import ChangeLog, upsert
from publishers.errors import LogFull
place, ballast = sys.argv[1] + "/log", sys.argv[1] + "/ballast"
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
free = os.statvfs(sys.argv[1])
with open(ballast, "wb") as file:
    file.write(bytes(free.f_bavail * free.f_frsize // 4))
options = {"fill_step": 0, "segment_bytes": 65536, "head_sync": 0.0, "frame_bytes": 4096, "retain_bytes": None}
acknowledged, sequence, refused = [], 0, 0
def commit(log):
    global sequence
    rows = [upsert("producer0", f"{sequence}/{place}/2", {"fill": "x" * 900}) for place in range(2)]
    done = log.commit(rows, producer=("producer0", sequence))
    acknowledged.append(done.version)
    sequence += 1
try:
    log = ChangeLog.open(place, **options)
except LogFull:
    say("too small")
    os._exit(0)
while refused < 2:
    try:
        commit(log)
    except LogFull as error:
        assert type(error) is LogFull and error.retryable
        refused += 1
        assert log.head.version == (acknowledged[-1] + 1 if acknowledged else 1)
os.unlink(ballast)
for _ in range(3):
    commit(log)
log.close()
with ChangeLog.open(place, **options) as log:
    found = {change.version for change in log.history(limit=10**6).changes}
    assert found >= set(acknowledged) and log.head.version == acknowledged[-1] + 1, (found, acknowledged)
    try:
        while True:
            commit(log)
    except LogFull:
        pass
log = ChangeLog.open(place, read_only=True, **options)
assert {change.version for change in log.history(limit=10**6).changes} == set(acknowledged)
log.close()
say("sound", len(acknowledged))
"""


@pytest.mark.parametrize("most", [66_000, 100_001, 131_072, 250_003, 500_000])
def test_a_file_that_may_not_grow_is_a_full_disk_and_work_goes_on_when_it_may(place, most):
    """T5, T18: RLIMIT_FSIZE gives a true short write, then EFBIG; nothing acknowledged is missing."""
    path = place / "log"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(most), ROOT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines].count("full") == 3
    assert lines[-1] == ["closed"]
    acknowledged = {(line[1], int(line[2])): int(line[3]) for line in lines if line[0] == "done"}
    assert len(acknowledged) > 5
    with ChangeLog.open(path, fill_step=0, retain_bytes=None) as log:
        assert acknowledged.items() <= judge(log, acknowledged).items()


def reason(size: int) -> str | None:
    """Why no file system of that size can be mounted here; None if it can."""
    tried = _mounted(size, "exit 0", "/mnt")
    return None if tried.returncode == 0 else f"no tmpfs may be mounted: {tried.stderr.strip()[:80]}"


def _mounted(size: int, command: str, target: str) -> subprocess.CompletedProcess[str]:
    script = f"mount -t tmpfs -o size={size} tmpfs {target} && {command}"
    try:
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess([], 1, "", "unshare is not installed")


@pytest.mark.parametrize("size", [65_536, 262_144, 1 << 20, 3_000_000, 8 << 20])
def test_a_small_disk_fills_up_is_freed_and_nothing_acknowledged_is_missing(place, size):
    """T18: a true ENOSPC; ``LogFull`` and nothing else, then space, then on; opened again, filled again, read."""
    why = reason(size)
    if why is not None:
        pytest.skip(why)
    script = place / "small.py"
    script.write_text(SMALL)
    target = place / "disk"
    target.mkdir()
    done = _mounted(size, f"{sys.executable} {script} {target} {ROOT}", str(target))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[0] in (("too", "sound") if size < 262_144 else ("sound",)), done.stdout


def test_the_long_run_does_not_skip_small_disks():
    """A skipped T18 fails the long run."""
    assert hasattr(signal, "SIGXFSZ")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
    if SCALE >= 2:
        assert os.geteuid() == 0 or reason(1 << 20) is None

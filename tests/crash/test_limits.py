"""T5, T18: disks that are really full: a limit on the size of files, and a file system of a few pages in memory."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from publishers import ChangeLog
from tests.crash.support import judge
from tests.harness.missing import skip_without
from tests.harness.scale import SCALE

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

FULL = """
import os, sys
sys.path.insert(0, sys.argv[2])
from publishers import ChangeLog, upsert
from publishers.errors import LogFull
from publishers.wal import RealFileSystem
disk, place, ballast = sys.argv[1], sys.argv[1] + "/log", os.open(sys.argv[1] + "/ballast", os.O_RDWR | os.O_CREAT)
greedy = False
def grab():  # somebody else takes all that is free
    for size in (65536, 4096) if greedy else ():
        try:
            while os.write(ballast, bytes(size)) == size:
                pass
        except OSError:
            pass
class Greedy(RealFileSystem):
    def open(self, path, mode):
        file = super().open(path, mode)
        return file if path.name == "RESERVE" else GreedyFile(file)
    def unlink(self, path):
        super().unlink(path)
        grab()
class GreedyFile:
    def __init__(self, file):
        self.file = file
    def __getattr__(self, name):
        return getattr(self.file, name)
    def truncate(self, size):
        self.file.truncate(size)
        grab()
options = {"fill_step": 0, "segment_bytes": 1 << 20, "head_sync": 0.0, "frame_bytes": 4096, "retain_bytes": None,
    "retain_age": None, "filesystem": Greedy()}
def row(number, size=900):
    return upsert("producer0", str(number), {"fill": "x" * size})
def full(log):
    try:
        log.commit([row(0, 200_000)])
    except LogFull as error:
        assert type(error) is LogFull and error.retryable
        return
    raise AssertionError("it is not full")
log = ChangeLog.open(place, **options)
log.commit([row(1)])
for number in range(2, 4):
    log.commit([row(number, 30_000)], visible=False)
greedy = True
grab()
for _ in range(2):
    full(log)
log.publish(2)
assert (log.visible, log.durable) == (2, 3)
log.forget_after(2)
assert (log.visible, log.durable, log.withheld) == (2, 2, None), log
full(log)
log.close()
for _ in range(45):  # an EPOCH frame each: together they need another page
    with ChangeLog.open(place, **options) as log:
        assert log.head.version == 3
        full(log)
        left = log.statistics().reserve_bytes
assert left < 65_536, left
os.ftruncate(ballast, 0)
greedy = False
with ChangeLog.open(place, **options) as log:
    assert log.commit([row(4)]).version == 3
    assert log.statistics().reserve_bytes == 65_536
    found = [change.key for change in log.history(limit=100).changes if change.key is not None]
    assert found == ["1", "2", "4"], found
print("sound")
"""


HELD = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[2])
from publishers import ChangeLog, Position, upsert
from publishers.errors import HistoryPruned, LogFull
disk, place, ballast = sys.argv[1], sys.argv[1] + "/log", sys.argv[1] + "/ballast"
free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
with open(ballast, "wb") as file:
    file.write(bytes(free * 3 // 4))
options = {"fill_step": 0, "segment_bytes": 65536, "head_sync": 0.0, "frame_bytes": 4096, "retain_bytes": 65536,
    "reserve_bytes": 8192}
newest, lost, told = 0, threading.Event(), []
def commit(log):
    global newest
    newest = log.commit([upsert("producer0", str(newest + 1), {"fill": "x" * 3000})]).version
def until(work, error):  # tries for half a minute: what frees the space is a thread
    deadline = time.monotonic() + 60.0
    while True:
        try:
            return work()
        except error:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
def read(log, since):
    found = log.history(since=since, limit=10**6)
    versions = sorted({change.version for change in found.changes})
    assert versions == list(range(since.version, newest + 1)), (since, versions[:3], versions[-3:], newest)
    return found.next
log = ChangeLog.open(place, **options)
hold = log.hold("slow", Position(1), keep_bytes=free // 3, on_lost=lambda hold: (told.append(hold.oldest), lost.set()))
refused = 0
while refused < 3:  # full before the cap is reached: nothing is taken from who holds it
    try:
        commit(log)
    except LogFull as error:
        assert type(error) is LogFull and error.retryable
        refused += 1
assert not told and hold.state.name != "LOST", hold
read(log, Position(1))
os.unlink(ballast)
while not lost.is_set():
    try:
        commit(log)
    except LogFull:
        assert lost.wait(60), "it is full, and the hold that is above its cap is not lost"
assert len(told) == 1 and told[0] > Position(1), told
for ask in (lambda: hold.move(Position(newest)), lambda: log.history(since=Position(1), limit=10**6)):
    try:
        ask()
    except HistoryPruned as error:
        assert error.oldest >= told[0]
    else:
        raise AssertionError(f"what was pruned was given: {hold}, {told}, {log.oldest}")
# He begins anew: what is there is his snapshot, then he streams, and holds what he has not read.
again = until(lambda: log.hold("slow again", log.oldest, keep_bytes=free // 3), HistoryPruned)
at, written = again.position, 0
while written < 2 * free:
    for _ in range(5):
        until(lambda: commit(log), LogFull)
        written += 3000
    at = read(log, at)
    again.move(at)
assert again.state.name != "LOST" and len(told) == 1
log.close()
with ChangeLog.open(place, **options) as log:
    assert log.head.version == newest + 1 and log.oldest.version > told[0].version
    read(log, log.oldest)
    until(lambda: commit(log), LogFull)
print("sound")
"""


ADDRESSES = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
from publishers import ChangeLog, upsert
from publishers.errors import LogError
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
log = ChangeLog.open(sys.argv[1], segment_bytes=1 << 22, fill_step=0, retain_bytes=None)
log.commit([upsert("order", "0", {})], producer=("p", 0))
pages = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (pages + (24 << 20), resource.RLIM_INFINITY))
size, refused, number = 1000, 0, 0
while refused < 20 and number < 200:
    number += 1
    try:
        body = b'{"x":"%s"}' % (b"y" * size)  # as msgspec dies of a text for which it gets no memory
        rows = [upsert("order", f"{number}/{part}", body) for part in range(4)]
        say("done", number, log.commit(rows, producer=("p", number)).version)
    except (MemoryError, LogError) as error:
        refused += 1
        say("refused", number, type(error).__name__)
    size = size * 2 if not refused else max(1000, size // 4 if number % 2 else size * 4)
try:
    log.close()
except LogError as error:
    say("failed", 0, type(error).__name__)
"""


def test_a_process_that_may_have_no_more_memory_refuses_by_name_and_loses_nothing(place):
    """It goes on, or the log fails with a name; what was acknowledged is there when it is opened again."""
    done = subprocess.run(
        [sys.executable, "-c", ADDRESSES, str(place / "log"), ROOT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    refused = {line[2] for line in lines if line[0] != "done"}
    assert refused
    assert refused <= {"MemoryError", "LogExhausted", "LogFailed"}
    acknowledged = {int(line[1]): int(line[2]) for line in lines if line[0] == "done"}
    with ChangeLog.open(place / "log", fill_step=0, retain_bytes=None) as log:
        found = {change.key: change.version for change in log.history(limit=10_000).changes if change.key}
        assert {number: found[f"{number}/3"] for number in acknowledged} == acknowledged
        assert log.commit([]).version == log.head.version - 1


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
    return None if tried.returncode == 0 else "the right to mount a tmpfs"


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
        skip_without(why)
    script = place / "small.py"
    script.write_text(SMALL)
    target = place / "disk"
    target.mkdir()
    done = _mounted(size, f"{sys.executable} {script} {target} {ROOT}", str(target))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[0] in (("too", "sound") if size < 262_144 else ("sound",)), done.stdout


@pytest.mark.parametrize("size", [262_144, 1 << 20])
def test_on_a_small_disk_that_somebody_else_fills_a_log_is_shown_forgotten_closed_and_opened(place, size):
    """T18, F43: true ENOSPC; whatever the log frees is taken at once, but for what it has kept back."""
    why = reason(size)
    if why is not None:
        skip_without(why)
    script = place / "full.py"
    script.write_text(FULL)
    target = place / "disk"
    target.mkdir()
    done = _mounted(size, f"{sys.executable} {script} {target} {ROOT}", str(target))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["sound"]


@pytest.mark.parametrize("size", [700_000, 1 << 20, 2_000_000, 4 << 20, 8 << 20])
def test_on_a_full_disk_a_hold_keeps_what_it_may_is_lost_at_its_cap_and_begins_anew(place, size):
    """T18: full, freed, on; the cap is reached, ``lost`` is told once, the space is free, snapshot, stream."""
    why = reason(size)
    if why is not None:
        skip_without(why)
    script = place / "held.py"
    script.write_text(HELD)
    target = place / "disk"
    target.mkdir()
    done = _mounted(size, f"{sys.executable} {script} {target} {ROOT}", str(target))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["sound"]


def test_the_long_run_does_not_skip_small_disks():
    """A skipped T18 fails the long run."""
    assert hasattr(signal, "SIGXFSZ")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
    if SCALE >= 2:
        assert os.geteuid() == 0 or reason(1 << 20) is None

"""T7: the real process under strace, whose N-th system call fails or is its last: no line of its code is changed."""

import random
import shutil
import signal
import subprocess
import sys

import pytest

from publishers import ChangeLog
from publishers.errors import LogError
from tests.crash.support import CHILDREN, judge
from tests.harness.missing import skip_without
from tests.harness.scale import SCALE, scaled

pytestmark = pytest.mark.crash

OPTIONS = {
    "fill_step": 4096,
    "segment_bytes": 65_536,
    "head_sync": 0.01,
    "frame_bytes": 1024,
    "retain_bytes": None,
}
CALLS = {"fdatasync": 40, "pwrite64": 60, "fsync": 6, "rename": 3, "unlink": 2}
"""How many of each call there are, about."""
FAULTS = ["signal=SIGKILL", "error=EIO", "error=ENOSPC"]


def reason() -> str | None:
    """Why nothing can be traced here; None if it can."""
    if shutil.which("strace") is None:
        return "strace"
    tried = subprocess.run(["strace", "-f", "-e", "trace=none", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "the right to trace"


@pytest.fixture(scope="module")
def strace() -> str:
    why = reason()
    if why is not None:
        skip_without(why)
    return "strace"


def traced(strace, place, call, fault, number):
    """Writes twenty-five transactions while the fault strikes that call; answers what was acknowledged and how it ended."""
    path = place / "log"
    done = subprocess.run(
        [
            strace,
            "-f",
            "-qq",
            "-o",
            str(place / "trace"),
            "-E",
            "PYTHONDONTWRITEBYTECODE=1",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:{fault}:when={number}",
            sys.executable,
            str(CHILDREN),
            "write",
            repr(str(path)),
            repr(OPTIONS),
            "1",
            "0",
            "25",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    acknowledged = {(line[1], int(line[2])): int(line[3]) for line in lines if line[0] == "done"}
    return acknowledged, done


@pytest.mark.timeout(1200)
def test_what_was_acknowledged_survives_whichever_system_call_fails(strace, place, capsys):
    """T7, F36: SIGKILL, EIO and ENOSPC at the N-th of each; the log opens, or says what cannot be.

    A disk that fails ends the process of this test with an error of ours or of the system, never with a silent success.
    """
    chance = random.Random(7)
    struck = 0
    plan = [(call, fault) for call in CALLS for fault in FAULTS]
    rounds = scaled(30)
    for number in range(rounds):
        call, fault = plan[number % len(plan)]
        where = chance.randint(1, CALLS[call])
        at = place / str(number)
        at.mkdir()
        told = f"strace -e inject={call}:{fault}:when={where}"
        acknowledged, done = traced(strace, at, call, fault, where)
        trace = (at / "trace").read_text() if (at / "trace").exists() else ""
        struck += "(INJECTED)" in trace or "SIGKILL" in trace
        if done.returncode not in (0, -signal.SIGKILL, 128 + signal.SIGKILL):
            last = done.stderr.strip().splitlines()[-1]
            assert last.split(":")[0].rpartition(".")[2] in KNOWN, f"{told}: {done.stderr[-1500:]}"
        if not (at / "log").exists():
            assert not acknowledged, told
            continue
        try:
            with ChangeLog.open(at / "log", **OPTIONS) as log:
                found = judge(log, acknowledged) if log.head.version > 1 else {}
                assert acknowledged.items() <= found.items(), told
                log.commit([])
        except LogError as error:
            raise AssertionError(f"{told}: it does not open again: {error!r}") from error
        shutil.rmtree(at)
    with capsys.disabled():
        sys.stdout.write(f"\nT7: {rounds} processes, {struck} of them struck\n")
    assert struck >= rounds // 4, f"only {struck} of {rounds} were struck"


KNOWN = {"LogFailed", "LogFull", "WalCorrupted", "OSError", "FileNotFoundError"}


def test_the_long_run_does_not_skip_tracing():
    """A skipped T7 fails the long run."""
    if SCALE >= 2:
        assert reason() is None

"""The suites with real threads on an interpreter without a global lock, where there is one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.missing import skip_without

ROOT = Path(__file__).parents[1]
NAMES = ("python3.14t", "python3.13t")
NEEDED = ("pytest", "pytest_asyncio", "pytest_timeout", "hypothesis", "msgspec")

SUITES = [
    "tests/flow/drain",
    "tests/flow/test_executors.py",
    "tests/flow/broadcast/test_broadcast.py",
    "tests/flow/broadcast/test_submitting.py",
    "tests/publishers/fanout/test_group.py",
    "tests/publishers/fanout/test_group_loops.py",
    "tests/publishers/fanout/test_group_interrupts.py",
    "tests/publishers/commits/test_group_commit.py",
    "tests/publishers/test_concurrency.py",
    "tests/publishers/fanout/test_subscription.py",
    "tests/publishers/fanout/test_seek.py",
    "tests/publishers/fanout/test_ring.py",
    "tests/publishers/fanout/test_bench.py",
    "tests/publishers/wal/read/test_reader.py",
]


def interpreter():
    """One that runs without a lock and has what the suites import; else the test is skipped, and says what is missing."""
    python = next((found for name in NAMES if (found := shutil.which(name))), None)
    if python is None:
        skip_without(" or ".join(NAMES))
    code = (
        "import importlib.util, sys\n"
        f"print([name for name in {NEEDED!r} if importlib.util.find_spec(name) is None])\n"
        "print(sys._is_gil_enabled())"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    lacking, lock, *_ = *done.stdout.splitlines(), "", ""
    if lacking != "[]":
        skip_without(f"{lacking or done.stderr[-200:]} for {python}")
    assert lock == "False"
    return python


def test_threads_that_really_run_at_once_change_nothing():
    """T15: data races that a global lock hides."""
    python = interpreter()
    done = subprocess.run(
        [python, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES],
        cwd=ROOT,
        env={**os.environ, "PYTHON_GIL": "0", "PENSTOCK_TEST_SCALE": "0.2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert passed is not None
    sys.stdout.write(f"{python}: {passed[0]}\n")

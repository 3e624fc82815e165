"""Leftovers are found at the test that left them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNTIDY = '''
import asyncio, os, subprocess, sys, threading, concurrent.futures, pytest

kept = []

@pytest.fixture(scope="module")
def pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        yield pool

def test_thread():
    threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()

def test_process():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_descriptor(tmp_path):
    kept.append(os.open(tmp_path / "open", os.O_CREAT))

def test_failure():
    threading.Thread(target=threading.Event().wait, name="beside a failure", daemon=True).start()
    assert False

def test_task():
    loop = asyncio.new_event_loop()
    kept.append(loop.create_task(asyncio.Event().wait(), name="pending"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("of") / "orders" / "wal-1.log"
    path.parent.mkdir()
    with open(path, "wb"):
        yield path

def test_tidy(pool, log, tmp_path):
    """A pool of a wider scope may grow; so may the readers of a log, and its first thread may start; what a cycle holds is collected."""
    kept.append(open(log, "rb"))
    threading.Thread(target=threading.Event().wait, name="penstock-orders-dispatch_0", daemon=True).start()
    barrier = threading.Barrier(2)
    for waiting in [pool.submit(barrier.wait) for _ in range(2)]:
        waiting.result()
    cycle = [open(tmp_path / "cycle", "w")]
    cycle.append(cycle)

def test_after():
    kept[0].kill(), kept[0].communicate()
'''


def test_a_test_that_leaves_something_behind_fails_and_says_what(tmp_path):
    (tmp_path / "test_untidy.py").write_text(UNTIDY)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.harness.leftovers",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faker",
    ]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "1000", "PENSTOCK_TEST_PATIENCE": "0.2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = dict(re.findall(r"^ERROR \S+::(\w+) - Failed: left behind: (.*)$", done.stdout, re.MULTILINE))
    assert set(found) == {"test_thread", "test_process", "test_descriptor", "test_task"}, done.stdout
    assert "thread forgotten" in found["test_thread"]
    assert "process python" in found["test_process"]
    assert found["test_descriptor"].endswith("/open")
    assert "task pending of a closed loop" in found["test_task"]

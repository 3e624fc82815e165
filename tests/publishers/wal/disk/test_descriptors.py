"""The reserve of descriptors: it gives one to whatever a log must open, and is filled again when a file is closed."""

import errno
import os

import pytest

from publishers.wal.disk import filesystem as module
from publishers.wal.disk import notify
from publishers.wal.disk.descriptors import DescriptorReserve
from publishers.wal.disk.filesystem import RealFileSystem, memory_as_error
from publishers.wal.disk.notify import FileNotifier
from tests.harness.constants import set_constant
from tests.harness.failing import failing


def opens_at(attempt, kind=errno.EMFILE):
    """A function that opens something only when it is called so many times."""
    calls = []

    def open_it():
        calls.append(None)
        if len(calls) < attempt:
            raise OSError(kind, "no descriptor is free")
        return len(calls)

    return open_it


@pytest.fixture
def reserve(monkeypatch):
    made = DescriptorReserve(2)
    made.fill()
    set_constant(monkeypatch, module, "DESCRIPTORS", made)
    set_constant(monkeypatch, notify, "DESCRIPTORS", made)
    yield made
    while made._release():
        pass


def test_what_must_be_opened_gets_descriptors_of_the_reserve_until_it_is_empty(reserve):
    """F147."""
    assert (len(reserve), reserve.low) == (2, False)
    assert reserve.spending(opens_at(3)) == 3
    assert (len(reserve), reserve.low) == (0, True)
    with pytest.raises(OSError, match="no descriptor"):
        reserve.spending(opens_at(2))
    reserve.refill()
    assert (len(reserve), reserve.low) == (2, False)
    with pytest.raises(OSError, match="no descriptor"):
        reserve.spending(opens_at(2, errno.EACCES))
    assert len(reserve) == 2


def test_a_reserve_that_finds_none_free_stays_low(reserve, monkeypatch):
    assert reserve.spending(opens_at(2)) == 2

    with monkeypatch.context() as nothing_free:
        failing(nothing_free, os, "open", OSError(errno.EMFILE, "no descriptor is free"))
        reserve.refill()
        with pytest.raises(OSError, match="no descriptor"):
            reserve.fill()
    assert (len(reserve), reserve.low) == (1, True)


def test_a_child_has_the_copies_as_its_reserve(reserve):
    reserve.forked(os.getpid())
    assert reserve.spending(opens_at(2)) == 2
    assert len(reserve) == 1


@pytest.mark.parametrize("use", ["close", "listing", "directory", "look"])
def test_whatever_gives_a_descriptor_back_fills_the_reserve(reserve, tmp_path, use):
    storage = RealFileSystem()
    file = storage.open(tmp_path / "file", "create")
    notifier = FileNotifier(tmp_path)
    try:
        assert reserve.spending(opens_at(2)) == 2
        if use == "close":
            file.close()
        elif use == "listing":
            assert "file" in storage.listing(tmp_path)
        elif use == "look":
            notifier.look()
        else:
            with storage.opened_directory(tmp_path) as sync:
                sync()
        assert (len(reserve), reserve.low) == (2, False)
    finally:
        file.close()
        notifier.close()


def test_a_notifier_that_cannot_list_its_readers_keeps_those_that_it_knows(reserve, tmp_path, monkeypatch):
    notifier = FileNotifier(tmp_path)
    try:
        for kind, left in ((errno.EMFILE, ("known",)), (errno.EACCES, ())):

            def refused(_path, kind=kind):
                raise OSError(kind, "not now")

            monkeypatch.setattr(os, "listdir", refused)
            notifier._sockets = ("known",)
            notifier.look()
            assert notifier._sockets == left
    finally:
        notifier.close()


def test_a_lack_of_memory_is_told_as_the_system_tells_it():
    with pytest.raises(OSError, match="memory") as found, memory_as_error():
        raise MemoryError
    assert found.value.errno == errno.ENOMEM


def test_a_file_that_others_may_read_keeps_what_it_has(tmp_path):
    storage = RealFileSystem("all")
    for _ in range(2):
        file = storage.open(tmp_path / "file", "create")
        file.close()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644

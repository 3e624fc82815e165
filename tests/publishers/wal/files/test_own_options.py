"""The options that a log keeps: whose count, what is stored, and what is deleted by whom."""

import errno
from dataclasses import fields

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.mutations import schema
from publishers import ChangeLog, ChangeStore, LogOptions, backup, restore, upsert
from publishers.errors import LogExhausted, LogUnreadable
from publishers.options import KEEP_HISTORY, KEPT
from publishers.wal import RealFileSystem
from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.own_options import OPTIONS_NAME, read_own, write_own
from tests.harness.failing import failing
from tests.publishers.support import QUICK
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

OTHERS = {
    "retain_bytes": (2**40, None),
    "retain_age": (86400.0 * 365, None),
    "slot_keep_bytes": (2**41, None),
    "slot_keep_age": (86400.0, None),
    "held_max_bytes": (2**41, 0),
    "producers": (7, 8),
    "producer_ttl": (60.0, 61.0),
    "sync": ("interval", "os"),
    "sync_interval": (0.5, 0.25),
    "ack_sync": (0.5, 0.25),
    "segment_bytes": (2**16, 2**17),
    "segment_age": (1000.0, 2000.0),
    "frame_bytes": (2**11, 2**12),
    "compress": (True, False),
    "origin": ("here", "there"),
}


def own(path):
    return read_own(RealFileSystem(), path)


def forget(path):
    """Makes the log as an earlier version left it."""
    for name in (OPTIONS_NAME, f"{OPTIONS_NAME}.copy"):
        (path / name).unlink()


@pytest.mark.parametrize("name", KEPT)
def test_an_option_of_the_log_counts_until_its_program_gives_another(tmp_path, caplog, name):
    """Whatever is given, as a value or as options, by a program or by one that only borrows the log."""
    path, (first, second) = tmp_path / "log", OTHERS[name]

    def opened(**given):
        caplog.clear()
        before = (own(path) or {}).get(name, default)
        with ChangeLog.open(path, fill_step=0, reserve_bytes=0, **given) as log:
            found = getattr(log.options, name)
        assert bool(caplog.records) == (own(path)[name] != before)
        return found, own(path)[name]

    default = getattr(LogOptions(), name)
    assert opened() == (default, default)
    assert opened(borrowed=True, **{name: first}) == (first, default)
    assert opened(**{name: first}) == (first, first)
    assert opened() == opened(options=LogOptions()) == opened(borrowed=True) == (first, first)
    assert opened(borrowed=True, **{name: second}) == (second, first)
    assert opened(borrowed=True, options=LogOptions(**{name: second})) == (first, first)
    given = first if second == default else second
    assert opened(options=LogOptions(**{name: second})) == (given, given)
    assert opened(**{name: second}) == opened() == (second, second)
    assert set(own(path)) == set(KEPT)


def test_every_option_that_deletes_is_one_that_a_log_keeps():
    """A new option of LogOptions is looked at here: either the log keeps it, or it is the process's."""
    names = {field.name for field in fields(LogOptions)}
    assert set(KEPT) == set(OTHERS) <= names
    assert set(KEEP_HISTORY) <= set(KEPT)
    assert {name for name in names if name.startswith(("retain_", "slot_keep_", "sync", "segment_"))} <= set(
        KEPT
    )


@pytest.mark.parametrize("older", [False, True], ids=["kept", "older"])
def test_what_a_log_does_not_say_deletes_nothing_where_it_is_borrowed(tmp_path, older):
    """A log of an earlier version has no file; its own program applies the defaults, as before."""
    path = tmp_path / "log"
    ChangeLog.open(path).close()
    if older:
        forget(path)
    with ChangeLog.open(path, borrowed=True) as log:
        assert (log.options.retain_bytes is None and log.options.retain_age is None) == older
    assert (own(path) is None) == older
    ChangeLog.open(path).close()
    assert own(path)["retain_bytes"] == LogOptions().retain_bytes


def test_one_damaged_copy_loses_nothing_and_two_delete_nothing(tmp_path, caplog):
    path = tmp_path / "log"
    ChangeLog.open(path, retain_bytes=2**30 + 1).close()
    (path / OPTIONS_NAME).write_bytes(b"{}")
    assert verify(path).verdict is Verdict.TORN
    with ChangeLog.open(path) as log:
        assert log.options.retain_bytes == 2**30 + 1
    assert verify(path).verdict is Verdict.SOUND
    for name in (OPTIONS_NAME, f"{OPTIONS_NAME}.copy"):
        (path / name).write_bytes(b"{}")
    for borrowed in (False, True):
        with ChangeLog.open(path, borrowed=borrowed) as log:
            assert (log.options.retain_bytes, log.options.retain_age) == (None, None)
        assert "both copies" in caplog.text
        caplog.clear()
    write_own(RealFileSystem(), path, {"retain_bytes": 5})
    assert verify(path).verdict is Verdict.SOUND
    with ChangeLog.open(path, borrowed=True) as log:
        assert (log.options.retain_bytes, log.options.retain_age) == (5, None)


@pytest.mark.parametrize("twin", ["SCHEMAS", "OPTIONS"])
def test_a_damaged_copy_is_repaired_whether_or_not_the_other_file_is_there(tmp_path, twin):
    path = tmp_path / "log"
    with ChangeLog.open(path) as log:
        log.commit([schema("order", {"type": "object"}), upsert("order", "1", {"a": 1})])
    if twin == "SCHEMAS":
        forget(path)  # as an earlier version left it
    (path / twin).write_bytes(b"{}")
    assert repair(path, write=True).after.verdict is Verdict.SOUND


@pytest.mark.parametrize("borrowed", [False, True])
def test_an_option_that_is_a_constant_by_now_is_no_reason_not_to_open(tmp_path, borrowed):
    """An earlier version kept it: it stays in the file, and counts for nothing."""
    path = tmp_path / "log"
    ChangeLog.open(path).close()
    write_own(RealFileSystem(), path, {"ack_every": 7, "retain_bytes": 5})
    with ChangeLog.open(path, borrowed=borrowed) as log:
        assert (log.options.retain_bytes, hasattr(log.options, "ack_every")) == (5, False)
    assert own(path)["ack_every"] == 7
    with ChangeStore.open(tmp_path / "store") as store:
        store.create("orders", retain_bytes=5)
        entry = store.entry("orders")
        entry.options["ack_every"] = 7
        assert store["orders"].options.retain_bytes == 5


def test_what_a_later_version_keeps_stays(tmp_path):
    path = tmp_path / "log"
    ChangeLog.open(path).close()
    write_own(RealFileSystem(), path, {"of_a_later_version": [1]})
    ChangeLog.open(path, retain_bytes=None).close()
    assert own(path)["of_a_later_version"] == [1]
    write_own(RealFileSystem(), path, {"sync": "sometimes"})
    with pytest.raises(InvalidOption, match="sometimes"):
        ChangeLog.open(path)


@pytest.mark.parametrize(
    ("number", "error", "told"),
    [
        (errno.EACCES, LogUnreadable, "OPTIONS cannot be opened"),
        (errno.EMFILE, LogExhausted, "no free file descriptor"),
        (errno.EIO, OSError, "simulated"),
    ],
)
def test_options_that_cannot_be_read_are_not_taken_for_none(monkeypatch, number, error, told):
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    write_own(system, LOG, {"retain_bytes": 5})

    with monkeypatch.context() as patch:
        failing(patch, system, "open", OSError(number, "simulated"))
        for call in (lambda: read_own(system, LOG), lambda: write_own(system, LOG, {"retain_age": 5.0})):
            with pytest.raises(error, match=told) as caught:
                call()
            assert type(caught.value) is error
    assert read_own(system, LOG) == {"retain_bytes": 5}


def test_a_disk_that_has_no_room_for_the_options_has_room_for_the_log(tmp_path, monkeypatch, caplog):

    failing(monkeypatch, "publishers.wal.files.own_options.write_own", OSError(28, "No space left on device"))
    with ChangeLog.open(tmp_path / "log", retain_bytes=None) as log:
        assert log.commit([upsert("order", "1", {})]).version == 1
    assert "cannot be written" in caplog.text


def test_a_backup_and_what_is_restored_keep_them(tmp_path):
    path = tmp_path / "log"
    ChangeLog.open(path, retain_bytes=None).close()
    backup(path, tmp_path / "backup")
    ChangeLog.open(path, retain_age=None).close()
    backup(path, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    assert own(tmp_path / "again") == own(path)
    assert own(path)["retain_age"] is None


def test_a_log_of_a_store_keeps_what_it_runs_with(tmp_path):
    """Given to the store, at the creation, or set since; whoever opens it, alone or with the store."""
    path = tmp_path / "store"
    with ChangeStore.open(path, **QUICK, retain_bytes=None) as store:
        store.create("plain")
        store.create("own", retain_bytes=2**31)
        store.set_options("own", retain_age=None)
        with pytest.raises(InvalidOption, match="slots"):
            store.set_options("own", slots=1)
        assert store.entry("own").options == {"retain_bytes": 2**31, "retain_age": None}
    for given, used, kept in (
        ({}, None, None),
        ({"retain_bytes": 2**32}, 2**32, 2**32),
        ({"borrowed": True}, 2**32, 2**32),
        ({"borrowed": True, "retain_bytes": 2**33}, 2**33, 2**32),
    ):
        with ChangeStore.open(path, **QUICK, **given) as store:
            assert store["plain"].options.retain_bytes == used
            assert store["own"].options.retain_bytes == 2**31
            assert store["own"].options.retain_age is None
        assert own(path / "plain")["retain_bytes"] == kept
    with ChangeStore.open(path) as store:
        store.set_options("plain", retain_bytes=2**20, sync="os")
    with ChangeLog.open(path / "plain", borrowed=True) as log:
        assert (log.options.retain_bytes, log.options.sync) == (2**20, "os")

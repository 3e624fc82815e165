"""What other users of the machine may do with a log, and that they stop no writer."""

import json
import logging
import os
import subprocess
import sys

import pytest

from penstock_cdc.errors import InvalidOption, LogBusy
from publishers import ChangeLog, ChangeStore, upsert
from publishers.wal import writer_of
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.disk.modes import DIRECTORY_MODES, FILE_MODES, MEETING_MODES, kept_readers
from publishers.wal.files.directory import LogWriter
from tests.harness.constants import set_constant
from tests.harness.inside import files_of, peers_of
from tests.publishers.support import QUICK
from transports.cli import main

PRIVATE = ("LOCK", "JOURNAL", "JOURNAL.copy")
READERS = ("owner", "group", "all")


def modes(path):
    """The mode of each file and directory, without links, which have those of their segments."""
    found = [path, *(one for one in path.rglob("*") if "held" not in one.parts)]
    return {str(one.relative_to(path)): one.stat().st_mode & 0o7777 for one in found}


def right(path, readers):
    """Those that they should have."""

    def mode(one):
        if one.is_dir():
            return MEETING_MODES[readers] if one.name == "readers" else DIRECTORY_MODES[readers]
        return 0o600 if one.name in PRIVATE else FILE_MODES[readers]

    return {name: mode(path / name) for name in modes(path)}


def use(path, **options):
    """Opens a log with everything that it makes files for."""
    with ChangeLog.open(path, **QUICK, segment_bytes=65_536, spool_bytes=4096, state=True, **options) as log:
        for number in range(3):
            log.commit([upsert("order", f"{number}{n}", {"t": "x" * 1000}) for n in range(50)])
        if "stock" not in log.slots:
            log.slots.create("stock")
            log.groups.create("pickers")
        return log.options.readers


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
@pytest.mark.parametrize("readers", READERS)
def test_what_a_log_makes_is_for_those_who_may_read_it(tmp_path, readers, umask):
    """Whatever the umask; LOCK and journals are for the owner alone."""
    before = os.umask(umask)
    try:
        assert use(tmp_path / "new" / "log", readers=readers) == readers
        with ChangeStore.open(tmp_path / "store", readers=readers, **QUICK) as store:
            store.create("orders")
    finally:
        os.umask(before)
    assert modes(tmp_path / "new") == right(tmp_path / "new", readers)
    assert modes(tmp_path / "store") == right(tmp_path / "store", readers)


@pytest.mark.parametrize("asked", READERS)
@pytest.mark.parametrize("kept", READERS)
def test_a_log_that_exists_keeps_its_modes_and_one_line_says_so(tmp_path, caplog, kept, asked):
    """So that no follower is lost by an upgrade; but LOCK and journals, which were for all to read, are not any more."""
    use(tmp_path / "log", readers=kept)
    ChangeStore.open(tmp_path / "store", readers=kept, **QUICK).close()
    for name in ("LOCK", "slots/JOURNAL", "groups/pickers/JOURNAL"):
        (tmp_path / "log" / name).chmod(0o644)
    with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
        assert use(tmp_path / "log", readers=asked) == kept
    assert modes(tmp_path / "log") == right(tmp_path / "log", kept)
    lines = [one.message for one in caplog.records if "keeps its modes" in one.message]
    assert len(lines) == (kept != asked)
    with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
        use(tmp_path / "log", readers=asked)
        ChangeLog.open(tmp_path / "log", borrowed=True, **QUICK).close()
    assert [one.message for one in caplog.records if "keeps its modes" in one.message] == lines
    with ChangeStore.open(tmp_path / "store", readers=asked, **QUICK) as store:
        store.create("orders")
    assert modes(tmp_path / "store") == right(tmp_path / "store", kept)


def test_a_directory_that_is_too_narrow_is_said_to_be_so(tmp_path, caplog):
    (tmp_path / "log").mkdir(0o700)
    with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
        ChangeLog.open(tmp_path / "log", readers="all", **QUICK).close()
    assert "is for its owner alone to read, and not for all users as readers='all'" in caplog.text
    with pytest.raises(InvalidOption, match="'owner', 'group' or 'all'"):
        ChangeLog.open(tmp_path / "log", readers="everybody")


OLD = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("busy", flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


def old_writer(path):
    """A process that takes the lock as earlier versions did."""
    return subprocess.Popen(
        [sys.executable, "-c", OLD, str(path / "LOCK")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_an_older_and_a_newer_writer_do_not_both_write(tmp_path):
    """The lock is the flock of LOCK, whichever version takes it, and whatever the mode that LOCK had."""
    path = tmp_path / "log"
    with ChangeLog.open(path, **QUICK), old_writer(path) as old:
        assert old.stdout.readline() == "busy\n"
    (path / "LOCK").chmod(0o644)
    with old_writer(path) as old:
        assert old.stdout.readline() == "locked\n"
        with pytest.raises(LogBusy):
            ChangeLog.open(path, **QUICK)
        old.stdin.close()
    with ChangeLog.open(path, **QUICK):
        assert modes(path)["LOCK"] == 0o600


def test_a_follower_that_may_not_open_lock_learns_from_tail_whether_the_writer_lives(tmp_path, monkeypatch):
    """While it lives, behind its end, and if it was killed: until its word has expired."""
    path = tmp_path / "log"
    plain = RealFileSystem.open

    def refused(self, path, mode):
        if path.name == "LOCK" and mode == "read":
            raise PermissionError(13, "Permission denied")
        return plain(self, path, mode)

    monkeypatch.setattr(RealFileSystem, "open", refused)
    now = [1_000.0]
    with ChangeLog.open(path, **QUICK) as log:
        tail = files_of(log)._tail
        tail.live(1_010_000_000, 7)
        monkeypatch.setattr(peers_of(files_of(log)), "tend", lambda: False)
        set_constant(monkeypatch, "publishers.wal.files.directory.SYSTEM_CLOCK", Clock(now))
        assert writer_of(RealFileSystem(), path) == LogWriter(alive=True, pid=7)
        now[0] = 1_011.0
        assert writer_of(RealFileSystem(), path) == LogWriter(alive=False)
        tail.live(2_000_000_000, 7)
        assert writer_of(RealFileSystem(), path).alive
        tail.fence[:] = b"\7" * 8  # an older version has opened it, which says nothing
        assert writer_of(RealFileSystem(), path) == LogWriter(alive=None)
        tail.fence[:] = tail.own
    assert writer_of(RealFileSystem(), path) == LogWriter(alive=False)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now):
        self.now = now

    def monotonic(self):
        return self.now[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run as two users")
@pytest.mark.parametrize("readers", READERS)
def test_another_user_reads_what_it_may_and_stops_nobody(readers):
    """It follows, reads by links, stages, verifies and backs up; in no mode it gets hold of the lock."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.publishers.log.two_users", readers],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told.pop("lock") == "PermissionError"
    copied, own = told.pop("backup"), told.pop("modes")
    staged, journals = own.pop("staged"), ["slots SOUND", "groups/pickers SOUND"]
    if readers == "owner":
        assert (copied, staged) == ("PermissionError", 0)
        assert told == {
            "stage": "PermissionError", "follow": "LogUnreadable", "consume": "LogUnreadable",
            "verify": ["UNREADABLE", True, []], "slots": "LogUnreadable", "followed": "LogUnreadable",
        }  # fmt: skip
        return
    assert staged > 0
    assert set(copied.values()) == {"600"}
    assert told == {
        "stage": "sealed", "follow": [402, True, True, "datagram"], "consume": [402, True],
        "verify": ["SOUND", True, journals], "slots": "PermissionError", "followed": [402, False, False, "datagram"],
    }  # fmt: skip


@pytest.mark.parametrize("readers", [None, *READERS])
def test_a_command_makes_a_log_or_a_store_for_those_who_may_read_it(tmp_path, readers):
    """F110: and a command that makes none refuses the option."""
    given = [] if readers is None else ["--readers", readers]
    rows = tmp_path / "rows"
    rows.write_text('{"entity_type":"order","key":"1","body":{}}\n')
    assert main(["append", str(tmp_path / "log"), str(rows), *given]) == 0
    assert main(["log", "create", str(tmp_path / "store"), "orders", *given]) == 0
    for name in ("log", "store"):
        assert modes(tmp_path / name) == right(tmp_path / name, readers or "owner")
    if readers is not None:
        assert main(["serve", str(tmp_path / "log"), "--port", "0", *given]) == 2
        assert main(["append", "http://127.0.0.1:1", str(rows), *given]) == 2


def test_who_asks_for_no_readers_gets_those_of_the_log_and_no_word(tmp_path, caplog):
    """As a command does that only looks: the owner alone where there is no log yet."""
    path = tmp_path / "log"
    assert kept_readers(path) == "owner"
    ChangeLog.open(path, readers="all", **QUICK).close()
    assert kept_readers(path) == "all"
    assert not caplog.records

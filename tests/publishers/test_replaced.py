"""F144: what is told to those who follow a log of which the directory is renamed, removed, replaced, or restored in place."""

import contextlib
import errno
import os
import shutil
from unittest import mock

import pytest

from penstock_cdc.errors import LogGone, LogReplaced, WalCorrupted
from penstock_cdc.types import LogIdentity
from publishers import ChangeLog, Position, upsert
from publishers.model.position import epoch_text
from publishers.wal.disk.filesystem import RealFileSystem
from tests.harness.constants import without_bounds
from tests.harness.inside import files_of, following_of, housekeeping_of, service_of
from tests.publishers.accidents import EACH_ACCIDENT, SHOWN, Site, rename_away
from tests.publishers.support import QUICK, Probe, fill, scratch, wait_until

ALL = [Position(version, index) for version in range(1, SHOWN + 1) for index in range(2)]


@pytest.fixture
def site():
    home = scratch()
    yield Site(home)
    shutil.rmtree(home, ignore_errors=True)


def follow(site, **options):
    return ChangeLog.open(
        site.path, read_only=True, **without_bounds({"tail_poll": 0.01, "tail_idle": 0.02, **options})
    )


@EACH_ACCIDENT
def test_every_subscriber_is_told_once_and_has_a_prefix_of_what_was_there(site, accident, caplog):
    """F144: caught up, half way, without demand; and pages, statistics and later subscribers likewise."""
    with follow(site) as log:
        head = log.token(log.head)
        probes = [Probe(first=1000), Probe(first=3), Probe()]
        for probe in probes:
            log.changes(since=Position(1, 0)).subscribe(probe)
        probes[0].wait_for(len(ALL))
        probes[1].wait_for(3)
        accident.happen(site)
        for probe in probes:
            wait_until(lambda probe=probe: probe.error, probe.state)
            assert isinstance(probe.error, accident.error), probe.error
            assert probe.terminals == 1
            assert probe.positions == ALL[: len(probe.positions)]
        assert [len(probe.positions) for probe in probes] == [len(ALL), 3, 0]
        wait_until(lambda: log.closed)
        assert log.failure is probes[0].error
        for call in (log.history, log.statistics, log.changes, log.schemas):
            with pytest.raises(accident.error):
                _subscribed(call())
        assert log.token(log.head) == head, "what was given is a place still"
    assert [record.message for record in caplog.records if record.name == "penstock.follower"] == [
        f"the log blue is no longer followed: {log.failure}"
    ]


def _subscribed(found):
    late = Probe(first=1)
    found.subscribe(late)
    wait_until(lambda: late.error)
    raise late.error


@EACH_ACCIDENT
def test_a_reader_of_the_disk_gets_what_was_there_or_the_error(site, accident):
    """F144: before anybody has looked; segments are opened by their names, under which others may lie by now."""
    with follow(site, tail_poll=60.0, tail_idle=60.0) as log:
        before = log.history(limit=100).changes
        accident.happen(site)
        service_of(log).frames.clear()
        with contextlib.suppress(accident.error):
            assert log.history(limit=100).changes == before
        probe = Probe(first=100)
        log.changes(since=Position(1, 0)).subscribe(probe)
        wait_until(lambda: probe.error or len(probe.positions) == len(ALL), probe.state)
        assert isinstance(probe.error, accident.error | None)
        assert probe.changes == list(before[: len(probe.changes)])


def test_what_was_there_and_what_is_there_is_told_as_data_and_in_words(site):
    """F144."""
    with follow(site) as log:
        old = LogIdentity(log.log_id, epoch_text(*files_of(log).opening))
        site.link(site.other)
        wait_until(lambda: log.closed)
        error = log.failure
    with follow(site) as log:
        assert error.new == LogIdentity(log.log_id, epoch_text(*files_of(log).opening))
        assert error.old == old
        assert str(error) == (
            f"the log was replaced: it was log {old.log_id} in epoch {old.epoch}, and now there is log {log.log_id} in epoch "
            f"{error.new.epoch}; open it again, and choose a start position"
        )
        site.link(site.blue)
        wait_until(lambda: log.closed)
    rename_away(site)
    with pytest.raises(LogGone, match=r"there is no log at .*shop any more; open the log at its new path"):
        raise LogGone(site.path)


def test_of_a_copy_the_places_that_were_kept_are_judged(site):
    """F144."""
    with follow(site) as log:
        site.link(site.backup)
        wait_until(lambda: log.closed)
        assert "resume from the stored positions" in str(log.failure)
        assert log.failure.old.log_id == log.failure.new.log_id


def test_a_writer_that_is_opened_again_and_again_goes_on_the_same_history(site):
    """F144: an epoch that continues is no other history, written in or not, with something withheld or not."""
    with follow(site) as log:
        probe = Probe(first=10_000)
        log.changes(since=Position(1, 0)).subscribe(probe)
        for number in range(10):
            with ChangeLog.open(site.path, **QUICK) as owner:
                match number % 5:
                    case 1:
                        fill(owner, 2)
                    case 2:
                        owner.commit([upsert("order", "withheld", {})], visible=False)
                    case 3:  # what another epoch has written is shown in this one
                        owner.publish(owner.withheld.start)
                    case 4:
                        forgotten = owner.commit([upsert("order", "forgotten", {})], visible=False)
                        owner.forget_after(forgotten.version - 1)
                        fill(owner, 1)
                wait_until(lambda owner=owner: log.head == owner.head, lambda: (probe.state(), log.failure))
        assert log.failure is None
        assert probe.error is None
        assert probe.clean


class Failing(RealFileSystem):
    """HEAD cannot be read, or found, for so many times."""

    def __init__(self):
        self.times = 0

    def open(self, path, mode, /):
        file = super().open(path, mode)
        return Unsteady(self, file) if path.name == "HEAD" and mode == "read" else file

    def fails(self):
        self.times -= self.times > 0
        return self.times


class Unsteady:
    def __init__(self, system, file):
        self._system = system
        self._file = file

    def pread(self, size, offset):
        if self._system.fails():
            raise OSError(errno.ESTALE, "an error that passes")
        return self._file.pread(size, offset)

    def is_at(self, path):
        return not self._system.fails() and self._file.is_at(path)

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_an_error_that_passes_ends_nobody(site):
    """F144: ESTALE, EIO, once."""
    system = Failing()
    with follow(site, filesystem=system) as log:
        for times in (2, 3):  # of these one counts down only
            system.times = times
            wait_until(lambda: not system.times)
            with ChangeLog.open(site.path, **QUICK) as owner:
                fill(owner, 1)
                wait_until(lambda owner=owner: log.head == owner.head)
        assert log.failure is None


def test_a_damaged_head_ends_those_who_depend_on_it(site):
    """F144: who has no TAIL to believe follows HEAD."""
    (site.blue / "TAIL").unlink()
    with follow(site) as log:
        probe = Probe()
        log.changes().subscribe(probe)
        os.truncate(site.blue / "HEAD", 100)
        with (site.blue / "HEAD").open("r+b") as file:
            file.write(bytes(100))
        wait_until(lambda: probe.error, probe.state)
        assert isinstance(probe.error, WalCorrupted)
        with pytest.raises(WalCorrupted, match="HEAD has no valid slot"):
            log.statistics()


def test_a_directory_that_may_not_be_entered_is_not_taken_for_gone(site):
    """F144: nobody knows then; it goes on with what is open."""
    with follow(site) as log:
        presence = files_of(log)._presence
        os.chmod(site.home, 0)
        try:
            if not presence.holds():  # root may enter
                files_of(log).refresh()
        finally:
            os.chmod(site.home, 0o700)
        assert log.failure is None


class Counting(RealFileSystem):
    """Counts what a look costs."""

    def __init__(self):
        self.looks = 0
        self.others = 0

    def open(self, path, mode, /):
        self.others += 1
        file = super().open(path, mode)
        return _Counted(self, file) if path.name in ("HEAD", "TAIL") else file

    def listing(self, path, /):
        self.others += 1
        return super().listing(path)


class _Counted:
    def __init__(self, system, file):
        self._system = system
        self._file = file

    def is_at(self, path):
        self._system.looks += 1
        return self._file.is_at(path)

    def pread(self, size, offset):
        self._system.others += 1
        return self._file.pread(size, offset)

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_an_idle_look_costs_two_stats_more(site):
    """F144, F51: counted; and none is paid per commit but at the look that finds it."""
    system = Counting()
    with follow(site, filesystem=system, tail_poll=60.0, tail_idle=60.0) as log:
        housekeeping_of(log).close()
        files = files_of(log)
        files.refresh()
        system.looks = system.others = 0
        for _ in range(100):
            files.refresh()
        assert (system.looks, system.others) == (200, 0)
        with ChangeLog.open(site.path, **QUICK) as owner:
            fill(owner, 1)
            files.refresh()
            system.looks = system.others = 0
            fill(owner, 50)
            files.refresh()
        assert (system.looks, system.others) == (2, 0)


def test_a_page_that_is_removed_and_made_anew_is_read_anew(site):
    """F144: the old one would tell nothing new for ever; `penstock repair` and people remove it."""
    with follow(site) as log:
        (site.blue / "TAIL").unlink()
        with ChangeLog.open(site.path, **QUICK) as owner:
            fill(owner, 1)
            wait_until(lambda: log.head == owner.head, lambda: log.failure)
        assert log.failure is None


def test_to_look_is_one_system_call(site):
    """F144."""
    with follow(site, tail_poll=60.0, tail_idle=60.0) as log:
        presence = files_of(log)._presence
        assert presence.holds()
        with (
            mock.patch.object(os, "stat", wraps=os.stat) as stat,
            mock.patch.object(os, "fstat", wraps=os.fstat) as fstat,
        ):
            assert presence.holds()
        assert (stat.call_count, fstat.call_count) == (1, 0)


def test_retention_is_not_mistaken_for_a_loss(site):
    """F144: segments vanish while they are opened."""
    shutil.rmtree(site.blue)
    options = {**QUICK, "segment_bytes": 65_536, "retain_bytes": 65_536, "fill_step": 4096}
    with ChangeLog.open(site.blue, **options) as owner:
        fill(owner, 1)
        with follow(site) as log:
            probe = Probe(first=10**6)
            log.changes(on_gap=lambda _gap: None).subscribe(probe)
            for _ in range(60):
                owner.commit([upsert("order", "1", {"x": os.urandom(10_000).hex()})])
            wait_until(lambda: owner.oldest > Position(2), owner.statistics)
            wait_until(lambda: log.head == owner.head, lambda: log.failure)
            assert log.failure is None
            assert probe.error is None


def test_closing_does_not_wait_for_one_who_ends_by_itself(site):
    """F144: both want the same lock, and the one waits for the thread of the other."""
    log = follow(site)
    with log._closing:
        rename_away(site)
        wait_until(lambda: following_of(log)._suspects)
    log.close()
    assert log.closed


def test_a_log_whose_only_error_is_that_it_was_closed_has_not_failed(site):
    """F144."""
    log = follow(site)
    log.close()
    assert log.failure is None


@pytest.mark.parametrize("what", [LogReplaced, LogGone])
def test_no_retry_as_it_was_is_promised(what):
    """F144: what follows may be another history, so it is for the reader to choose."""
    assert not what.retryable

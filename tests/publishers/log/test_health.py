"""Whether a log is sound, and who writes it."""

import os

import pytest

from flow.clock import SystemClock
from publishers import ChangeLog
from publishers.errors import (
    FormatTooNew,
    LogClosed,
    LogDropped,
    LogExhausted,
    LogFailed,
    LogFull,
    LogUnreadable,
    NotALog,
    WalCorrupted,
)
from publishers.log.health import HealthStatus, LogHealth
from publishers.wal import LogWriter
from tests.harness.constants import set_bounds
from tests.harness.failing import failing
from tests.harness.inside import files_of, writer_of
from tests.publishers.support import fill, opened


class Clock(SystemClock):
    """Goes on by itself, and ahead when it is told to."""

    ahead = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead


def test_an_open_log_is_sound_and_tells_its_writer_and_the_age_of_its_last_commit():
    with opened() as log:
        assert log.health() == LogHealth(HealthStatus.OK, None, LogWriter(True, os.getpid()), None)
        fill(log, 1)
        with ChangeLog.open(log.path, read_only=True) as follower:
            for one in (log, follower):
                health = one.health()
                assert (health.status, health.writer) == (HealthStatus.OK, LogWriter(True, os.getpid()))
                assert 0 <= health.commit_age < 60
            follower.close()
            assert isinstance(follower.health().why, LogClosed)


def test_a_follower_that_cannot_look_is_stale(monkeypatch):
    clock = Clock()
    set_bounds(tail_idle=2.0)
    with opened() as log, ChangeLog.open(log.path, read_only=True, clock=clock) as follower:
        failing(monkeypatch, files_of(follower), "refresh", NotALog(follower.path, "x"))
        clock.ahead = 19.0
        assert follower.health().status is HealthStatus.OK
        clock.ahead = 30.0
        health = follower.health()
    assert health.status is HealthStatus.STALE
    assert str(health.why) == "it was looked at last 30 s ago"


def test_a_log_that_takes_no_commits_is_not_sound():
    with opened() as log:
        fill(log, 1)
        writer_of(files_of(log)).health.fail("no such device")
        health = log.health()
        assert (health.status, type(health.why)) == (HealthStatus.FAILED, LogFailed)
        with pytest.raises(LogFailed):
            log.close()


@pytest.mark.parametrize(
    ("why", "soundness"),
    [
        (WalCorrupted(1, 2, "x"), HealthStatus.CORRUPT),
        (LogDropped("x"), HealthStatus.GONE),
        (LogUnreadable("x", "y"), HealthStatus.UNREADABLE),
        (LogFull(1, 2), HealthStatus.FULL),
        (LogExhausted("descriptors"), HealthStatus.EXHAUSTED),
        (FormatTooNew(9, 2), HealthStatus.FAILED),
    ],
)
def test_each_error_has_its_word(why, soundness):
    assert LogHealth.of(why) == LogHealth(soundness, why)

"""A machine that gives no more threads."""

import threading
from functools import partial

import pytest

from publishers import ChangeLog, upsert
from publishers.errors import LogExhausted
from publishers.wal import Wal
from tests.harness.failing import failing
from tests.publishers.support import QUICK


@pytest.fixture
def no_threads(monkeypatch):
    """A function that begins or ends the lack of threads."""
    start, lacking = threading.Thread.start, [False]

    def refuse(thread):
        if lacking[0]:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    def lack(lacks):
        lacking[0] = lacks

    yield lack
    lack(lacks=False)


def test_a_log_is_not_opened_without_a_thread_and_is_when_there_is_one(tmp_path, no_threads):
    for read_only in (False, True):
        no_threads(lacks=True)
        for _ in range(2):
            with pytest.raises(LogExhausted, match="no more threads") as caught:
                ChangeLog.open(tmp_path / "log", read_only=read_only, **QUICK)
            assert (caught.value.resource, caught.value.retryable) == ("threads", True)
        no_threads(lacks=False)
        with ChangeLog.open(tmp_path / "log", read_only=read_only, **QUICK) as log:
            assert log.head.version == 1


def test_a_commit_needs_no_thread_and_a_submission_that_finds_none_is_refused(tmp_path, no_threads):
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        no_threads(lacks=True)
        log.commit([upsert("order", "1", {})])
        for _ in range(2):
            with pytest.raises(LogExhausted):
                log.submit([upsert("order", "2", {})])
        no_threads(lacks=False)
        assert log.submit([upsert("order", "2", {})]).accepted.result(60).version == 2


def test_the_state_of_a_log_is_not_begun_without_a_thread(tmp_path, no_threads, monkeypatch):
    allowed = [1]  # for the housekeeping
    start = threading.Thread.start

    def some(thread):
        if not allowed[0]:
            raise RuntimeError("can't start new thread")
        allowed[0] -= 1
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", some)
        with pytest.raises(LogExhausted):
            ChangeLog.open(tmp_path / "log", state=True, **QUICK)
    with ChangeLog.open(tmp_path / "log", state=True, **QUICK) as log:
        version = log.commit([upsert("order", "1", {})]).version
        log.state.wait(version, 60)


@pytest.mark.parametrize("concurrent", [False, True])
def test_memory_that_is_lacking_before_a_group_is_written_refuses_that_group_only(
    tmp_path, monkeypatch, concurrent
):
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        log.commit([upsert("order", "1", {})])
        commit = partial(log.commit, [upsert("order", "2", {})], durable=True)
        if concurrent:
            commit = lambda: log.submit([upsert("order", "2", {})]).accepted.result(60)  # noqa: E731 - the other way
        with monkeypatch.context() as patched:
            failing(patched, Wal, "append", MemoryError)
            with pytest.raises(LogExhausted) as caught:
                commit()
        assert caught.value.resource == "memory"
        assert commit().version == 2

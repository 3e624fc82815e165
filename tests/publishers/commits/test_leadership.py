"""What a leader owes the others between two steps: each fault here was found by `tests.model.queue_world`, and stood in the code."""

import threading

import pytest

from penstock_cdc.errors import LogClosed, LogFailed, LogFull, NoSuchVersion
from publishers import Wait
from publishers.commits.pending import Pending
from publishers.commits.queue import CommitQueue
from tests.harness.inside import committer_of, files_of, queue_of
from tests.publishers.support import Held, opened, order, wait_until


def between(monkeypatch, when, act):
    """Calls ``act`` once, as a leader ends its leadership: before or after that."""
    end = CommitQueue.end
    acts = [act]

    def ended(queue, leader, group, until):
        if when == "before" and acts:
            acts.pop()(group)
        end(queue, leader, group, until)
        if when == "after" and acts:
            acts.pop()(group)

    monkeypatch.setattr(CommitQueue, "end", ended)


def aside(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_errors_of_a_group_are_known_as_its_leadership_ends(monkeypatch):
    """F191: else the next leader would write the successor of a commit that is being refused."""
    with opened() as log:
        found = []
        between(monkeypatch, "before", lambda group: found.extend(type(member.error) for member in group))

        def full(_transactions):
            raise LogFull(log.path, "no room")

        monkeypatch.setattr(files_of(log), "append", full)
        with pytest.raises(LogFull):
            log.submit([order(1)]).result(timeout=60)
    assert found == [LogFull]


def test_a_submission_that_is_truncated_at_once_is_refused(monkeypatch):
    """F191: and is not taken for the next commit of the same version."""
    with opened() as log:
        between(monkeypatch, "after", lambda _group: log.forget_after(0))
        gone = log.submit([order(1)], visible=False)
        with pytest.raises(NoSuchVersion):
            gone.result(Wait.VISIBLE, 60)
        assert log.commit([order(2)]).version == 1


def test_a_close_of_a_log_that_fails_answers_the_submissions_that_wait(monkeypatch):
    """F191: the thread that leads for them ends behind the last of them."""
    with opened() as log:
        held = Held(log, monkeypatch)
        fill = aside(lambda: log.commit([order(0)], producer=("a", 1)))
        assert held.inside.wait(60)
        waiting = log.submit([order(1)])
        closing = []

        def close_meanwhile(_group):
            committer_of(log)._fail("as a test says")
            closing.append(aside(log.close))
            wait_until(lambda: queue_of(committer_of(log)).closed and committer_of(log).waiting[0] == 2)

        between(monkeypatch, "before", close_meanwhile)
        held.go.set()
        with pytest.raises((LogFailed, LogClosed)):
            waiting.result(timeout=60)
        for thread in (fill, *closing):
            thread.join(60)


def test_an_interrupt_of_a_close_does_not_close_the_files_under_a_leader(monkeypatch):
    """F191, invariant 13."""
    with opened() as log:
        held = Held(log, monkeypatch)
        commit = log.submit([order(0)])
        assert held.inside.wait(60)
        wait = Pending.wait
        waits = []

        def interrupted(pending):
            waits.append(pending)
            if len(waits) == 1:
                raise KeyboardInterrupt
            held.go.set()
            wait(pending)

        monkeypatch.setattr(Pending, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.close()
        assert commit.result(timeout=60).version == 1
        assert len(waits) > 1


def test_a_second_interrupt_does_not_discard_what_a_leader_reads(monkeypatch):
    """Invariant 13: the log would fail, because the spool of a commit in the leader's group is gone."""
    with opened(spool_bytes=1024, frame_bytes=1024) as log:
        first, second = threading.Event(), threading.Event()
        waits, sizes = [], []
        append, wait = files_of(log).append, Pending.wait

        def held(transactions):
            sizes.append(len(transactions))
            assert (first if len(sizes) == 1 else second).wait(60)
            return append(transactions)

        def interrupted(pending):
            if pending.transaction.spool is not None:
                waits.append(pending)
                first.set()
                wait_until(lambda: len(sizes) == 2)
                if len(waits) < 3:
                    raise KeyboardInterrupt
                second.set()
            wait(pending)

        monkeypatch.setattr(files_of(log), "append", held)
        monkeypatch.setattr(Pending, "wait", interrupted)
        threads = [aside(lambda: log.commit([order(0)]))]
        wait_until(lambda: sizes == [1])
        threads.append(aside(lambda: log.commit([order(1)], producer=("a", 1))))
        wait_until(lambda: committer_of(log).waiting[0] == 1)
        with pytest.raises(KeyboardInterrupt):
            log.commit([order(number) for number in range(100)])
        second.set()
        for thread in threads:
            thread.join(60)
        assert (sizes, len(waits), log.visible) == ([1, 2], 3, 3)

"""Commits for which no thread waits: order, groups, degrees, failures, the end of the log."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

import flow
from penstock_cdc.errors import (
    ExpectationFailed,
    InvalidChange,
    LogClosed,
    LogFailed,
    LogReadOnly,
    NoSuchVersion,
    PredecessorFailed,
)
from penstock_cdc.mutations import schema
from penstock_cdc.types import Submission
from publishers import Area, ChangeLog, Content, Criterion, Operation, Wait, upsert
from publishers.commits.label import RemoteProducer
from publishers.commits.submission import Submitted
from tests.harness.inside import committer_of, files_of, queue_of
from tests.publishers.support import QUICK, Held, Probe, fill, opened, order, scratch, wait_until


def test_what_is_submitted_is_committed_in_order_and_in_groups(monkeypatch):
    """F145: one thread commits many, with those of other threads."""
    with opened() as log:
        held = Held(log, monkeypatch)
        first = log.submit([order(0)])
        assert held.inside.wait(60)
        others = [log.submit([order(n)]) for n in range(1, 50)]
        thread = threading.Thread(target=fill, args=(log, 1))
        thread.start()
        wait_until(lambda: committer_of(log).waiting[0] == 50)
        held.go.set()
        assert [one.result(Wait.VISIBLE, 20).version for one in (first, *others)] == list(range(1, 51))
        thread.join(60)
        assert held.sizes == [1, 50]


@pytest.mark.parametrize("options", [QUICK, {"sync": "always"}])
async def test_each_degree_has_a_future(options):
    """F145: accepted, durable and visible; to await a submission is to await durable."""
    with opened(**options) as log:
        submission = log.submit([order(1)], meta={"by": "ann"}, producer=("a", 1))
        commit = await submission
        assert commit.version == 1
        assert commit.changes == 2
        for wait in Wait:
            assert submission.result(wait, 20) == commit
        assert log.visible == 1
        again = log.submit([order(1)], producer=("a", 1))
        assert (await again).duplicate
        assert again.result(Wait.VISIBLE, 20).version == 1


def test_accepted_comes_before_the_sync_and_durable_after_it(monkeypatch):
    """F145: whoever waits for less is told earlier."""
    with opened(sync="always") as log:
        syncing, go = threading.Event(), threading.Event()
        sync = files_of(log).sync

        def held():
            syncing.set()
            assert go.wait(60)
            return sync()

        monkeypatch.setattr(files_of(log), "sync", held)
        submission = log.submit([order(1)])
        assert syncing.wait(60)
        assert submission.accepted.result(60).version == 1
        assert not submission.durable.done()
        assert not submission.visible.done()
        assert not submission.durable.cancel()
        go.set()
        assert submission.visible.result(60).version == 1


def test_under_the_interval_policy_durable_comes_with_the_sync():
    """F145: unless it is asked for at once."""
    with opened(sync="interval", sync_interval=60.0) as log:
        lazy = [log.submit([order(n)]) for n in range(3)]
        assert [one.accepted.result(60).version for one in lazy] == [1, 2, 3]
        assert not lazy[0].durable.done()
        assert log.submit([order(4)], durable=True).result(timeout=60).version == 4
        assert [one.visible.result(60).version for one in lazy] == [1, 2, 3]
        last = log.submit([order(5)])
        last.accepted.result(60)
    assert last.visible.result(60).version == 5  # closing syncs


def test_what_is_withheld_is_durable_and_becomes_visible_when_it_is_published_or_never():
    """F145."""
    with opened() as log:
        shown = log.submit([order(1)], visible=False)
        gone = log.submit([order(2)], visible=False)
        kept = log.submit([order(3)], visible=False)
        assert [one.durable.result(60).version for one in (shown, gone, kept)] == [1, 2, 3]
        assert not shown.visible.done()
        log.publish(1)
        assert shown.visible.result(60).version == 1
        log.forget_after(1)
        for one in (gone, kept):
            with pytest.raises(NoSuchVersion):
                one.visible.result(60)
        last = log.submit([order(4)], visible=False)
        assert last.durable.result(60).version == 2
    with pytest.raises(LogClosed):
        last.visible.result(60)


def test_a_refusal_is_told_by_every_future_and_concerns_no_other():
    """F145: an expectation that fails."""
    with opened() as log:
        place = log.token(log.head)
        first = log.submit([order(1)], expect=place)
        second = log.submit([order(2)], expect=(place, [("order", "1")]))
        third = log.submit([order(3)])
        assert first.result(timeout=60).version == 1
        for wait in Wait:
            with pytest.raises(ExpectationFailed):
                second.result(wait, 20)
        assert third.result(timeout=60).version == 2


def test_what_is_wrong_is_raised_at_once():
    """F145."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        with pytest.raises(InvalidChange):
            log.submit([7])
        with pytest.raises(TypeError):
            log.submit([order(1)], wrong=1)
        with ChangeLog.open(path, read_only=True) as follower, pytest.raises(LogReadOnly):
            follower.submit([order(1)])
    with pytest.raises(LogClosed):
        log.submit([order(1)])


def test_schemas_and_large_transactions_can_be_submitted():
    """F145: a schema is told when the call returns, so that what follows is stamped."""
    with opened(spool_bytes=10_000) as log:
        told = log.submit([schema("order", {"type": "struct"})])
        assert told.visible.done()
        assert log.schemas() == {"order": (1,)}
        stamped = log.submit([order(1)])
        large = log.submit(
            [upsert("order", str(n), {"pad": "x" * 1000}) for n in range(100)],
            expect=(log.token(log.head), [("item", "x")]),
        )
        assert stamped.result(timeout=60).version == 2
        assert large.result(timeout=60).changes == 101
        wait_until(lambda: not list(log.path.glob("spool-*")))


def test_a_full_queue_makes_the_submitter_wait(monkeypatch):
    """F145: ``queue_bytes`` is the bound of what is submitted too."""
    with opened(queue_bytes=2_000) as log:
        held = Held(log, monkeypatch)
        first = log.submit([order(0)])
        assert held.inside.wait(60)
        submissions = []

        def submit():
            pad = {"pad": "x" * 200}
            submissions.extend(log.submit([upsert("order", str(n), pad)]) for n in range(40))

        thread = threading.Thread(target=submit)
        thread.start()
        wait_until(lambda: queue_of(committer_of(log)).outside)
        assert len(submissions) < 40
        held.go.set()
        thread.join(60)
        assert [one.result(timeout=60).version for one in (first, *submissions)] == list(range(1, 42))


def test_a_submitter_that_waits_for_room_is_told_of_the_end(monkeypatch):
    """F145: a log that is closed lets nobody wait."""
    with opened(queue_bytes=500) as log:
        held = Held(log, monkeypatch)
        log.submit([order(0)])
        assert held.inside.wait(60)
        errors = []

        def submit():
            try:
                for n in range(9):
                    log.submit([upsert("order", str(n), {"pad": "x" * 200})])
            except LogClosed as error:
                errors.append(error)

        thread = threading.Thread(target=submit)
        thread.start()
        wait_until(lambda: queue_of(committer_of(log)).outside)
        closing = threading.Thread(target=log.close)
        closing.start()
        thread.join(60)
        held.go.set()
        closing.join(60)
        assert errors


def test_a_failed_disk_is_told_to_all_who_wait(monkeypatch):
    """F145: those of the group, those whose sync was to come, and those who come later."""
    with opened(sync="interval", sync_interval=60.0) as log:
        lazy = log.submit([order(1)])
        lazy.accepted.result(60)

        def broken():
            raise LogFailed("unknown", "no disk")

        monkeypatch.setattr(files_of(log), "sync", broken)
        now = log.submit([order(2)], durable=True)
        for one in (lazy, now):
            with pytest.raises(LogFailed) as found:
                one.durable.result(60)
            assert found.value.outcome == "unknown"
        with pytest.raises(LogFailed) as found:
            log.submit([order(3)])
        assert found.value.outcome == "refused"


def test_a_refusal_that_its_leader_tells_after_the_close_is_told(monkeypatch):
    """Invariant 11: a leader appoints the one that ends the log before it has told its own group."""
    with opened() as log:
        place = log.token(log.head)
        log.commit([order(1)])
        ended, go = threading.Event(), threading.Event()
        before = threading.enumerate()
        finish = Submitted.finish

        def late(one):
            ended.set()
            assert go.wait(60)
            finish(one)

        monkeypatch.setattr(Submitted, "finish", late)
        submission = log.submit([order(1)], expect=(place, [("order", "1")]))
        assert ended.wait(60)
        log.close()
        for thread in threading.enumerate():
            if thread not in before and thread.name.endswith("-tells"):
                thread.join(20)
        go.set()
        with pytest.raises(ExpectationFailed):
            submission.result(Wait.VISIBLE, 20)


def test_what_a_callback_raises_stops_nobody(monkeypatch):
    """F145: callbacks run on a thread of the log; they may even commit."""
    with opened() as log:
        done = threading.Event()
        one = log.submit([order(1)])
        one.durable.add_done_callback(lambda _: (log.commit([order(2)]), done.set()))
        assert done.wait(60)
        assert log.submit([order(3)]).result(timeout=60).version == 3
        dropped = []
        monkeypatch.setattr(flow.hooks, "on_dropped_error", lambda error, *_: dropped.append(error))
        committer_of(log).arrivals._telling.put(lambda: 1 / 0)
        assert log.submit([order(4)]).result(timeout=60).version == 4
        assert isinstance(dropped[0], ZeroDivisionError)


def test_subscribers_are_woken_by_what_is_submitted():
    """F145: INLINE ones on the thread that leads."""
    with opened() as log:
        probe = Probe(first=10)
        log.changes().subscribe(probe, executor=flow.INLINE)
        log.submit([order(1)]).visible.result(60)
        wait_until(lambda: len(probe.changes) == 2)


async def test_a_wait_that_is_cancelled_does_not_undo_the_commit(monkeypatch):
    """F145."""
    with opened() as log:
        held = Held(log, monkeypatch)
        submission = log.submit([order(1)])
        waiting = asyncio.ensure_future(asyncio.wait_for(submission, 0.01))
        with pytest.raises(TimeoutError):
            await waiting
        held.go.set()
        assert submission.result(timeout=60).version == 1


def test_a_submission_may_have_arrived_already():
    """F145."""
    with opened() as log:
        commit = log.commit([order(1)])
        made = Submission.of(commit)
        assert made.future() is made.durable
        assert made.future(Wait.ACCEPTED).result() == commit


def test_what_is_submitted_behind_a_refusal_is_refused_with_it(monkeypatch):
    """F145: else a repetition of the refused one would be taken for one of what was written."""
    with opened() as log:
        place = log.token(log.head)
        log.commit([order(0)])
        held = Held(log, monkeypatch)
        blocker = log.submit([order(0)])
        assert held.inside.wait(60)
        first = log.submit([order(1)], producer=("a", 1), expect=place)
        second = log.submit([order(2)], producer=("a", 2), after=first)
        third = log.submit([order(3)], producer=("a", 3), after=second)
        other = log.submit([order(4)], producer=("b", 1), after=blocker)
        held.go.set()
        with pytest.raises(ExpectationFailed):
            first.result(timeout=60)
        for one in (second, third):
            with pytest.raises(PredecessorFailed) as found:
                one.result(timeout=60)
            assert found.value.retryable
        with pytest.raises(PredecessorFailed):
            log.submit([schema("order", {})], after=third)
        assert log.submit([order(5)], producer=("a", 1), after=other).result(timeout=60).version == 4


def test_a_repetition_behind_a_refusal_is_a_duplicate():
    """F145: what was written before is not refused for what is not."""
    with opened() as log:
        place = log.token(log.head)
        log.commit([order(1)], producer=("a", 2))
        first = log.submit([order(0)], expect=place)
        again = log.submit([order(1)], producer=("a", 2), after=first)
        assert again.result(timeout=60).duplicate


def test_remote_producers_bear_the_name_of_their_principal_and_never_evict_local_ones():
    """F145: each kind has its bound."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK, producers=3) as log:
        for number in range(3):
            log.commit([order(number)], producer=(f"local{number}", 1))
        began = datetime.now(UTC) - timedelta(minutes=1)
        for number in range(5):
            log.commit([order(number)], producer=(RemoteProducer("ann", f"p{number}"), 1))
        assert all(log.produced(f"local{number}") for number in range(3))
        assert [bool(log.produced(RemoteProducer("ann", f"p{number}"))) for number in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert log.serving.producers_of("ann", began) == 3
        assert (
            log.serving.producers_of("bob", began)
            == log.serving.producers_of("ann", datetime.now(UTC) + timedelta(minutes=1))
            == 0
        )
        log.commit([order(9)], producer=("local9", 1))
        assert log.produced("local0") is None
        assert log.serving.producers_of("ann", began) == 3
        # Another principal's producer of the same name is another producer.
        assert not log.commit([order(9)], producer=(RemoteProducer("bob", "p4"), 1)).duplicate
        assert log.commit([order(4)], producer=(RemoteProducer("ann", "p4"), 1)).duplicate
        event = log.history(
            Criterion(areas={Area.INFRASTRUCTURE}), reverse=True, limit=1, content=Content.BODY
        ).changes[0]
        assert event.operation is Operation.TRANSACTION
        assert (
            b'"producer":"bob/p4"'
            in files_of(log).whole.read(files_of(log).whole.locate(log.visible)).annotations
        )
    with ChangeLog.open(path, **QUICK, producers=3) as log:
        log.commit([order(9)], producer=(RemoteProducer("bob", "p5"), 1))
        assert log.serving.producers_of("ann", began) + log.serving.producers_of("bob", began) == 3

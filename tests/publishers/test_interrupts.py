"""Commits that are interrupted: by SIGINT at every line, by anything else at every step, twice, and while they wait."""

import contextlib
import itertools
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

import flow
from penstock_cdc.errors import LogFailed
from publishers import ChangeLog, Position
from publishers.commits import group_commit, pending, queue, withheld
from publishers.fanout import bench, group, publish_gate, registry, replayer, ring, waiting_list, watermark
from publishers.wal import wal, withholding
from publishers.wal.append import appender, head_writer, writer
from publishers.wal.recover import truncate
from tests.harness.inside import committer_of, files_of, publication_of, queue_of, service_of
from tests.harness.scale import each
from tests.publishers.support import QUICK, Held, Probe, everything, fill, opened, order, scratch, wait_until


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, at a place that the test chooses."""


STEPS = [
    ("committer", "_lead"),
    ("queue", "begin"),
    ("committer", "_write"),
    ("queue", "pass_on"),
    ("wal", "append"),
    ("wal", "sync"),
    ("wal", "publish_tail"),
    ("publication", "publish"),
    ("publication", "_concerned"),
    ("registry", "snapshot"),
    ("watermark", "advance"),
    ("waiting", "due"),
]


def interrupting(monkeypatch, holder, method, when, victim):
    """Interrupts a thread the first time that it calls a method: before it, or after."""
    kind = type(holder)
    original = getattr(kind, method)
    shots = []

    def shot(self, *args):
        mine = self is holder and threading.current_thread() is victim and not shots
        if mine:
            shots.append(method)
            if when == "before":
                raise Interrupt
        result = original(self, *args)
        if mine:
            raise Interrupt
        return result

    monkeypatch.setattr(kind, method, shot)
    return shots


def commit_against_an_interrupt(monkeypatch, arm, *, on_main=False):
    """Six commits of which the second leads a group of five and is interrupted; checks everything that must hold.

    ``arm`` gets the log and the thread of the victim, and answers what the victim's thread does first. On the main thread,
    where signals are handled, the log has to go on.
    """
    path = scratch() / "log"
    with ChangeLog.open(path, **{**QUICK, "sync": "always"}) as log:
        probe = Probe(first=10_000)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 1)
        held = Held(log, monkeypatch)
        acknowledged, failed, interrupted = [], [], []

        def commit(number):
            try:
                acknowledged.append(log.commit([order(number)], producer=(f"p{number}", 1)).version)
            except (Interrupt, KeyboardInterrupt):
                interrupted.append(number)
            except LogFailed as error:
                failed.append(error)

        def conduct():
            for place, thread in enumerate(threads[1:], 1):
                if thread in others:
                    thread.start()
                wait_until(lambda place=place: committer_of(log).waiting[0] + len(interrupted) == place)
            held.go.set()

        threads = [threading.Thread(target=commit, args=(number,), daemon=True) for number in range(5)]
        conductor = threading.Thread(target=conduct, daemon=True)
        victim = threads[1]
        others = [thread for thread in threads if not (on_main and thread is victim)]
        first = arm(log, threading.current_thread() if on_main else victim)

        def commit_as_victim():
            first()
            try:
                commit(1)
            finally:
                sys.settrace(None)

        victim.run = commit_as_victim
        threads[0].start()
        assert held.inside.wait(60)
        conductor.start()
        if on_main:
            commit_as_victim()
        for thread in (conductor, *others):
            thread.join(60)
            assert not thread.is_alive(), "a committer hangs"
        monkeypatch.undo()
        assert publication_of(log).gate.acquire(timeout=60)
        publication_of(log).gate.release()
        assert len(acknowledged) + len(failed) + len(interrupted) == 5
        if failed or on_main:
            assert bool(committer_of(log).failed) is not on_main
        # Whatever is visible was told; a log that is good goes on. Where the interrupt met the subscriber's own turn,
        # it was cancelled.
        cancelled = probe.subscription.ended
        if committer_of(log).failed is None:
            fill(log, 1)
        truth = everything(log)
        # Those who were just moved when it struck have left the ring, and read on from the WAL.
        wait_until(lambda: cancelled or len(probe.positions) >= len(truth))
        assert probe.positions == (truth[: len(probe.positions)] if cancelled else truth), probe.state()
        assert probe.clean
    assert cancelled or probe.terminals == 1
    check_reopened(path, acknowledged)
    return interrupted


def check_reopened(path, acknowledged):
    with ChangeLog.open(path, **QUICK) as log:
        kept = everything(log)
        assert {position.version for position in kept} >= set(acknowledged)
        assert [position.version for position in kept if not position.index] == list(
            range(1, log.head.version)
        )
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("where", "method"), STEPS)
def test_an_interrupt_at_any_step_publishes_or_fails_the_log_and_releases_everybody(
    monkeypatch, where, method, when
):
    """Invariant 13: followers and gates are released, nobody sleeps over what is visible, nothing appears twice."""

    def arm(log, victim):
        holders = {
            "committer": committer_of(log),
            "queue": queue_of(committer_of(log)),
            "wal": files_of(log),
            "publication": publication_of(log),
            "registry": service_of(log).registry,
            "watermark": service_of(log).watermark,
            "waiting": service_of(log).waiting,
        }
        if method == "due":  # it is asked only if somebody waits for an advance, or ends with one
            log.changes(until=10**6).subscribe(Probe(), executor=flow.INLINE)
        interrupting(monkeypatch, holders[where], method, when, victim)
        return lambda: None

    assert commit_against_an_interrupt(monkeypatch, arm) == [1]


TRACED = {
    module.__file__: Path(module.__file__).read_text("utf-8").splitlines()
    for module in (
        *(
            bench,
            group,
            group_commit,
            pending,
            publish_gate,
            queue,
            registry,
            ring,
            waiting_list,
            withheld,
            watermark,
        ),
        *(appender, truncate, head_writer, replayer, wal, withholding, writer),
    )
}


def at_each_line(shoot):
    """A trace function that calls ``shoot`` where a line of the code in question begins, as a real interrupt may.

    A line event of a ``with`` may be its exit, where no real interrupt is ever seen; nor is one seen, as it is by a trace
    function, outside of the handlers of the line: the second event of a line in a comprehension (CPython 3.12 and later).
    """

    def enter(frame, _event, _argument):
        text = TRACED.get(frame.f_code.co_filename)
        if text is None:
            return None
        last = 0

        def step(frame, event, _argument):
            nonlocal last
            begins = event == "line" and last != (last := frame.f_lineno)
            if begins and not text[last - 1].lstrip().startswith("with "):
                shoot()
            return step

        return step

    return enter


@pytest.fixture
def by_python():
    """Python's own handler of SIGINT, on the thread that tests run on."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a handler was left behind"
    signal.signal(signal.SIGINT, before)


def signal_at(number):
    """A trace that sends SIGINT to this process at one of the lines, by its number."""
    lines = itertools.count()

    def shoot():
        if next(lines) == number:
            signal.raise_signal(signal.SIGINT)

    return at_each_line(shoot)


@pytest.mark.usefixtures("by_python")
def test_a_signal_at_any_line_of_a_commit_leaves_the_log_good(monkeypatch):
    """Invariant 13: every line between the entry of a commit and its return, one run for each."""
    for number in each():
        trace = signal_at(number)
        if not commit_against_an_interrupt(
            monkeypatch, lambda *_, t=trace: lambda: sys.settrace(t), on_main=True
        ):
            break
    assert number > 100


@pytest.mark.usefixtures("by_python")
def test_a_signal_at_any_line_of_a_commit_that_meets_no_other_leaves_the_log_good():
    """Invariant 13: it is committed or not, whoever subscribes gets it, and the next one follows it."""
    for number in each():
        with opened(sync="always") as log:
            probe = Probe(first=10_000)
            log.changes().subscribe(probe, executor=flow.INLINE)
            trace, struck = signal_at(number), False
            try:
                sys.settrace(trace)
                fill(log, 1)
            except KeyboardInterrupt:
                struck = True
            finally:
                sys.settrace(None)
            assert committer_of(log).failed is None
            fill(log, 1)
            truth = everything(log)
            assert len(truth) in {2, 4}
            cancelled = probe.subscription.ended
            wait_until(lambda p=probe, t=truth: p.subscription.ended or len(p.positions) >= len(t))
            assert probe.positions == (truth[: len(probe.positions)] if cancelled else truth), probe.state()
        if not struck:
            break
    assert number > 100


def interrupt_of_an_owner(call, number, queued):
    """A call on a log with three withheld versions, interrupted at a line; answers whether it came so far."""
    path = scratch() / "log"
    trace = signal_at(number)

    hit = []
    with ChangeLog.open(path, **{**QUICK, "sync": "always"}) as log:
        probe = Probe(first=10_000)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 1)
        for _ in range(3):
            log.commit([order(1)], visible=False)
        acknowledged = []

        def commit():
            with contextlib.suppress(LogFailed):
                acknowledged.append(log.commit([order(1)], producer=("queued", 1)).version)

        other = threading.Thread(target=commit, daemon=True)
        if queued:
            other.start()
        try:
            sys.settrace(trace)
            call(log)
        except KeyboardInterrupt:
            hit.append(number)
        finally:
            sys.settrace(None)
        if queued:
            other.join(60)
            assert not other.is_alive(), "somebody hangs"
        assert publication_of(log).gate.acquire(timeout=60)
        publication_of(log).gate.release()
        cancelled = probe.subscription.ended
        assert not committer_of(log).failed
        assert not files_of(log).failed
        truth = everything(log)
        wait_until(lambda: cancelled or len(probe.positions) >= len(truth))
        assert probe.positions == (truth[: len(probe.positions)] if cancelled else truth), probe.state()
        assert probe.clean
        visible, durable = log.visible, log.durable
        commit()
        assert acknowledged
    with ChangeLog.open(path, **QUICK) as log:
        assert log.visible >= visible
        # The last one: what was acknowledged before may have been withheld, and forgotten by the call.
        assert log.durable in {durable, 2, 4} or log.durable >= max(acknowledged[-1:], default=1)
        kept = everything(log)
        assert [one.version for one in kept if not one.index] == list(range(1, log.visible + 1))
        if log.withheld:
            log.publish(log.withheld[-1])
        fill(log, 1)
        assert [one.version for one in everything(log) if not one.index] == list(range(1, log.head.version))
    shutil.rmtree(path.parent)
    return bool(hit)


@pytest.mark.usefixtures("by_python")
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("call", ["publish", "forget_after"])
def test_a_signal_at_any_line_of_publish_or_forget_after_leaves_the_log_good(call, queued):
    """Invariant 13, F28, E20: gates are released, nothing withheld is exposed, and it is done or was not begun."""
    for number in each():
        if not interrupt_of_an_owner(lambda log: getattr(log, call)(2), number, queued):
            break
    assert number > 100


@pytest.mark.usefixtures("by_python")
def test_a_signal_at_any_line_of_the_reading_of_frames_keeps_no_other_reader_waiting():
    """Invariant 13: who reads the same frames next gets them, although they were being read."""
    with opened() as log:
        fill(log, 3)
        truth = everything(log)
        for number in each():
            service_of(log).frames.clear()
            trace, struck, found = signal_at(number), False, []
            try:
                sys.settrace(trace)
                everything(log)
            except KeyboardInterrupt:
                struck = True
            finally:
                sys.settrace(None)
            other = threading.Thread(target=lambda f=found: f.append(everything(log)), daemon=True)
            other.start()
            other.join(60)
            assert found == [truth], number
            if not struck:
                break
    assert number > 20


def test_an_interrupted_follower_leaves_the_others_alone(monkeypatch):
    """Invariant 13: one who waits in the queue, or for room, may go; its transaction is there wholly or not at all."""
    with opened() as log:
        held = Held(log, monkeypatch)
        threads = [threading.Thread(target=fill, args=(log, 1)) for _ in range(4)]
        threads[0].start()
        assert held.inside.wait(60)
        queue = committer_of(log)
        waits = group_commit.Pending.wait
        victim = threading.Thread(target=lambda: _swallow(fill, log, 1))
        monkeypatch.setattr(
            group_commit.Pending,
            "wait",
            lambda self: _raise() if threading.current_thread() is victim else waits(self),
        )
        victim.start()
        victim.join(60)
        assert not victim.is_alive()
        assert queue.waiting == (0, 0)
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: queue.waiting[0] == 3)
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert log.head == Position(5, 0)


def _raise():
    raise Interrupt


def _swallow(call, *args):
    try:
        call(*args)
    except Interrupt:
        return


def test_an_interrupted_wake_up_reaches_the_others(log):
    """Invariant 13, E41: one whose code is interrupted takes no other's wake-up with it."""

    class Bomb(Probe):
        def take(self, change):
            super().take(change)
            raise Interrupt

    bombs, others = [Bomb(first=10) for _ in range(3)], [Probe(first=10) for _ in range(3)]
    for bomb, other in zip(bombs, others, strict=True):
        log.changes().subscribe(bomb, executor=flow.INLINE)
        log.changes().subscribe(other, executor=flow.INLINE)
    with pytest.raises(Interrupt):
        log.commit([order(1)])
    assert [len(other.positions) for other in others] == [2, 2, 2]
    assert [len(bomb.positions) for bomb in bombs] == [1, 1, 1]
    log.commit([order(2)])
    assert [len(other.positions) for other in others] == [4, 4, 4]


def test_an_interrupt_while_an_interrupt_is_handled_still_releases_everybody(monkeypatch):
    """Invariant 13: pressing ctrl-C twice."""

    def arm(log, victim):
        interrupting(monkeypatch, publication_of(log), "publish", "after", victim)
        abandon = committer_of(log)._fail
        shots = []

        def again(why):
            abandon(why)
            if not shots:
                shots.append(why)
                raise Interrupt

        monkeypatch.setattr(committer_of(log), "_fail", again)
        return lambda: None

    assert commit_against_an_interrupt(monkeypatch, arm) == [1]

"""A drain: wake-ups, requests, calls beside the stream, holds, loans and ends at once, on each kind of executor."""

import threading
from collections import deque

import pytest

from flow.drain import Drain
from flow.drain.feed import COMPLETED
from flow.executors import INLINE, Rejected, Resubmitter
from tests.harness.scale import scaled
from tests.interleaving import primitives
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler

LINES = ("drain/drain.py", "drain/strand.py")


class Source:
    """A feed of numbers; notices if two threads are in it."""

    def __init__(self) -> None:
        self.items: deque[int] = deque()
        self.completed = False
        self.inside = self.overlaps = self.released = 0

    def pull(self, limit: int, /) -> list[int]:
        self.inside += 1
        self.overlaps += self.inside > 1
        primitives.step("pull")
        found = [self.items.popleft() for _ in range(min(limit, len(self.items)))]
        self.inside -= 1
        return found

    def outcome(self) -> object:
        return COMPLETED if self.completed and not self.items else None

    def release(self) -> None:
        self.released += 1


class Pool:
    """An executor with two threads, and room for a few tasks."""

    def __init__(self, room: int) -> None:
        self.tasks = primitives.SimpleQueue()
        self.room = room
        self.threads = [threading.Thread(target=self.work, name=f"pool-{n}") for n in range(2)]
        for thread in self.threads:
            thread.start()

    def submit(self, task: object, /) -> None:
        if self.tasks.qsize() >= self.room:
            raise Rejected
        self.tasks.put(task)

    def work(self) -> None:
        while (task := self.tasks.get()) is not None:
            task()

    def close(self) -> None:
        for _ in self.threads:
            self.tasks.put(None)


class Lending:
    """A group that keeps the flag of one drain, and delivers by it; a stand-in for the benches of a log."""

    def __init__(self, case: "Case") -> None:
        self.case = case
        self.lock = primitives.Lock()
        self.has = self.serving = self.leaving = False

    def recall(self) -> None:
        with self.lock:
            self.leaving = self.serving
            release, self.has = self.has and not self.serving, self.has and self.serving
        if release:
            self.case.drain.release_hold(self)

    def round(self) -> None:
        """Takes one element for the drain, if that lends its flag."""
        case = self.case
        with self.lock:
            self.has = self.has or case.drain.lend(1, self)
            self.serving = served = self.has and case.drain.demand > 0 and bool(case.feed.items)
            item = case.feed.items.popleft() if served else None
        if served:
            Drain.deliver(iter([case.drain]), [item], None)
            with self.lock:
                self.serving = False
                release, self.leaving = self.leaving, False
                self.has = self.has and not release
            if release:
                case.drain.release_hold(self)
        if case.feed.items:  # the drain goes on by itself
            self.recall()


class Case:
    """A drain, its feed, and its subscriber."""

    def __init__(self, executor: object, *, started: bool = True) -> None:
        self.feed = Source()
        self.executor = executor
        self.drain: Drain[int] = Drain(self, self.feed, executor=executor, rescue=Resubmitter(), turn=2)
        self.group = Lending(self)
        self.got: list[int] = []
        self.words: list[str] = []
        self.ends: list[str] = []
        self.made = self.wanted = self.busy = self.overlaps = self.subscribed = 0
        if started:
            self.drain.start()

    # As the subscriber.

    def signalled(self) -> None:
        self.busy += 1
        self.overlaps += self.busy > 1 or bool(self.ends)
        primitives.step("signal")
        self.busy -= 1

    def on_subscribe(self, _subscription: object, /) -> None:
        self.signalled()
        self.subscribed += 1

    def on_next(self, item: int, /) -> None:
        self.signalled()
        self.got.append(item)
        if item == 0:
            self.asks(1)

    def on_error(self, _error: Exception, /) -> None:
        self.signalled()
        self.ends.append("error")

    def on_complete(self) -> None:
        self.signalled()
        self.ends.append("complete")

    # The kinds of entries.

    def asks(self, count: int) -> None:
        self.wanted += count
        self.drain.request(count)

    def starts(self) -> None:
        self.drain.start()
        assert self.subscribed == 1

    def requests(self) -> None:
        for _ in range(2):
            self.asks(1)

    def produces(self) -> None:
        for count in (1, 3):
            self.feed.items.extend(range(self.made, self.made + count))
            self.made += count
            self.drain.signal()

    def notifies(self) -> None:
        for word in "ab":
            self.drain.notify("word", lambda _, word=word: self.words.append(word))

    def holds(self) -> None:
        for _ in range(2):
            if self.drain.try_hold():
                assert not self.feed.inside
                assert not self.busy
                self.feed.inside += 1
                primitives.step("hold")
                self.feed.inside -= 1
                self.drain.release_hold()

    def lends(self) -> None:
        for _ in range(3):
            self.group.round()

    def completes(self) -> None:
        self.feed.completed = True
        self.drain.signal()

    def fails(self) -> None:
        self.drain.fail(ValueError("failed"))

    def cancels(self) -> None:
        self.drain.cancel()


KINDS = [Case.requests, Case.requests, Case.produces, Case.notifies, Case.holds, Case.lends]
ENDS = {"open": [], "completes": [Case.completes], "fails": [Case.fails], "cancels": [Case.cancels]}
ENDS["all"] = [Case.completes, Case.fails, Case.cancels]
ROOM = {"inline": 0, "pool": 100, "full pool": 1}


def signals(end: str, room: int) -> object:
    def scenario(run: Scheduler) -> None:
        case = Case(Pool(room) if room else INLINE)
        drain, feed = case.drain, case.feed

        def act(kind: object) -> object:
            def body() -> None:
                kind(case)

            body.__name__ = kind.__name__
            return body

        run.together(*map(act, [*KINDS, *ENDS[end]]))

        def settled() -> bool:
            return drain.ended or len(case.got) == min(case.made, case.wanted)

        run.until(settled, "what was produced and asked for arrives")
        if end == "open":
            case.asks(100)
            run.until(lambda: len(case.got) == case.made, "everything arrives")
            assert case.got == list(range(case.made))
            run.until(lambda: case.words[-1:] == ["b"], "the last word is told")
            drain.cancel()
        else:
            run.until(lambda: drain.ended, "the drain ends")
        run.until(lambda: feed.released, "everything is released")
        if room:
            case.executor.close()
        run.until(lambda: not case.busy, "the last signal")
        assert case.got == list(range(len(case.got)))
        assert (feed.released, feed.overlaps, case.overlaps) == (1, 0, 0)
        assert len(case.ends) == 0 if end in ("open", "cancels") else len(case.ends) <= 1

    scenario.__name__ = end
    return scenario


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("end", ENDS)
def test_no_wake_up_is_lost_and_signals_are_serial(end, room):
    """Invariants 9 and 10: whatever wakes, holds, borrows and ends a drain at once."""
    scenario = signals(end, ROOM[room])
    explore(scenario, preemptions=2, most=scaled(20), walks=scaled(20))
    explore(scenario, most=0, walks=scaled(8), files=LINES)


def test_a_subscriber_inline_has_its_subscription_when_the_start_returns():
    """Whatever comes meanwhile: a writer that waits for it looks at its progress, and holds its flag, as soon as it is registered."""

    def starts(run: Scheduler) -> None:
        case = Case(INLINE, started=False)
        run.together(case.starts, case.holds, case.produces, case.notifies)
        case.drain.cancel()

    assert explore(starts, preemptions=2, most=scaled(60)) > 10
    explore(starts, most=0, walks=scaled(8), files=LINES)

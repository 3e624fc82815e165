"""The lanes of a connection: tasks from any thread while the loop sends, pauses and closes."""

import pytest

from tests.harness.scale import scaled
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import SteppedLoop
from transports.limits import HIGH_WATER, Limits
from transports.server.outbound import Lane, Outbound

LIMITS = Limits()
SIZE = HIGH_WATER * 2 // 3
LINES = ("server/outbound.py", "flow/executors.py")


class Loop(SteppedLoop):
    """A loop whose timers are due at once."""

    def call_later(self, _delay: float, callback: object, *args: object, context: object = None) -> None:
        self.call_soon(callback, *args)


class Link:
    """A socket whose buffer the loop empties."""

    payer = "ann"

    def __init__(self) -> None:
        self.full = False
        self.unsent = 0

    @property
    def paused(self) -> bool:
        return self.full or self.unsent > HIGH_WATER

    def flush(self) -> None:
        return


class Case:
    """Three lanes, of which one lingers; two threads put tasks into each, and each task makes room or submits another."""

    def __init__(self, run: Scheduler) -> None:
        self.run, self.loop, self.link = run, Loop(), Link()
        self.outbound = Outbound(self.loop, self.link, LIMITS)
        self.lanes = [
            self.outbound.lane(SIZE, 0.0),
            self.outbound.lane(SIZE, 0.0),
            self.outbound.lane(SIZE, 0.1),
        ]
        self.lanes[2].eager = False
        self.put = self.done = self.over = self.deep = 0
        self.order: dict[Lane, list[int]] = {lane: [] for lane in self.lanes}

    def submit(self, lane: Lane) -> None:
        self.put += 1
        lane.submit(self.task)

    def task(self) -> None:
        self.deep += 1
        assert self.deep == 1, "a task inside a task"
        self.done += 1
        self.link.unsent += SIZE
        if self.done % 3 == 0 and self.put < 20:
            self.submit(self.lanes[self.done % 2])
        self.deep -= 1

    def puts(self) -> None:
        for lane in self.lanes:
            self.submit(lane)

    def puts_back(self) -> None:
        for lane in reversed(self.lanes):
            self.submit(lane)

    def links(self) -> None:
        """What the socket tells, on the loop: it is full, it is writable again."""
        self.loop.call_soon_threadsafe(self.pause)
        self.loop.call_soon_threadsafe(self.drain)

    def pause(self) -> None:
        self.link.full = True

    def drain(self) -> None:
        self.link.full, self.link.unsent = False, 0
        self.outbound.run()

    def settles(self) -> None:
        self.loop.call_soon_threadsafe(self.outbound.settle)
        self.loop.call_soon_threadsafe(self.lanes[0].busy)

    def closes(self) -> None:
        self.loop.call_soon_threadsafe(self.outbound.close)

    def turns(self, bodies: int) -> None:
        while self.over < bodies or self.loop.ready:
            self.run.until(lambda: self.loop.ready or self.over == bodies, "the loop waits")
            self.loop.run_one()


KINDS = [Case.puts, Case.puts, Case.puts_back, Case.links, Case.settles]


def sends(*ends: object) -> object:
    def scenario(run: Scheduler) -> None:
        case = Case(run)
        kinds = [*KINDS, *ends]

        def act(kind: object) -> object:
            def body() -> None:
                kind(case)
                case.over += 1

            body.__name__ = kind.__name__
            return body

        def turns() -> None:
            case.turns(len(kinds))

        run.together(turns, *map(act, kinds))
        while case.loop.ready or case.link.paused:
            if case.link.paused:
                case.drain()
            case.loop.run_all()
        assert (case.done, case.link.paused) == (case.put, False)

    scenario.__name__ = "+".join(["sends", *(end.__name__ for end in ends)])
    return scenario


@pytest.mark.parametrize("ends", [(), (Case.closes,)], ids=["open", "closing"])
def test_each_task_of_a_lane_runs_once_and_alone(ends):
    """Invariant 10: from whichever thread it comes, and whatever the socket does."""
    explore(sends(*ends), preemptions=2, most=scaled(50), walks=scaled(50))
    explore(sends(*ends), most=0, walks=scaled(30), files=LINES)

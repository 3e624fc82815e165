"""A sink: orders of several threads, commits, statistics and ends, while its thread steps it."""

import contextlib
import logging
import shutil
from concurrent.futures import Future

import pytest

from penstock_cdc.errors import LogClosed
from publishers import ChangeLog, Criterion, Position, upsert
from tests.harness.scale import scaled
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.primitives import step
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import QUICK, scratch
from tests.transports.sinks.targets import Target
from transports.sinks import SinkOptions, SinkRunner, SinkState, TargetUnavailable
from transports.sinks.errors import SinkError, SinkStopped

LINES = ("sinks/runner.py", "sinks/machine.py", "sinks/intake.py", "sinks/supply.py")


class Slow(Target):
    """A target to which each write is a step."""

    def write(self, batch: object) -> object:
        step("write to the target")
        return super().write(batch)


class Case:
    """A log with a sink that runs."""

    def __init__(self, run: Scheduler) -> None:
        self.run = run
        self.path = scratch()
        self.disk = Disk()
        self.log = self.opened()
        self.target = Slow()
        self.target.plan = [None, TargetUnavailable("busy")]
        options = SinkOptions(criteria=Criterion(entity_types={"order"}), linger=0.0, batch_changes=2)
        self.runner = SinkRunner(self.log, "stock", self.target, options, clock=Time()).start()
        self.keys = 0
        self.given: list[Future[object]] = []

    def opened(self) -> ChangeLog:
        # Notes of the sink are in the real directory of this name.
        return ChangeLog.open(self.path, filesystem=self.disk, clock=Time(), **QUICK)

    def give(self, order: Future[object]) -> None:
        self.given.append(order)
        with contextlib.suppress(SinkError):  # it is switched off
            order.result()

    def begins_again(self) -> None:
        self.target.behind = None
        self.runner.machine.seek(1)

    def commits(self) -> None:
        for _ in range(3):
            self.keys += 1
            self.log.commit([upsert("order", str(self.keys), {})])

    def pauses(self) -> None:
        self.give(self.runner.pause())
        self.give(self.runner.resume())

    def seeks(self) -> None:
        self.give(self.runner.seek(1))

    def switches(self) -> None:
        self.give(self.runner.switch_off())
        self.give(self.runner.switch_on(1))

    def tries(self) -> None:
        self.given.append(self.runner.try_out())

    def looks(self) -> None:
        for _ in range(2):
            self.runner.statistics()

    def closes(self) -> None:
        self.runner.close()

    def closes_the_log(self) -> None:
        self.log.close()


KINDS = [Case.commits, Case.pauses, Case.seeks, Case.switches, Case.tries, Case.looks]
ENDS = {"open": (), "closing": (Case.closes, Case.closes), "log": (Case.closes_the_log, Case.closes)}


def carries(end: str) -> object:
    def scenario(run: Scheduler) -> None:
        case = Case(run)

        def act(kind: object) -> object:
            def body() -> None:
                try:
                    kind(case)
                except (SinkStopped, LogClosed):
                    assert ENDS[end]

            body.__name__ = kind.__name__
            return body

        run.together(*map(act, [*KINDS, *ENDS[end]]))
        if not ENDS[end]:
            case.runner.resume().result()
            case.runner._orders.give(case.begins_again).result()
            assert run.until(lambda: case.target.behind == case.log.head, "everything is carried on", 1000.0)
        case.runner.close()
        assert case.runner.state is SinkState.STOPPED
        for order in case.given:
            order.exception()  # each is answered
        case.log.close()
        if not ENDS[end]:
            with case.opened() as log:
                assert log.slots.info("stock").position == Position(4)
        shutil.rmtree(case.path)

    scenario.__name__ = end
    return scenario


@pytest.mark.parametrize("end", ENDS)
def test_each_order_is_answered_and_nothing_is_left_behind(end, monkeypatch):
    """F95: by whichever thread it is given, while the sink writes, waits for its next attempt, or stops."""
    if end == "log":  # which a sink logs as an error, rightly
        monkeypatch.setattr(logging.getLogger("penstock.sinks"), "disabled", True)
    explore(carries(end), preemptions=2, most=scaled(20), walks=scaled(40))
    explore(carries(end), most=0, walks=scaled(4), files=LINES)


def idle_sink_obeys(run: Scheduler) -> None:
    """A sink that has nothing to do gets an order, and another one while it goes to sleep."""
    case = Case(run)

    def orders() -> None:
        for _ in range(2):
            case.runner.pause().result()
            case.runner.resume().result()

    began = run.now
    run.together(orders)
    assert run.now - began < 1.0, "it was not woken, and looked by itself"
    case.runner.close()
    case.log.close()
    shutil.rmtree(case.path)


def test_an_order_wakes_a_sink_that_goes_to_sleep():
    """F95."""
    explore(idle_sink_obeys, preemptions=2, most=scaled(40), walks=scaled(20))

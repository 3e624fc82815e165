"""Writers that wait for gating subscriptions, beside all that may end their wait."""

import flow
from publishers import ChangeLog
from publishers.errors import AdmissionStopped, LogClosed
from publishers.fanout import gating
from tests.harness.constants import set_constant
from tests.harness.scale import scaled
from tests.interleaving import primitives
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import QUICK, Probe, order

LINES = ("fanout/gating.py",)
FOREVER = 1e6


class Case:
    """A log with gating subscriptions on several executors, all behind."""

    def __init__(self, run: Scheduler) -> None:
        self.log = ChangeLog.open("/log", filesystem=Disk(), clock=Time(), **QUICK, dispatch_threads=2)
        self.stop = primitives.Event()
        self.probes = [self.gate(flow.INLINE), self.gate(flow.INLINE), self.gate(None), self.gate(None)]
        run.until(lambda: all(probe.subscription for probe in self.probes), "the subscriptions begin")
        for _ in range(3):
            self.log.commit([order(1)])

    def gate(self, executor: object) -> Probe:
        probe = Probe()
        self.log.changes().subscribe(probe, executor=executor, max_lag=0)
        return probe

    def admits(self) -> None:
        self.log.serving.admit(self.stop, FOREVER)

    def admits_and_commits(self) -> None:
        for _ in range(2):
            self.log.serving.admit(self.stop, FOREVER)
            self.log.commit([order(2)])
        self.log.serving.admit(self.stop, FOREVER)

    def requests(self) -> None:
        for probe in self.probes[::2]:
            for count in (1, 3, 100):
                probe.request(count)

    def cancels(self) -> None:
        self.probes[1].subscription.cancel()

    def pauses(self) -> None:
        self.probes[3].subscription.pause()

    def gates(self) -> None:
        self.gate(flow.INLINE).request(100)

    def stops(self) -> None:
        self.stop.set()

    def closes(self) -> None:
        self.log.close()


KINDS = [Case.admits, Case.admits_and_commits, Case.requests, Case.cancels, Case.pauses, Case.gates]


def waits(*ends: object) -> object:
    def scenario(run: Scheduler) -> None:
        case = Case(run)

        def act(kind: object) -> object:
            def body() -> None:
                try:
                    kind(case)
                except LogClosed:
                    assert Case.closes in ends
                except AdmissionStopped:
                    assert Case.stops in ends
                except AttributeError:
                    assert Case.closes in ends  # a subscription that was refused

            body.__name__ = kind.__name__
            return body

        run.together(*map(act, [*KINDS, *ends]))
        case.log.close()

    scenario.__name__ = "+".join(["waits", *(end.__name__ for end in ends)])
    return scenario


def test_a_writer_waits_no_longer_than_gating_subscriptions_make_it(monkeypatch):
    """No notification is lost: without looks at intervals, a writer that missed one would fail for a stall."""
    set_constant(monkeypatch, gating, "_STEP", 2 * FOREVER)
    explore(waits(), preemptions=2, most=scaled(20), walks=scaled(20))
    explore(waits(), most=0, walks=scaled(10), files=LINES)
    explore(waits(Case.closes), preemptions=2, most=scaled(20), walks=scaled(20))


def test_an_event_ends_the_wait_too():
    explore(waits(Case.stops), preemptions=2, most=scaled(20), walks=scaled(20))
    explore(waits(Case.stops, Case.closes), preemptions=2, most=scaled(10), walks=scaled(10))

"""Whatever happens to target, runner and process: what the target holds is the log, at least once and in order."""

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from publishers import Criterion, upsert
from tests.harness.scale import scaled
from tests.publishers.support import scratch
from tests.transports.sinks.targets import Rig, Target
from transports.sinks import (
    ItemResult,
    ItemVerdict,
    SinkState,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)

KINDS = st.lists(st.sampled_from(["order", "order", "bill"]), min_size=1, max_size=9)
STEPS = st.integers(1, 6)
SECONDS = st.sampled_from([0.0, 0.5, 1.1, 40.0])


class SinkMachine(RuleBasedStateMachine):
    """F108: commits, failures of every kind, pauses, seeks, crashes and restarts in any order."""

    def __init__(self):
        super().__init__()
        self.expected = []  # positions of matching changes, in the order of the log
        self.judged = 0  # batches
        self.seen = set()
        self.passed = set()  # what the last seek went over need not come

    @initialize(stores=st.booleans(), changes=st.integers(1, 6))
    def begin(self, stores, changes):
        self.folder = scratch()
        self.rig = Rig(
            self.folder / "log",
            Target(stores),
            criteria=Criterion(entity_types={"order"}),
            batch_changes=changes,
        )

    @rule(kinds=KINDS)
    def commit(self, kinds):
        version = self.rig.log.commit([upsert(kind, "k", {}) for kind in kinds]).version
        self.expected += [(version, place) for place, kind in enumerate(kinds, 1) if kind == "order"]

    @rule(steps=STEPS, seconds=SECONDS)
    def work(self, steps, seconds):
        for _ in range(steps):
            self.rig.later(seconds)
            self.rig.worked()

    @rule(
        kind=st.sampled_from(["unavailable", "refused", "large", "retry", "reject", "overloaded", "bug"]),
        times=st.integers(1, 3),
        kinds=KINDS,
        steps=STEPS,
        seconds=SECONDS,
    )
    def spoil(self, kind, times, kinds, steps, seconds):
        self.commit(kinds)
        made = {
            "unavailable": TargetUnavailable("down"),
            "overloaded": TargetUnavailable("busy", overloaded=True),
            "refused": TargetRefused("no"),
            "large": TooLargeForTarget("large"),
            "retry": [ItemResult(0, ItemVerdict.RETRY, "busy")],
            "reject": [ItemResult(0, ItemVerdict.REJECT, "bad")],
            "bug": ZeroDivisionError("bug"),
        }
        self.rig.target.plan += [made[kind]] * times
        self.work(steps, seconds)

    @rule()
    def spoil_flush(self):
        self.rig.target.flushing.append(TargetUnavailable("not durable"))

    @rule(answers=st.booleans())
    def answer(self, answers):
        self.rig.target.answers = answers

    @rule()
    def pause(self):
        self.rig.runner.pause()

    @rule()
    def resume(self):
        self.rig.runner.resume()

    @rule()
    def crash(self):
        self.rig.died()

    @rule()
    def restart(self):
        self.rig.again()

    @rule(data=st.data())
    def seek(self, data):
        version = data.draw(st.integers(1, self.rig.log.head.version))
        moved = self.rig.runner.seek(version)
        self.rig.runner.step()
        if moved.exception() is None:
            ahead = sum(one < moved.result() for one in self.expected)
            self.passed = set(range(ahead)) - self.seen

    @invariant()
    def nothing_comes_before_what_lies_before_it(self):
        """But for what the target itself puts off while it takes others of the batch: that comes next."""
        if not hasattr(self, "rig"):
            return
        order = {position: place for place, position in enumerate(self.expected)}
        target = self.rig.target
        for batch, late in zip(target.taken[self.judged :], target.put_off[self.judged :], strict=True):
            put_off = {order[one.position] for one in late.changes}
            for change in batch.changes:
                place = order[change.position]
                missing = set(range(place)) - self.seen - self.passed - put_off
                assert not missing, f"{change} before {[self.expected[one] for one in sorted(missing)]}"
                self.seen.add(place)
        self.judged = len(target.taken)

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        try:
            self.all_comes()
        finally:
            self.rig.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def all_comes(self):
        rig = self.rig
        rig.target.plan, rig.target.flushing, rig.target.answers = [], [], True
        rig.runner.resume()

        def arrived():
            rig.later(40.0)
            return rig.stored() == rig.log.head and rig.runner.state is SinkState.STREAMING

        rig.until(arrived)
        self.nothing_comes_before_what_lies_before_it()
        assert self.seen >= set(range(len(self.expected))) - self.passed


TestSinkMachine = SinkMachine.TestCase
TestSinkMachine.settings = settings(max_examples=scaled(24), stateful_step_count=20, deadline=None)

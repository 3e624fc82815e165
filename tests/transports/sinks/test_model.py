"""Whatever happens to target, runner and process: what the target holds is the log, at least once and in order."""

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from publishers import Criterion, upsert
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


class SinkMachine(RuleBasedStateMachine):
    """F108: commits, failures of every kind, pauses, seeks, crashes and restarts in any order."""

    def __init__(self):
        super().__init__()
        self.expected = []  # positions of matching changes, in the order of the log
        self.judged = 0  # batches
        self.seen = set()
        self.floor = 0  # what a seek went over need not come

    @initialize(stores=st.booleans(), changes=st.integers(1, 6))
    def begin(self, stores, changes):
        self.folder = scratch()
        self.rig = Rig(
            self.folder / "log",
            Target(stores),
            criteria=Criterion(entity_types={"order"}),
            batch_changes=changes,
        )

    @rule(kinds=st.lists(st.sampled_from(["order", "order", "bill"]), min_size=1, max_size=9))
    def commit(self, kinds):
        done = self.rig.log.commit([upsert(kind, "k", {}) for kind in kinds])
        version = done.version
        self.expected += [(version, place) for place, kind in enumerate(kinds, 1) if kind == "order"]

    @rule(steps=st.integers(1, 6), seconds=st.sampled_from([0.0, 0.5, 1.1, 40.0]))
    def work(self, steps, seconds):
        for _ in range(steps):
            self.rig.later(seconds)
            self.rig.runner.step()

    @rule(
        kind=st.sampled_from(["unavailable", "refused", "large", "retry", "reject", "overloaded", "bug"]),
        times=st.integers(1, 3),
    )
    def spoil(self, kind, times):
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
        if moved.exception() is None and self.expected:
            self.floor = max(self.floor, sum(one < (version, 0) for one in self.expected))

    @invariant()
    def nothing_comes_before_what_lies_before_it(self):
        if not hasattr(self, "rig"):
            return
        order = {position: place for place, position in enumerate(self.expected)}
        for batch in self.rig.target.taken[self.judged :]:
            for change in batch.changes:
                place = order[tuple(change.position)]
                missing = [one for one in range(self.floor, place) if one not in self.seen]
                left_out = {order[tuple(one.position)] for one in self._pending()}
                assert set(missing) <= left_out, f"{change} before {[self.expected[one] for one in missing]}"
                self.seen.add(place)
        self.judged = len(self.rig.target.taken)

    def _pending(self):
        """Changes that the target has refused or put off in a batch of which it took others."""
        return [change for batch in self.rig.target.tried for change in batch.changes]

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        rig.target.plan, rig.target.flushing, rig.target.answers = [], [], True
        rig.runner.resume()

        def arrived():
            rig.later(40.0)
            return rig.stored() == rig.log.head and rig.runner.state is SinkState.STREAMING

        rig.until(arrived)
        self.nothing_comes_before_what_lies_before_it()
        assert self.seen >= set(range(self.floor, len(self.expected)))
        rig.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestSinkMachine = SinkMachine.TestCase
TestSinkMachine.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)

"""Random programs of an owner who withholds, shows and forgets, beside a model that is a list of transactions."""

import shutil

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import flow
from penstock_cdc.errors import AlreadyVisible
from publishers import ChangeLog, Criterion, Position
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, Probe, everything, order, scratch
from tests.publishers.world import ManualReplayer

WISHES = [([], lambda key: True), ([Criterion(keys={"0", "1"})], lambda key: key in ("0", "1"))]


class Subscriber(Probe):
    """Knows where it began and what it wants; positions are checked against the model."""

    def __init__(self, matches, start):
        super().__init__()
        self.matches = matches
        self.start = start
        self.cancelled = False


class Owner(RuleBasedStateMachine):
    """``model`` holds the keys of each version, from version 1 on; ``hidden`` those committed with ``visible=False``."""

    def __init__(self):
        super().__init__()
        self.directory = scratch()
        self.model, self.hidden, self.visible = [], set(), 0
        self.subscribers = []
        self.log = None
        self.sequence = 0

    @initialize(
        ring=st.integers(1, 6),
        deferred=st.sampled_from([0, 1500, 10**6]),
        sync=st.sampled_from(["always", "os"]),
        spool=st.sampled_from([1200, 10**6]),
    )
    def create(self, ring, deferred, sync, spool):
        self.options = {
            **QUICK,
            "ring_events": ring,
            "withheld_bytes": deferred,
            "sync": sync,
            "spool_bytes": spool,
            "frame_bytes": 1024,
            "segment_bytes": 65536,
            "batch_events": 3,
        }
        self.open()

    def open(self):
        self.log = ChangeLog.open(self.directory / "log", **self.options)
        service_of(self.log).replayer.close()
        self.replayer = service_of(self.log).replayer = ManualReplayer()

    def settle(self):
        while self.replayer.tasks:
            task = self.replayer.tasks.pop(0)
            if task.replay():
                self.replayer.enlist(task)

    # What the owner does.

    @rule(keys=st.lists(st.sampled_from("012"), max_size=4), visible=st.booleans(), large=st.booleans())
    def commit(self, keys, visible, large):
        keys = keys * (20 if large and len(self.model) % 5 == 0 else 1)
        self.sequence += 1
        done = self.log.commit([order(key) for key in keys], producer=("p", self.sequence), visible=visible)
        assert (done.version, done.duplicate) == (len(self.model) + 1, False)
        self.model.append(keys)
        if not visible:
            self.hidden.add(done.version)
        if not self.hidden:
            self.visible = done.version

    @rule(data=st.data())
    def publish(self, data):
        version = data.draw(st.integers(0, len(self.model)))
        self.log.publish(version)
        if version > self.visible:
            self.hidden = {one for one in self.hidden if one > version}
            self.visible = min(self.hidden, default=len(self.model) + 1) - 1

    @rule(data=st.data())
    def forget_after(self, data):
        version = data.draw(st.integers(0, len(self.model)))
        epoch = self.log.epoch
        if version < self.visible:
            with pytest.raises(AlreadyVisible) as caught:
                self.log.forget_after(version)
            assert (caught.value.version, caught.value.visible) == (version, self.visible)
            return
        self.log.forget_after(version)
        assert self.log.epoch == epoch + (version < len(self.model))
        del self.model[version:]
        self.hidden = {one for one in self.hidden if one <= version}
        if not self.hidden:
            self.visible = version
        known = self.log.produced("p")
        assert (known.version if known else 0) == len(self.model)
        self.sequence = known.sequence if known else 0

    @rule()
    def reopen(self):
        self.settle()
        self.log.close()
        for one in self.subscribers:
            assert one.cancelled or one.terminals == 1, one.state()
            self.check(one)
        self.subscribers.clear()
        self.open()
        # Who was committed with ``visible=False`` is not stored: everything withheld waits for its own turn.
        self.hidden = set(range(self.visible + 1, len(self.model) + 1))

    # What subscribers do.

    @rule(wish=st.integers(0, 1), data=st.data())
    def subscribe(self, wish, data):
        head = self.log.head
        since = data.draw(st.none() | st.integers(1, head.version).map(Position))
        criteria, matches = WISHES[wish]
        one = Subscriber(matches, since or head)
        self.subscribers.append(one)
        self.log.changes(*criteria, since=since).subscribe(one, executor=flow.INLINE)

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data(), n=st.sampled_from([1, 2, 5, 10**6]))
    def request(self, data, n):
        one = data.draw(st.sampled_from(range(len(self.subscribers))))
        self.subscribers[one].request(n)

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def cancel(self, data):
        one = self.subscribers.pop(data.draw(st.integers(0, len(self.subscribers) - 1)))
        one.subscription.cancel()
        self.check(one)

    @rule()
    def replay(self):
        self.settle()

    # What must hold.

    def expected(self, one):
        return [
            Position(version, index)
            for version, keys in enumerate(self.model[: self.visible], 1)
            for index, key in enumerate([None, *keys])
            if Position(version, index) >= one.start and one.matches(key)
        ]

    def check(self, one):
        expected = self.expected(one)
        assert one.clean, one.state()
        assert one.positions == expected[: len(one.positions)], one.state()

    @invariant()
    def everybody_sees_a_prefix_of_what_is_visible(self):
        if self.log is None:
            return
        log = self.log
        newest = len(self.model)
        assert (log.visible, log.durable) == (self.visible, newest)
        assert log.withheld == (range(self.visible + 1, newest + 1) if self.visible < newest else None)
        assert log.head == Position(self.visible + 1)
        assert log.statistics().withheld_bytes <= self.options["withheld_bytes"]
        for one in self.subscribers:
            self.check(one)

    def teardown(self):
        if self.log is not None:
            for one in self.subscribers:
                one.request(10**6)
            self.settle()
            for one in self.subscribers:
                assert one.positions == self.expected(one), one.state()
            whole = [
                Position(version, index)
                for version, keys in enumerate(self.model[: self.visible], 1)
                for index in range(len(keys) + 1)
            ]
            assert everything(self.log) == whole
            self.log.close()
        shutil.rmtree(self.directory)


TestOwner = Owner.TestCase
TestOwner.__doc__ = """F28, E20, E19, invariants 1 to 3, 6: no gap, no duplicate, nothing that is withheld; rings of size 1 to 6."""
TestOwner.settings = settings(max_examples=scaled(60), stateful_step_count=40)

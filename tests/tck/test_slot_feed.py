"""The feed of a slot keeps the rules, for the one subscriber that it serves at a time."""

import shutil

import pytest

from flow import INLINE
from flow.tck import ENDLESS, PublisherVerification
from publishers import ChangeLog, Criterion, upsert
from tests.publishers.support import QUICK, scratch
from tests.tck.places import SILENCE, On, Placed, closed

PLENTY = 1_200
"""Versions of the log, with one change of data each."""


@pytest.fixture(scope="module", autouse=True)
def log():
    path = scratch()
    with ChangeLog.open(path / "log", **QUICK) as log:
        for number in range(PLENTY):
            log.commit([upsert("order", str(number), {"n": str(number)})])
        log.slots.create("consumer", Criterion(entity_types={"order"}), since="earliest")
        Slots.log = log
        yield
    shutil.rmtree(path, ignore_errors=True)


class Ending:
    """The log of a slot; its feeds end behind a version, which those of a slot do not."""

    def __init__(self, log, until):
        self.log = log
        self.until = until

    def __getattr__(self, name):
        return getattr(self.log, name)

    def feed(self, *arguments):
        feed = self.log.feed(*arguments)
        feed.until = self.until
        return feed


class Slots(Placed, PublisherVerification):
    kind = "inline"
    timeout = SILENCE
    strict = True
    reports = True
    plenty = PLENTY
    rounds = 40

    def opened(self):
        """The slot, at its beginning, as nothing is ever acknowledged; whoever had it before is fenced."""
        return self.log.slots.open("consumer", take_over=True)

    def make_publisher(self, n):
        slot = self.opened()
        if n != ENDLESS:
            slot._log = Ending(slot._log, n)
        return On(slot.changes(), self.executor or INLINE)

    def make_failed_publisher(self):
        feed = self.opened().changes()
        self.opened()
        return On(feed, self.executor or INLINE)

    def make_stranded_publisher(self):
        if self.kind == "inline":
            return None
        return On(self.make_publisher(3).source, closed(self.kind))


class TestSlotInline(Slots):
    pass


class TestSlotOnThePoolOfTheLog(Slots):
    kind = "pool"

    def make_publisher(self, n):
        return On(super().make_publisher(n).source, None)


class TestSlotOnALoopInDebugMode(Slots):
    kind = "debug"

"""The feed of a snapshot keeps the rules: of rows alone, and of rows and what follows them."""

import contextlib
import shutil

import pytest

from flow import INLINE
from flow.tck import ENDLESS, PublisherVerification
from publishers import ChangeLog, Criterion, upsert
from tests.harness.constants import set_bounds
from tests.publishers.support import QUICK, scratch
from tests.tck.places import SILENCE, On, Placed, closed

PLENTY = 1_200
"""Rows of the longest collection, which are more than a page."""


@pytest.fixture(scope="module", autouse=True)
def log():
    path = scratch()
    set_bounds(state_interval=0.0)
    with ChangeLog.open(path / "log", **QUICK, state=True) as log:
        Rows.log = log
        Rows.sizes = set()
        rows(log, PLENTY)
        keep_connections(log)
        yield
    shutil.rmtree(path, ignore_errors=True)


def rows(log, count):
    """An entity type with so many rows."""
    if count not in Rows.sizes:
        Rows.sizes.add(count)
        if count:
            log.commit([upsert(f"of {count}", f"{number:05}", {"n": number}) for number in range(count)])
        log.state.wait(log.visible)
    return Criterion(entity_types={f"of {count}"})


def keep_connections(log):
    """Those that SQLite has for readers stay open until the log is closed; here they are before any test begins."""
    table = log.state._table
    with contextlib.ExitStack() as open_at_once:
        for _ in range(4):
            connection = open_at_once.enter_context(table._reading())
            connection.execute("SELECT count(*) FROM rows").fetchone()


class Rows(Placed, PublisherVerification):
    kind = "inline"
    timeout = SILENCE
    strict = True
    multicast = "cold"
    reports = True
    completes_idle = False  # without demand no page is read, and it is not found that there is none
    plenty = PLENTY
    rounds = 20
    mode = "initial_only"

    def make_publisher(self, n):
        if n == ENDLESS:
            return On(self.log.changes(rows(self.log, PLENTY), since="state"), self.executor or INLINE)
        wish = rows(self.log, n)
        feed = self.log.changes(wish, since="state", snapshot=self.mode, until=self.log.visible)
        return On(feed, self.executor or INLINE)

    def make_failed_publisher(self):
        feed = self.log.changes(since="state")
        feed.close()
        return On(feed, self.executor or INLINE)

    def make_stranded_publisher(self):
        if self.kind == "inline":
            return None
        return On(self.make_publisher(3).source, closed(self.kind))


class TestRowsInline(Rows):
    pass


class TestRowsThenNothingInline(Rows):
    """Handed over to an ordinary subscription, which has nothing to give."""

    mode = "initial"


class TestRowsOnThePoolOfTheLog(Rows):
    kind = "pool"

    def make_publisher(self, n):
        return On(super().make_publisher(n).source, None)


class TestRowsThenNothingOnAPool(Rows):
    kind = "pool"
    mode = "initial"


class TestRowsThenNothingInDebugMode(Rows):
    kind = "debug"
    mode = "initial"

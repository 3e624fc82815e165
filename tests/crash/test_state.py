"""Owners that die while their log keeps its state."""

import random
import signal

import pytest

from penstock_cdc.errors import StateUnusable
from publishers import ChangeLog
from tests.crash.support import Child
from tests.harness.constants import set_bounds
from tests.harness.entities import state_of
from tests.harness.scale import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

SMALL = {
    "fill_step": 65_536,
    "segment_bytes": 65_536,
    "retain_bytes": None,
    "retain_age": None,
    "state": True,
}


def test_the_state_of_a_killed_owner_goes_on_and_is_that_of_its_log(place):
    """F146: kill -9 at random moments (200 rounds with PENSTOCK_TEST_SCALE=10): the state is never ahead, never made anew.

    At the place that it has at once it is what the log was at that version, and at the end of the log likewise.
    """
    chance = random.Random(146)
    for number in range(scaled(20)):
        first = number % 20 == 0  # of its log: to judge one takes time of its length
        path = str(place / f"log-{number // 20}")
        options = {**SMALL, "sync": ["always", "os", "interval"][number % 3], "sync_interval": 0.005}
        with Child("stated", path, options, number) as child:
            child.wait_for("done")
            child.run_for(chance.expovariate(40))
            child.kill()
            assert child.finish() == -signal.SIGKILL
        set_bounds(state_interval=3600.0)
        with ChangeLog.open(path, **options) as log:
            assert first or log.state.rebuilds == 0
            try:
                page = log.state.page(limit=100_000)
                found = {(row.entity_type, row.key): row.body for row in page.rows}
                assert found == state_of(log, page.place.version - 1)
            except StateUnusable:
                assert first  # nothing was stored before the first death, so it is made of the log
            log.state.wait(log.visible)
            page = log.state.page(limit=100_000)
            assert {(row.entity_type, row.key): row.body for row in page.rows} == state_of(log)
            assert log.statistics().state.rows == len(page.rows)

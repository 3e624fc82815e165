"""F121, F122 with real processes: two with one lease, under kills, pauses and steps of the clock."""

import pytest

from tests.harness.scale import LONG, scaled
from tests.transports.sinks.lease_race import LeaseRace

LEASES = {
    "file": 'kind = "file", path = "lease"',
    "sqlite": 'kind = "sql", url = "env:PENSTOCK_TEST_LEASES", name = "hook", create = true',
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", LEASES)
def test_two_that_are_killed_stopped_and_lied_to_leave_no_gap_and_repeat_one_batch_at_most(
    tmp_path, monkeypatch, kind
):
    """F121, F122: and none whose epoch is over sends anything behind a newer one."""
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("PENSTOCK_TEST_LEASES", f"sqlite:///{tmp_path}/leases.db")
    LeaseRace(tmp_path, LEASES[kind], scaled(50) if LONG else 4).run()

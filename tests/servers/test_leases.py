"""A lease in a real PostgreSQL, between two real processes that are killed, stopped and lied to about the time."""

import os

import pytest

from tests.servers.postgres import Postgres
from tests.transports.sinks.lease_race import LeaseRace

BLOWS = 2 * int(os.environ.get("PENSTOCK_KILLS", "0")) or 6
SQL = 'kind = "sql", url = "env:PENSTOCK_TEST_LEASES", name = "hook", create = true'


@pytest.mark.timeout(1800)
def test_two_with_a_lease_in_postgresql_leave_no_gap_and_repeat_one_batch_at_most(tmp_path, monkeypatch):
    """F121, F122."""
    with Postgres(tmp_path / "postgresql") as server:
        monkeypatch.setenv("PENSTOCK_TEST_LEASES", server.url.replace("postgresql:", "postgresql+psycopg:"))
        (tmp_path / "race").mkdir()
        LeaseRace(tmp_path / "race", SQL, BLOWS).run()

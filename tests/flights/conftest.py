import pytest

from tests.harness.leftovers import arrow_has_its_pipe

pytest.importorskip("pyarrow")

__all__ = ["arrow_has_its_pipe", "events"]


@pytest.fixture(scope="session")
def events():
    """All events of the demo; making them takes two seconds."""
    from penstock_flights.flights import flight_events

    return flight_events()

from pathlib import Path

import pytest

from tests.harness.leftovers import arrow_has_its_pipe

pytest.importorskip("pyarrow")

__all__ = ["arrow_has_its_pipe", "events"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def events():
    """All events of the demo; making them takes two seconds."""
    from penstock_flights.flights import flight_events

    return flight_events()

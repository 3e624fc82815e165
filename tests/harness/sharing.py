"""Assigns tests to workers and orders them, for parallel runs (``pytest -n``).

``PENSTOCK_TEST_ORDER=NUMBER`` puts them into another order, which is the same for each number: files, and the tests of a file.

The unit is a file, unless its tests share an expensive resource with other files: then all tests with that resource are one
unit. The longest units start first, so that no worker is left alone with a long unit at the end.
"""

import os
from random import Random
from typing import Any, Final

import pytest

__all__ = ["ORDER", "pytest_xdist_make_scheduler", "shared", "shuffle", "sort"]

ORDER: Final = os.environ.get("PENSTOCK_TEST_ORDER")

SHARED = {
    "tests/crash/test_fork.py": "fork",
    "tests/flow/test_forks.py": "fork",
    "tests/publishers/test_forks.py": "fork",
    "tests/transports/test_forks.py": "fork",
    "tests/browser/": "browser",
    "tests/clients/": "clients",
    "tests/crash/test_limits.py": "limits of the machine",
    "tests/publishers/spark/test_whole_way.py": "tests/publishers/spark/test_whole_way.py",
    "tests/publishers/spark/test_java.py": "tests/publishers/spark/test_java.py",
    "tests/publishers/spark/": "Spark",
    "tests/examples/test_examples.py::test_a_subscriber_in_the_driver": "Spark",
    "tests/examples/test_rx_departures.py": "Spark",
    "tests/examples/test_spark_delays.py": "Spark",
    "tests/examples/test_spark_orders.py": "Spark",
    "tests/examples/test_spark_replay.py": "Spark",
    "tests/flights/test_stream.py": "Spark",
    "tests/test_benchmarks.py::test_a_benchmark_of_spark": "Spark",
    "tests/test_readme.py::test_the_spark_program": "Spark",
    "tests/flights/": "demo",
}
"""Unit by prefix of the test id; the first match counts. These tests fork this process, or share a browser, a Spark session, the
installed clients or a small file system. Tests that start Spark in processes of their own are separate units."""

LONG = (
    "fork",
    "Spark",
    "demo",
    "tests/publishers/spark/test_whole_way.py",
    "tests/simulation/test_proof.py",
    "tests/publishers/test_interleaving.py",
    "tests/crash/test_kill.py",
    "tests/typing/test_types.py",
    "tests/publishers/spark/test_java.py",
    "tests/history/test_history.py",
    "browser",
    "clients",
    "tests/test_benchmarks.py",
)
"""The units to start first: tests that fork, since they need a process in which nothing has run, then the longest units."""


def shared(nodeid: str) -> str:
    """Returns the unit of a test."""
    return next((unit for path, unit in SHARED.items() if nodeid.startswith(path)), nodeid.partition("::")[0])


def sort(items: list[pytest.Item]) -> None:
    """Moves the tests of the units in `LONG` to the front; the others keep their order."""
    rank = {unit: place for place, unit in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(shared(item.nodeid), len(LONG)))


def shuffle(items: list[pytest.Item], order: str) -> None:
    """Puts files, and the tests of each file, into an order that looks random; tests of one file stay together."""
    chance = Random(order)
    chance.shuffle(items)
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    items[:] = [item for tests in files.values() for item in tests]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        """Assigns each unit to one worker."""

        def _split_scope(self, nodeid: str) -> str:
            return shared(nodeid)

    config.option.loadscopereorder = (
        False  # would sort by the number of tests; `sort` has already ordered them
    )
    return Units(config, log)

"""Which tests share a worker, and which begin first, where test files run side by side (``pytest -n``).

A file is the unit, unless its tests share something expensive with other files or with the machine: then the unit is what
they share. The long ones begin first, lest one worker still runs the last of them when the others have nothing left.
"""

from typing import Any

import pytest

__all__ = ["pytest_xdist_make_scheduler", "shared", "sort"]

SHARED = {
    "tests/crash/test_fork.py": "fork",
    "tests/flow/test_forks.py": "fork",
    "tests/publishers/test_forks.py": "fork",
    "tests/transports/test_forks.py": "fork",
    "tests/browser/": "browser",
    "tests/clients/": "clients",
    "tests/crash/test_limits.py": "limits of the machine",
    "tests/publishers/spark/test_exactly_once.py::test_a_driver_killed": "killed drivers",
    "tests/publishers/spark/test_whole_way.py": "killed drivers",
    "tests/publishers/spark/test_java.py": "tests/publishers/spark/test_java.py",
    "tests/publishers/spark/": "Spark",
    "tests/examples/test_examples.py::test_a_subscriber_in_the_driver": "Spark",
    "tests/examples/test_spark_delays.py": "Spark",
    "tests/examples/test_spark_orders.py": "Spark",
    "tests/examples/test_spark_replay.py": "Spark",
    "tests/flights/test_stream.py": "Spark",
    "tests/test_benchmarks.py::test_a_benchmark_of_spark": "Spark",
    "tests/test_readme.py::test_the_spark_program": "Spark",
    "tests/flights/": "demo",
}
"""The beginnings of paths, the first that fits, whose tests fork this process, or share a browser, a Spark session, the installed clients or
a small file system. What starts Spark in processes of its own need not wait for those that share a session."""

LONG = (
    "fork",
    "Spark",
    "demo",
    "killed drivers",
    "tests/simulation/test_proof.py",
    "tests/publishers/test_interleaving.py",
    "tests/crash/test_kill.py",
    "tests/typing/test_types.py",
    "tests/examples/test_rx_departures.py",
    "tests/publishers/spark/test_java.py",
    "tests/history/test_history.py",
    "browser",
    "clients",
    "tests/test_benchmarks.py",
)
"""Units that take longest, the longest first; but before them what forks, in a process in which nothing else has run."""


def shared(nodeid: str) -> str:
    """The unit to which a test belongs."""
    return next((unit for path, unit in SHARED.items() if nodeid.startswith(path)), nodeid.partition("::")[0])


def sort(items: list[pytest.Item]) -> None:
    """Puts the tests of the longest units first; the others stay as they stand."""
    rank = {unit: place for place, unit in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(shared(item.nodeid), len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        """Hands each unit to one worker."""

        def _split_scope(self, nodeid: str) -> str:
            return shared(nodeid)

    config.option.loadscopereorder = False  # by the number of tests; ours are sorted when they are collected
    return Units(config, log)

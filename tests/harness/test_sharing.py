"""Tests that share something expensive share a worker, and the longest begin first."""

import itertools
from pathlib import Path
from types import SimpleNamespace

from tests.harness import sharing

ROOT = Path(__file__).parents[2]


def test_a_file_stays_together_and_so_do_all_tests_of_spark():
    assert sharing.shared("tests/flow/test_demand.py::test_a") == "tests/flow/test_demand.py"
    assert sharing.shared("tests/publishers/spark/test_sink.py::test_a") == "Spark"
    assert sharing.shared("tests/publishers/spark/test_gate.py::TestB::test_c[1]") == "Spark"
    assert sharing.shared("tests/publishers/spark/test_exactly_once.py::test_a") == "Spark"


def test_what_starts_spark_by_itself_does_not_wait_for_the_session_that_others_share():
    for path in ("tests/publishers/spark/test_whole_way.py", "tests/publishers/spark/test_java.py"):
        assert sharing.shared(f"{path}::test_a") == path


def test_every_path_that_is_named_exists():
    for path in (*sharing.SHARED, *(unit for unit in sharing.LONG if unit.endswith(".py"))):
        assert (ROOT / path.partition("::")[0]).exists(), path


def test_the_longest_begin_first_and_the_others_stay_in_their_order():
    names = [
        "tests/b.py::test",
        "tests/a.py::test",
        f"{sharing.LONG[2]}::test",
        "tests/publishers/spark/test_x.py::test",
    ]
    items = [SimpleNamespace(nodeid=name) for name in names]
    sharing.sort(items)
    assert [item.nodeid for item in items] == [names[3], names[2], names[0], names[1]]


def test_another_order_has_the_same_tests_and_keeps_files_together():
    tests = [SimpleNamespace(nodeid=f"tests/test_{file}.py::test_{n}") for file in "abc" for n in range(9)]
    orders = []
    for order in "112":
        shuffled = list(tests)
        sharing.shuffle(shuffled, order)
        orders.append([one.nodeid for one in shuffled])
        assert sorted(orders[-1]) == [one.nodeid for one in tests]
        assert len(list(itertools.groupby(orders[-1], key=lambda name: name.partition("::")[0]))) == 3
    assert orders[0] == orders[1] != orders[2]

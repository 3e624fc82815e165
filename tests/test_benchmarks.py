"""Every benchmark runs, with counts so small that its figures say nothing."""

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from benchmarks import harness, report
from benchmarks.__main__ import NAMES
from benchmarks.plot import draw
from tests.harness.constants import set_constant

TINY = {
    "append": {"SIZES": (1, 10), "CHANGES": (20, 40)},
    "commit": {"COMMITS": 4, "CALLERS": (3,), "GROUPED": 12, "LARGE": (10,)},
    "appending": {"CONNECTIONS": (2,), "APPENDS": 20, "WINDOW": 5},
    "resync": {"CHANGES": 200, "SIZES": (10,)},
    "demand": {"COMMITS": 3},
    "laggards": {"COMMITS": 20, "READERS": 2, "SECONDS": 0.05},
    "matching": {"SIZES": {1: 0, 100: 1}, "CONDITIONS": 20, "GROWN": 100},
    "fanout": {"COMMITS": 10, "SUBSCRIBERS": (1, 100)},
    "flow_signals": {"ROUNDS": 1, "DELIVERIES": 200, "SUBSCRIBERS": (1, 10), "IDLE": 50},
    "wire": {"CONNECTIONS": (2,), "EVENTS": 400},
    "tailing": {
        "COMMITS": 2,
        "BULK": 100,
        "FINDING": 0.3,
        "READERS": {"frames, poll of 1 ms": ("tail", "poll")},
        "BESIDE": {"a reader that polls": "poll"},
    },
    "logs": {"LOGS": 3, "QUIET": 0.1},
    "growth": {
        "COMMITS": 3,
        "HISTORIES": (0, 1000),
        "IDLE": (1, 10),
        "PREDICATES": (1, 10),
        "LIVE": 2,
        "LAGGARDS": 3,
        "BACKLOG": 6000,
    },
    "groups": {"SIZES": {1: (10, 5), 10: (40, 20)}},
    "slots": {"EVERY": (1, 10), "CHANGES": 100, "ACKS": 20, "DURABLE": 3},
    "sinks": {"CHANGES": 20, "BATCH": 10, "LATE": 2, "SERVERS": ("redis",)},
    "state": {"CHANGES": {1: 20, 10: 20}, "ROWS": 20},
    "spark": {"ROWS": 20, "WIDE_ROWS": 10, "BATCHES": 1, "WARMING": 0},
    "spark_source": {"ROWS": 20, "COMMITS": 2, "WARMING": 0},
}

SPARK = ("spark", "spark_source")
"""Those that take the session of all tests."""


def test_every_benchmark_is_tried_here():
    assert set(TINY) == set(NAMES)


@pytest.fixture
def loop() -> Iterator[None]:
    """A current event loop, which eventkit asks for when it is imported; other tests may have left none."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        yield
    asyncio.set_event_loop(None)


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SPARK])
def test_a_benchmark_runs_and_leaves_its_figures(name, tmp_path, monkeypatch, capsys):
    tried(name, tmp_path, monkeypatch, capsys)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", SPARK)
def test_a_benchmark_of_spark_runs_and_leaves_its_figures(name, tmp_path, monkeypatch, capsys):
    tried(name, tmp_path, monkeypatch, capsys)


def tried(name, tmp_path, monkeypatch, capsys):
    module = pytest.importorskip(f"benchmarks.{name}", exc_type=ImportError)
    set_constant(monkeypatch, harness, "ROUNDS", 1)
    set_constant(monkeypatch, harness, "RESULTS", tmp_path / "results")
    for constant, value in TINY[name].items():
        monkeypatch.setattr(module, constant, value)
    tables = module.run(tmp_path)
    saved = harness.save(name, tables, harness.environment())
    draw(name, tables, saved.with_suffix(".svg"))
    assert ET.fromstring(saved.with_suffix(".svg").read_text()).tag.endswith("svg")
    assert all(figure.rate > 0 for table in tables.values() for figure in table)
    page = tmp_path / "page.md"
    page.write_text(
        f"before\n{report.FIRST}old\n{report.LAST}between\n{report.BEGIN}old\n{report.END}after\n"
    )
    report.write([name], "Tiny.", page)
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert f"{report.LAST}between\n{report.BEGIN}" in written
    printed = capsys.readouterr().out
    assert all(table.title in written and table.title in printed for table in tables.values())


def test_the_page_opens_with_one_table_of_figures_that_stand_below():
    page = report.PAGE.read_text()
    first, rest = page.split(report.LAST)
    assert first.startswith(f"# Benchmarks\n\n{report.FIRST}")
    rows = [line.split(" | ") for line in first.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == [f"| {label}" for label, _, _ in report.SUMMARY]
    for (_, title, variants), (_, unit, *cells) in zip(report.SUMMARY, rows, strict=True):
        comparison = rest.split(f"**{title}**")[1].split("\n**")[0]
        assert f"| | {unit} |" in comparison
        for variant, cell in zip(variants.values(), cells, strict=False):
            assert f"| {variant} | {cell.removesuffix(' |')} |" in comparison


def test_ratios_are_taken_in_the_same_round():
    table = harness.Table("t", "things/s", {"a": [1.0, 10.0, 100.0], "b": [2.0, 5.0, 200.0]})
    assert [figure.ratio for figure in table] == [1.0, 2.0]
    table.reach("b", ">=", 2, "a")
    table.reach("b", "<=", 1.5, "a")
    table.reach("not measured", ">=", 1, "a")
    assert [goal.reached for goal in table.goals] == [True, False]

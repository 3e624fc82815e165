"""Writes the figures of the last run of each benchmark into their page of the documentation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import harness

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN = "<!-- written by python -m benchmarks --report: begin -->\n"
END = "<!-- written by python -m benchmarks --report: end -->\n"
FIRST = "<!-- the first table, written by python -m benchmarks --report: begin -->\n"
LAST = "<!-- the first table, written by python -m benchmarks --report: end -->\n"
_SYNCED = {
    "penstock": "penstock, sync=always",
    "SQLite": "SQLite WAL, synchronous=FULL",
    "LMDB": "LMDB",
    "Redis Streams": "Redis Streams, appendfsync=always",
}
_READ = {
    "penstock": "penstock, on_next with Change objects",
    "SQLite": "SQLite WAL, synchronous=OFF",
    "LMDB": "LMDB, nosync",
    "Redis Streams": "Redis Streams, appendfsync=no",
}
SUMMARY = (
    ("one change a commit, one caller", "durable commit of one change, one caller", _SYNCED),
    ("the same, 99 of 100 within", "durable commit of one change, 99 of 100 within", _SYNCED),
    ("one change a commit, 100 callers", "durable commit of one change, 100 callers", _SYNCED),
    ("1,000 changes a commit, one caller", "durable commit of 1000 changes, one caller", _SYNCED),
    ("reading a backlog, 10 changes a commit", "a backlog of 100,000 changes, 10 a transaction", _READ),
    (
        "from a commit to a subscriber in another process, 99 of 100 within",
        "from a commit to another process, 99 of 100 within",
        {"penstock": "on_next, datagram"},
    ),
    (
        "memory of a subscriber that waits",
        "memory of an idle subscriber of a log",
        {"penstock": "of equal criteria"},
    ),
)
"""Rows of the first table: their names, the title of the comparison, and the variant of each column."""


def write(names: Sequence[str], remark: str = "", page: Path = PAGE) -> None:
    """Replaces the text between the marks of a page.

    Args:
        names: The benchmarks, in the order of the page.
        remark: A remark on this run for the reader.
        page: The page.
    """
    text = page.read_text()
    found = {
        name: json.loads((harness.RESULTS / f"{name}.json").read_text())
        for name in names
        if (harness.RESULTS / f"{name}.json").exists()
    }
    text = _replaced(text, FIRST, LAST, _summary(found))
    page.write_text(_replaced(text, BEGIN, END, _lines(found, remark)))


def _replaced(text: str, begin: str, end: str, lines: Iterator[str]) -> str:
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return before + begin + "\n".join(lines) + "\n" + end + after


def _summary(found: dict[str, Any]) -> Iterator[str]:
    """The first table of the page, and the number of goals that were reached."""
    tables: dict[str, Any] = {}
    for table in chain.from_iterable(run["tables"].values() for run in found.values()):
        tables.setdefault(table["title"], table)  # some comparisons are repeated with a simulated sync
    yield "\n| | unit | " + " | ".join(_SYNCED) + " |"
    yield "|---|---|" + "---:|" * len(_SYNCED)
    for label, title, variants in SUMMARY:
        if title in tables:
            rates = {figure["variant"]: figure["rate"] for figure in tables[title]["figures"]}
            shown = (_shown(rates.get(variants.get(column, ""))) for column in _SYNCED)
            yield f"| {label} | {tables[title]['unit']} | " + " | ".join(shown) + " |"
    yield ""
    counts = (f"{name} {_goals([run])}" for name, run in found.items())
    yield f"Figures to reach, and reached: {_goals(found.values())} ({', '.join(counts)}). Each stands below, reached or missed.\n"


def _shown(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.{0 if rate >= 100 else 2}f}"


def _goals(runs: Iterable[dict[str, Any]]) -> str:
    """The number of goals reached, and of all goals."""
    goals = [
        goal
        for table in chain.from_iterable(run["tables"].values() for run in runs)
        for goal in table["goals"]
    ]
    return f"{sum(goal['reached'] for goal in goals)} of {len(goals)}"


def _lines(found: dict[str, Any], remark: str) -> Iterator[str]:
    if not found:
        yield "Nothing was run yet."
        return
    first = next(iter(found.values()))["environment"]
    yield "\nOn " + ", ".join(f"{key} {value}" for key, value in first.items() if key != "load") + ".\n"
    if remark:
        yield remark + "\n"
    yield f"{_goals(found.values())} figures were reached.\n"
    for name, run in found.items():
        yield f"### {name}\n"
        yield f"Load at the beginning: {run['environment']['load']}.\n"
        for table in run["tables"].values():
            yield from _table(table)


def _table(table: dict[str, Any]) -> Iterator[str]:
    yield f"**{table['title']}**" + (f" ({table['sizes']})" if table["sizes"] else "") + "\n"
    yield f"| | {table['unit']} | to the first |"
    yield "|---|---:|---:|"
    for figure in table["figures"]:
        yield f"| {figure['variant']} | {_shown(figure['rate'])} | {figure['ratio']:.2f}x |"
    yield ""
    for note in table["notes"]:
        yield f"* {note}"
    for goal in table["goals"]:
        yield f"* to reach: {goal['text']}: {goal['found']}, **{'reached' if goal['reached'] else 'missed'}**"
    if table["notes"] or table["goals"]:
        yield ""

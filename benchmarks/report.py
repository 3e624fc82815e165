"""The figures of the last run of each benchmark, put into the page that tells of them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN = "<!-- written by python -m benchmarks --report: begin -->\n"
END = "<!-- written by python -m benchmarks --report: end -->\n"


def write(names: Sequence[str], remark: str = "", page: Path = PAGE) -> None:
    """Replaces what stands between the marks of a page.

    Args:
        names: The benchmarks, in the order in which they are told of.
        remark: What a reader should know of this run.
        page: Where the marks are.
    """
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    found = {
        name: json.loads((harness.RESULTS / f"{name}.json").read_text())
        for name in names
        if (harness.RESULTS / f"{name}.json").exists()
    }
    page.write_text(before + BEGIN + "\n".join(_lines(found, remark)) + "\n" + END + after)


def _lines(found: dict[str, Any], remark: str) -> Iterator[str]:
    if not found:
        yield "Nothing was run yet."
        return
    first = next(iter(found.values()))["environment"]
    yield "\nOn " + ", ".join(f"{key} {value}" for key, value in first.items() if key != "load") + ".\n"
    if remark:
        yield remark + "\n"
    goals = [goal for run in found.values() for table in run["tables"].values() for goal in table["goals"]]
    reached = sum(goal["reached"] for goal in goals)
    yield f"{reached} of {len(goals)} figures were reached.\n"
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
        rate = figure["rate"]
        yield f"| {figure['variant']} | {rate:,.{0 if rate >= 100 else 2}f} | {figure['ratio']:.2f}x |"
    yield ""
    for note in table["notes"]:
        yield f"* {note}"
    for goal in table["goals"]:
        yield f"* to reach: {goal['text']}: {goal['found']}, **{'reached' if goal['reached'] else 'missed'}**"
    if table["notes"] or table["goals"]:
        yield ""

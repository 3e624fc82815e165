"""The tables of options as ``docs/options.md`` shows them: ``python -m tests.options_page`` writes them there."""

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from publishers.groups.settings import GroupSettings
from publishers.options import POSITIVE, LogOptions, Option, options_of
from transports.limits import Limits
from transports.sinks.options import SinkOptions
from transports.sinks.retry import RetryPolicy

# ruff: noqa: T201 - it is a command, and printing is what it does

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
CLASSES: tuple[Any, ...] = (LogOptions, Limits, SinkOptions, GroupSettings, RetryPolicy)
OPEN = {2**62, 2**40, inf}  # bounds that are none for people
TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


def _bytes(value: int) -> str:
    for size, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value and value % size == 0:
            return f"{value // size} {name}"
    return f"{value:,}"


def _seconds(value: float) -> str:
    for size, name in TIMES:
        if value >= size and abs(value / size - round(value / size)) < 1e-9:
            return f"{round(value / size)} {name}"
    return f"{value:g} s"


def _shown(option: Option, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return f"`{value}`"
    if value == inf:
        return "unbounded"
    if option.kind is None or not isinstance(value, int | float):
        return {"backoff": ", ".join(map(str, value if isinstance(value, tuple) else ())) + " s"}.get(
            option.name, ""
        )
    if option.unit == "bytes":
        return _bytes(int(value))
    return _seconds(value) if option.unit == "s" else f"{value:,}" if option.kind is int else f"{value:g}"


def _bounds(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{one}`" for one in option.choices)
    if option.kind not in (int, float):
        return ""
    low = "above 0" if option.low == POSITIVE else _shown(option, option.low)
    if option.high in OPEN or (option.high >= 2**31 - 1 and option.unit != "bytes"):
        return low if option.low == POSITIVE else f"from {low}"
    return f"{low} to {_shown(option, option.high)}"


def _rows(cls: Any) -> Iterator[str]:
    yield "| option | default | values | |\n|---|---|---|---|\n"
    for one in options_of(cls):
        said = one.says.replace("``", "`").replace("|", "\\|")
        default = "" if one.kind is None and one.name != "backoff" else _shown(one, one.default)
        values = _bounds(one) + (", or none" if one.optional and one.kind in (int, float) else "")
        yield f"| `{one.name}` | {default} | {values} | {said} |\n"


def written(page: str) -> str:
    """The page with the tables as they are now."""
    for cls in CLASSES:
        begin, end = f"<!-- the options of {cls.__name__} -->\n", "<!-- to here -->\n"
        rows = "".join(_rows(cls))
        found = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)
        assert found.search(page), cls
        page = found.sub(lambda _, rows=rows: rows, page, count=1)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(f"wrote {sum(len(options_of(cls)) for cls in CLASSES)} options to {PAGE}")

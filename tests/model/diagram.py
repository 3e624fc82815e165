"""Prints the tables of states as the page about the architecture has them; ``python -m tests.model.diagram`` writes them there."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from publishers.commits.leadership import LEADERSHIP, Leadership, LeadershipEvent
from publishers.fanout.state import SUBSCRIPTIONS, Occurrence, Phase
from publishers.model.transitions import TransitionTable

PAGE: Final = Path(__file__).parents[2] / "docs" / "architecture.md"


def _between(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- from the table of {name} -->\n).*?(?=<!-- to here -->)", re.DOTALL)


def drawn(name: str) -> str:
    """The diagram of a table, what its states and events are, and its rows."""
    return "\n".join(("", *_TABLES[name], ""))[1:]


def _table(
    table: TransitionTable[Any, Any, Any, Any],
    states: type[Enum],
    events: type[Enum],
    first: Enum,
    last: Enum | None = None,
) -> Iterator[str]:
    """The lines about a table."""
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}")
    arrows: dict[tuple[Enum, Enum], list[str]] = {}
    for before, event, _, after, _ in table.rows:
        if after not in (before, last):
            names = arrows.setdefault((before, after), [])
            names += [] if event.name in names else [event.name]
    for (before, after), names in arrows.items():
        yield f"    {before.name} --> {after.name}: {', '.join(names)}"
    yield from ([] if last is None else [f"    {last.name} --> [*]"])
    yield "```"
    for what, kind in (("state", states), ("event", events)):
        yield from ("", f"| {what} | what it is |", "|---|---|")
        yield from (f"| {one.name} | {one.value} |" for one in kind)
    acts = any(row.then for row in table.rows)
    yield from (
        "",
        "| from | event | if | to |" + " what is done |" * acts,
        "|---|---|---|---|" + "---|" * acts,
    )
    for before, event, when, after, then in table.rows:
        conditions = ", and ".join(guard.value for guard in when)
        actions = f" {'; '.join(action.value for action in then)} |" * acts
        yield f"| {before.name} | {event.name} | {conditions} | {after.name} |{actions}"


_TABLES: Final = {
    "states": list(_table(SUBSCRIPTIONS, Phase, Occurrence, Phase.RESYNC, Phase.ENDED)),
    "leadership": list(_table(LEADERSHIP, Leadership, LeadershipEvent, Leadership.FREE)),
}
NAMES: Final = tuple(_TABLES)
"""The tables of the page."""


def told(page: str, name: str) -> str:
    """What a page says of a table."""
    (found,) = _between(name).findall(page)
    return str(found)


if __name__ == "__main__":
    page = PAGE.read_text()
    for each in NAMES:
        page = _between(each).sub(lambda _, name=each: drawn(name), page)  # type: ignore[misc]  # the default binds it
    PAGE.write_text(page)

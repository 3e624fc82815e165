"""Prints the table of states as the page about the architecture has it; ``python -m tests.model.diagram`` writes it there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from publishers.fanout.state import TABLE, Occurrence, Phase

PAGE: Final = Path(__file__).parents[2] / "docs" / "architecture.md"
_BETWEEN: Final = re.compile(r"(?<=<!-- from the table of states -->\n).*(?=<!-- to here -->)", re.DOTALL)


def drawn() -> str:
    """The diagram, what the states and events are, and the rows."""
    return "\n".join(
        (*_diagram(), "", *_names("state", Phase), "", *_names("event", Occurrence), "", *_rows(), "")
    )


def _diagram() -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", "    [*] --> RESYNC")
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for row in TABLE:
        if row.to not in (row.phase, Phase.ENDED):
            arrows.setdefault((row.phase, row.to), []).append(row.event.name)
    for (source, target), events in arrows.items():
        yield f"    {source.name} --> {target.name}: {', '.join(events)}"
    yield from ("    ENDED --> [*]", "```")


def _names(what: str, names: type[Phase] | type[Occurrence]) -> Iterator[str]:
    yield from (f"| {what} | what it is |", "|---|---|")
    yield from (f"| {one.name} | {one.value} |" for one in names)


def _rows() -> Iterator[str]:
    yield from ("| from | event | if | to | what is done |", "|---|---|---|---|---|")
    for row in TABLE:
        when = ", and ".join(guard.value for guard in row.when)
        then = "; ".join(action.value for action in row.then)
        yield f"| {row.phase.name} | {row.event.name} | {when} | {row.to.name} | {then} |"


def told(page: str) -> str:
    """What a page says of it."""
    (found,) = _BETWEEN.findall(page)
    return str(found)


if __name__ == "__main__":
    PAGE.write_text(_BETWEEN.sub(lambda _: drawn(), PAGE.read_text()))

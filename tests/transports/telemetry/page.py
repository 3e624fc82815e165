"""The table of metrics as ``docs/monitoring.md`` shows it: ``python -m tests.transports.telemetry.page`` writes it there."""

import re
from pathlib import Path

from transports.telemetry.table import TABLE

# ruff: noqa: T201 - it is a command, and printing is what it does

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
BEGIN, END = "<!-- from the table of metrics -->\n", "<!-- to here -->\n"


def rows() -> str:
    """The table in Markdown."""
    lines = ["| metric | kind | labels | |", "|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {one.kind.value} | {', '.join(f'`{label}`' for label in one.all_labels)} | {one.what} |"
        for one in TABLE
    ]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """A page with the table as it is now."""
    return re.sub(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: rows(), page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(f"wrote {len(TABLE)} metrics to {PAGE}")

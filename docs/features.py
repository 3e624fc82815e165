"""Brings the marks in features.md up to date: a feature works when a test names its id.

Run ``python docs/features.py`` to rewrite the file, ``python docs/features.py --check`` to be told whether it is up to date.
"""

import re
import sys
from pathlib import Path

TABLE = Path(__file__).with_name("features.md")
TESTS = Path(__file__).parent.parent / "tests"
PARTLY = {
    "F107": "changes are copied with origin and entry version by a subscriber of your own",
    "F117": "in the log itself",
    "E57": "untyped",
}
ROW = re.compile(r"^\| ([FE]\d+) \| (.*) \|(.*)\|$")


def named() -> set[str]:
    """The feature ids that tests name."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        found |= set(re.findall(r"\b[FE]\d{1,3}\b", path.read_text()))
    return found


def marked(text: str, works: set[str]) -> str:
    """The table with a mark for each feature that works."""
    lines: list[str] = []
    for line in text.splitlines():
        row = ROW.match(line)
        lines.append(f"| {row[1]} | {row[2]} | {_mark(row[1], works)} |" if row else line)
    return "\n".join(lines) + "\n"


def _mark(feature: str, works: set[str]) -> str:
    if feature not in works:
        return ""
    return f"partly: {PARTLY[feature]}" if feature in PARTLY else "yes"


def main() -> int:
    """Rewrites or checks the table."""
    text = TABLE.read_text()
    wanted = marked(text, named())
    if "--check" in sys.argv:
        return int(text != wanted)
    TABLE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The page about the architecture tells the states as the table has them."""

import re

from tests.model.diagram import PAGE, drawn, told


def test_the_page_tells_the_table_of_states():
    assert told(PAGE.read_text()) == drawn(), "python -m tests.model.diagram writes it"


def test_nothing_but_the_table_changes_a_state():
    """Else the table would stand beside the code, and what is explored would not be what runs."""
    found = [
        (path.name, line.strip())
        for path in (PAGE.parents[1] / "publishers").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.phase\s*(:.*)?=[^=]", line)
    ]
    assert sorted(found) == [("bench.py", "self.phase = Phase.RESYNC"), ("ring.py", "cursor.phase = row.to")]

"""The page about the architecture has the states as the tables have them."""

import re

import pytest

from tests.model.diagram import NAMES, PAGE, drawn, told

PLACES = {
    "phase": [("bench.py", "self.phase = Phase.RESYNC"), ("ring.py", "cursor.phase = row.to")],
    # Two rows are inlined; tests/publishers/commits/test_queue.py compares them with the table.
    "state": [("queue.py", f"self.state = {to}") for to in ("_FREE", "_FREE", "_LEADING", "row.to")],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_tables_of_states(name):
    assert told(PAGE.read_text(), name) == drawn(name), "python -m tests.model.diagram writes it"


@pytest.mark.parametrize(("name", "rooms"), [("phase", "**"), ("state", "commits")])
def test_nothing_but_a_table_changes_a_state(name, rooms):
    """Else the table would stand beside the code, and what is explored would not be what runs."""
    found = [
        (path.name, re.sub(r"(\.\w+): \w+ =", r"\1 =", line.strip()))
        for path in (PAGE.parents[1] / "publishers").glob(f"{rooms}/*.py")
        for line in path.read_text().splitlines()
        if re.search(rf"\.{name}\s*(:.*)?=[^=]", line)
    ]
    assert sorted(found) == PLACES[name]

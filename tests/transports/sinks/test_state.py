"""The table of a runner's states, and that the page shows it."""

from pathlib import Path

import pytest

from transports.sinks.state import SINK_TABLE, SinkEvent, SinkState, sink_state_after

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


def shown():
    for state in SinkState:
        after = [sink_state_after(state, event) for event in SinkEvent]
        cells = " | ".join("" if one is None else one.name for one in after)
        yield f"| {state.name} | {state.value} | {cells} |"


def test_the_page_shows_the_table():
    told = PAGE.read_text().split("<!-- from the table of sinks -->\n")[1].split("<!-- to here -->")[0]
    heads = " | ".join(event.name for event in SinkEvent)
    rule = "|---" * (len(SinkEvent) + 2) + "|"
    assert told.splitlines() == [f"| state | what it is | {heads} |", rule, *shown()]


def test_no_row_contradicts_another_one():
    assert len({(row.state, row.event) for row in SINK_TABLE.rows}) == len(SINK_TABLE.rows)


@pytest.mark.parametrize("event", SinkEvent)
def test_what_has_stopped_stays_so(event):
    assert sink_state_after(SinkState.STOPPED, event) is None


def test_every_state_is_reached_from_the_first_one_and_can_be_stopped():
    reached, last = {SinkState.STARTING}, set()
    while reached != last:
        last = set(reached)
        reached |= {row.to for row in SINK_TABLE.rows if row.state in last}
    assert reached == set(SinkState)
    for state in reached - {SinkState.STOPPED}:
        assert sink_state_after(state, SinkEvent.STOP) is SinkState.STOPPED

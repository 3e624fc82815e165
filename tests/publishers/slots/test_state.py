"""The table of a slot's states."""

from pathlib import Path

import pytest

from publishers.slots.state import SlotEvent, SlotState, state_after


@pytest.mark.parametrize("state", SlotState)
@pytest.mark.parametrize("event", SlotEvent)
def test_a_bad_slot_can_only_be_reset_or_dropped_and_a_dropped_one_nothing(state, event):
    """F74, F92."""
    after = state_after(state, event)
    if state is SlotState.DROPPED:
        assert after is None
    elif state in (SlotState.LOST, SlotState.FORKED):
        expected = {SlotEvent.RESET: SlotState.FREE, SlotEvent.DROP: SlotState.DROPPED}
        assert after is expected.get(event)


def test_a_served_slot_is_opened_by_taking_it_over_only():
    """F123."""
    assert state_after(SlotState.FREE, SlotEvent.OPEN) is SlotState.SERVED
    assert state_after(SlotState.SERVED, SlotEvent.OPEN) is None
    assert state_after(SlotState.SERVED, SlotEvent.TAKE_OVER) is SlotState.SERVED
    assert state_after(SlotState.SERVED, SlotEvent.DROP) is None


def test_the_page_has_the_table_that_the_code_goes_by():
    """The rows of docs/delivery.md are those of the table."""
    page = Path(__file__).parents[3] / "docs" / "delivery.md"
    text = page.read_text().split("<!-- from the table of slots -->\n")[1].split("<!-- to here -->")[0]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    events = [SlotEvent[name.upper().replace(" ", "_")] for name in head[2:]]
    assert set(events) == set(SlotEvent)
    assert [row[0] for row in rows] == [state.value for state in SlotState]
    for state, row in zip(SlotState, rows, strict=True):
        after = [state_after(state, event) for event in events]
        assert row[2:] == ["" if one is None else one.value for one in after], state

"""The one table of phases."""

import re

import pytest

from transports.errors import Violation
from transports.protocol import states
from transports.protocol.states import PHASES, ConnectionPhase, PhaseEvent, advance


def test_the_table_that_is_told_is_the_table_that_is_used():
    rows = re.findall(r"^(\w+)  +([A-Z]+)\b.*?  +(\w+)$", states.__doc__, re.MULTILINE)
    told = {(phase, event, after) for phase, event, after in rows}
    for phase in ConnectionPhase:
        for event in PhaseEvent:
            after = PHASES.get((phase, event))
            known = {row[2] for row in told if row[0] in (phase.value, "any") and row[1] == event.name}
            assert known == ({after.value} if after else set()), (phase, event)


@pytest.mark.parametrize("phase", ConnectionPhase)
@pytest.mark.parametrize("event", PhaseEvent)
def test_what_is_not_in_the_table_breaks_the_protocol(phase, event):
    if (phase, event) in PHASES:
        assert advance(phase, event) is PHASES[phase, event]
        return
    with pytest.raises(Violation) as caught:
        advance(phase, event)
    code, why = event.value
    assert (caught.value.close_code, str(caught.value)) == (code, why)

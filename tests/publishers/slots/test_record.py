"""What the journal tells of slots."""

import msgspec
import pytest

from penstock_cdc.errors import FormatTooNew
from publishers.slots.record import FORMAT, JournalEntry, SlotPlace, SlotRecord, replay


def record(number, **more):
    return SlotRecord(id=number, name=f"slot-{number}", place="somewhere", **more)


def test_entries_are_applied_in_their_order():
    entries = [
        JournalEntry(slots=[record(1), record(2), record(3)], format=FORMAT),
        JournalEntry(places=[SlotPlace(2, "elsewhere", True)], dropped=[1, 9]),
        JournalEntry(slots=[record(3, generation=4)]),
    ]
    found = replay(map(msgspec.json.encode, entries))
    assert found == {
        2: msgspec.structs.replace(record(2), place="elsewhere", lost=True),
        3: record(3, generation=4),
    }


def test_a_newer_format_is_named():
    with pytest.raises(FormatTooNew) as caught:
        replay([b'{"format":2}'])
    assert (caught.value.found, caught.value.known) == (2, 1)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"slots":[{}]}', b'{"places":[[7,"x",false]]}', b"\xff"])
def test_what_was_never_written_is_refused(payload):
    with pytest.raises(ValueError, match=r"."):
        replay([payload])

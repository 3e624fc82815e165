"""The records of slots in the journal, as JSON: whole slots, new positions, and dropped slots."""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from publishers.errors import FormatTooNew

__all__ = ["FORMAT", "SLOTS_NAME", "Granularity", "JournalEntry", "SlotPlace", "SlotRecord", "replay"]

FORMAT: Final = 1
SLOTS_NAME: Final = "slots"
"""The directory of the journal, in that of the log."""

Granularity = Literal["transaction", "change"]
"""Where a stored position may be: at the beginning of a transaction, or before any change."""


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slot in the journal.

    Attributes:
        id: Its id in the journal, which a rename does not change.
        name: Its name.
        generation: The generation of the last opening; 0 if there was none.
        place: The token of the next change to read.
        criteria: Its criteria as JSON; empty for everything.
        granularity: Where the position may be.
        keep_bytes: The cap of its hold in bytes; None for the option of the log.
        keep_age: The cap in seconds; likewise.
        paused: Whether it delivers nothing until it is resumed.
        lost: Whether its history was above the cap and was deleted.
    """

    id: int
    name: str
    generation: int = 0
    place: str
    criteria: list[dict[str, Any]] = []
    granularity: Granularity = "transaction"
    keep_bytes: int | None = None
    keep_age: float | None = None
    paused: bool = False
    lost: bool = False


class SlotPlace(msgspec.Struct, frozen=True, array_like=True):
    """A new position of a slot, and whether the slot is lost."""

    id: int
    place: str
    lost: bool


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of one frame. ``slots`` are applied before ``places``."""

    slots: list[SlotRecord] = []
    places: list[SlotPlace] = []
    dropped: list[int] = []
    format: int = 0


def replay(payloads: Iterable[bytes]) -> dict[int, SlotRecord]:
    """The slots of a journal, by id.

    Raises:
        FormatTooNew: If a newer version of penstock wrote it.
        ValueError: If a payload is malformed.
    """
    found: dict[int, SlotRecord] = {}
    for payload in payloads:
        entry = msgspec.json.decode(payload, type=JournalEntry)
        if entry.format > FORMAT:
            raise FormatTooNew(entry.format, FORMAT, "slot format")
        found |= {one.id: one for one in entry.slots}
        for moved in entry.places:
            if moved.id not in found:
                raise ValueError(f"a place of slot {moved.id}, which is not there")
            found[moved.id] = msgspec.structs.replace(found[moved.id], place=moved.place, lost=moved.lost)
        for gone in entry.dropped:
            found.pop(gone, None)
    return found

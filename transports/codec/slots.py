"""What ``subscribe`` says of a slot, and how the server answers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from publishers.errors import HistoryPruned
from publishers.model.position import Position
from publishers.slots.slot import Slot
from publishers.slots.slots import check_slot_name
from transports.codec.fields import typed, whole
from transports.errors import InvalidRequest

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["SlotReply", "SlotWish", "acknowledged", "flush", "slot_of", "slot_wish"]

_FIXED: Final = ("criteria", "start", "until", "onGap", "whole", "snapshot")
"""Fields of ``subscribe`` that a slot says itself."""
_TEXT_MAX: Final = 128
_GENERATION_MAX: Final = 2**53 - 1
_TEXT: Final = f"a text of 1 to {_TEXT_MAX} characters"


class SlotWish(msgspec.Struct, frozen=True):
    """The slot that a client wants to open.

    Attributes:
        name: Of the slot.
        take_over: Whether to take it from the consumer that has it.
        generation: Of an opening that is to go on after a lost connection; None for a new one.
        opening: What the client calls this opening, so that one whose answer was lost is not a second one.
        owner: What another consumer is told that has it; None for the name of the principal.
    """

    name: str
    take_over: bool = False
    generation: int | None = None
    opening: str | None = None
    owner: str | None = None


class SlotReply(msgspec.Struct):
    """What ``subscribed`` says of a slot.

    Attributes:
        name: Of the slot.
        generation: Of the opening.
        cursor: The next change that was not acknowledged.
        paused: Whether nothing is given until an operator resumes it.
    """

    name: str
    generation: int
    cursor: str
    paused: bool = False


def slot_of(payload: Mapping[str, Any]) -> SlotWish | None:
    """The slot that the payload of ``subscribe`` names, checked; None if it names none.

    Raises:
        InvalidRequest, InvalidOption: If a field has a value that it does not take, or says what the slot says.
    """
    told = typed(payload, "slot", dict, "an object")
    if told is None:
        return None
    for name in _FIXED:
        if payload.get(name) is not None:
            raise InvalidRequest(name, payload[name], "left out where slot is given")
    wish = slot_wish(told)
    if wish.generation is None and payload.get("since") is not None:
        raise InvalidRequest("since", payload["since"], "left out where slot has no generation")
    return wish


def slot_wish(told: Mapping[str, Any]) -> SlotWish:
    """An object that names a slot, checked.

    Raises:
        InvalidRequest, InvalidOption: If a field has a value that it does not take.
    """
    check_slot_name(told.get("name"))
    take_over = typed(told, "takeOver", bool, "true or false") or False
    generation = told.get("generation")
    if generation is not None:
        generation = whole("slot.generation", generation, 1, _GENERATION_MAX)
        if take_over:
            raise InvalidRequest("slot.generation", generation, "left out where takeOver is true")
    return SlotWish(told["name"], take_over, generation, _text(told, "opening"), _text(told, "owner"))


def _text(told: Mapping[str, Any], name: Literal["opening", "owner"]) -> str | None:
    value = typed(told, name, str, _TEXT)
    if value is not None and not 1 <= len(value) <= _TEXT_MAX:
        raise InvalidRequest(f"slot.{name}", value, _TEXT)
    return value


def acknowledged(log: "ChangeLog", cursor: str) -> Position:
    """The position before which everything is acknowledged by a cursor.

    Raises:
        PositionError: If it is no place of the log.
    """
    try:
        return log.position_of(cursor)
    except HistoryPruned as error:
        return error.oldest  # far behind the place of the slot, unless that is lost


def flush(slot: Slot) -> None:
    """Makes what was acknowledged durable, although more is acknowledged meanwhile.

    Raises:
        SlotsUnwritten: If the disk has no room or fails.
    """
    while not slot.ack(slot.position, durable=True):
        pass

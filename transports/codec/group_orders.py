"""What is asked of a group, or done with it, from afar, by those who are none of its consumers."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.groups import DeadLetter, GroupSettings
from publishers.model.position import Position, Start
from publishers.slots.slots import check_slot_name
from transports.codec.fields import typed, whole, word
from transports.codec.starts import place_of
from transports.errors import InvalidRequest

__all__ = ["GroupDeed", "GroupOrder", "letter_json"]

GroupDeed = Literal["pending", "create", "reset", "pause", "resume", "drop", "dead", "discard"]
_DEEDS: Final = list(get_args(GroupDeed))
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("limit",),
    "create": ("since", "start", "criteria", "options"),
    "reset": ("since", "start"),
    "dead": ("limit", "after"),
    "discard": ("positions",),
}
_ALL: Final = sorted({one for fields in _FIELDS.values() for one in fields})
_MOST: Final = 1_000


class GroupOrder(msgspec.Struct, frozen=True):
    """What is to be done, checked.

    Attributes:
        do: What it is.
        name: Of the group.
        log: Name of the log, or None for the only one.
        start: Of ``create`` and ``reset``: where it begins, or is to go.
        criteria: Of ``create``: which changes; None for all.
        settings: Of ``create``: its options.
        limit: Of ``pending`` and ``dead``: most rows.
        after: Of ``dead``: only letters behind this position.
        positions: Of ``discard``: which letters; None for all.
    """

    do: GroupDeed
    name: str
    log: str | None = None
    start: Any = Start.LATEST
    criteria: Criteria | None = None
    settings: GroupSettings = GroupSettings()
    limit: int = 100
    after: Position | None = None
    positions: tuple[Position, ...] | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "GroupOrder":
        """Checks what a client wants.

        Raises:
            InvalidRequest, InvalidOption: If a field has a value that it does not take.
            InvalidCriteria: If the criteria are none.
            PositionMalformed: If ``since`` is no cursor.
        """
        do: Any = word(payload, "do", "pending", _DEEDS)
        for field in _ALL:
            if field not in _FIELDS.get(do, ()) and payload.get(field) is not None:
                raise InvalidRequest(field, payload[field], f"left out where do is {do!r}")
        name = payload.get("name")
        check_slot_name(name)
        listed = typed(payload, "criteria", list, "a list of objects")
        places = typed(payload, "positions", list, "a list of positions")
        if places is not None and len(places) > _MOST:
            raise InvalidRequest("positions", len(places), f"at most {_MOST} positions at a time")
        after = payload.get("after")
        return cls(
            do,
            str(name),
            typed(payload, "log", str, "text"),
            place_of(payload),
            None if listed is None else Criteria.from_json(listed),
            GroupSettings.chosen(typed(payload, "options", dict, "an object") or {}),
            whole("limit", payload.get("limit"), 1, _MOST, 100),
            None if after is None else _position("after", after),
            None if places is None else tuple(_position("positions", one) for one in places),
        )


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as it travels, and as a command prints it."""
    plain: dict[str, Any] = msgspec.to_builtins(letter)
    return {**plain, "position": str(letter.position)}


def _position(path: str, text: object) -> Position:
    version, _, index = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (version.isascii() and version.isdigit() and index.isascii() and index.isdigit()):
        raise InvalidRequest(path, text, "a position of a dead letter, such as '42:1'")
    if max(len(version), len(index)) > 18:
        raise InvalidRequest(path, text, "a position of a dead letter, such as '42:1'")
    return Position(int(version), int(index))

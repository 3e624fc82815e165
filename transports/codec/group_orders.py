"""Orders on groups from clients that have not joined them."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.groups import DeadLetter, GroupSettings
from publishers.model.position import Position, Start
from publishers.slots.slots import check_slot_name
from transports.codec.fields import typed, whole, word
from transports.codec.groups import idle_of
from transports.codec.starts import place_of
from transports.errors import InvalidRequest

__all__ = ["GroupAction", "GroupOrder", "letter_json"]

GroupAction = Literal[
    "pending", "info", "create", "reset", "pause", "resume", "drop", "dead", "discard", "release"
]
_DEEDS: Final = list(get_args(GroupAction))
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("limit",),
    "create": ("since", "start", "criteria", "options"),
    "reset": ("since", "start"),
    "dead": ("limit", "after"),
    "discard": ("positions",),
    "release": ("minIdleMs",),
}
_ALL: Final = sorted({one for fields in _FIELDS.values() for one in fields})
_MOST: Final = 1_000


class GroupOrder(msgspec.Struct, frozen=True):
    """An order on a group, validated.

    Attributes:
        do: The operation.
        name: The name of the group.
        log: The name of the log; None for the only one.
        start: For ``create`` and ``reset``: the position of the group.
        criteria: For ``create``: the criteria; None for all changes.
        settings: For ``create``: the options of the group.
        limit: For ``pending`` and ``dead``: most rows.
        after: For ``dead``: only letters behind this position.
        positions: For ``discard``: the positions of the letters; None for all letters.
        min_idle: For ``release``: only deliveries made at least this many seconds ago.
    """

    do: GroupAction
    name: str
    log: str | None = None
    start: Any = Start.LATEST
    criteria: Criteria | None = None
    settings: GroupSettings = GroupSettings()
    limit: int = 100
    after: Position | None = None
    positions: tuple[Position, ...] | None = None
    min_idle: float = 0.0

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "GroupOrder":
        """Validates the payload of an order.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is invalid.
            InvalidCriteria: If the criteria are invalid.
            PositionMalformed: If ``since`` is malformed.
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
            idle_of(payload),
        )


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON, for clients and commands."""
    plain: dict[str, Any] = msgspec.to_builtins(letter)
    return {**plain, "position": str(letter.position)}


def _position(path: str, text: object) -> Position:
    version, _, index = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (version.isascii() and version.isdigit() and index.isascii() and index.isdigit()):
        raise InvalidRequest(path, text, "a position of a dead letter, such as '42:1'")
    if max(len(version), len(index)) > 18:
        raise InvalidRequest(path, text, "a position of a dead letter, such as '42:1'")
    return Position(int(version), int(index))

r"""Field-level changes: one field of an entity, named by its path, and an action on it.

A path is names separated by dots, with the indices of array items in brackets: ``address.city``, ``lines[0].price``. A
backslash makes a following ``.``, ``[`` or ``\`` part of a name, and ``\-`` is the empty name. Body and before image of a
field-level change are sparse: objects that hold nothing but the field, ``{"address": {"city": "Rome"}}``. Where a path goes
through an array, the array's only item stands for the item at that index. So filters, projections and masks treat the field as
they do in the whole entity.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from publishers.errors import InvalidChange
from publishers.model.change import Action, Change
from publishers.model.errors import brief
from publishers.mutations.arguments import encode_json, encode_value
from publishers.views.paths import exact_value

__all__ = [
    "FieldChange",
    "FieldPath",
    "add",
    "apply_field",
    "changed_fields",
    "check_follows",
    "discard",
    "field_changes",
    "field_value",
    "path_names",
    "push",
    "remove_field",
    "set_field",
]

FieldPath = str | Sequence[str | int]
"""The text of a path, or its names and indices."""

_ABSENT: Final = object()
_RIGHT: Final = "a path such as address.city or lines[0].price, or its names and places"
_STEP: Final = re.compile(r"((?:[^.\[\\]|\\.)+)?((?:\[\d+\])*)(\.|$)", re.DOTALL)
_EMPTY: Final = "\\-"
_SPECIAL: Final = re.compile(r"([.\[\\])")
_decoder: Final = msgspec.json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))
_encoder: Final = msgspec.json.Encoder()


class FieldChange(msgspec.Struct, frozen=True):
    """A field-level change without its entity; made by ``set_field`` and the like.

    Attributes:
        path: Names and indices.
        action: The action.
        value: JSON of the value, if the action has one.
        before: JSON of the field's value before, if given.
    """

    path: tuple[str | int, ...]
    action: Action
    value: bytes | None = None
    before: bytes | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        if not isinstance(self.path, tuple) or path_names(self.path) != self.path:
            raise InvalidChange("path", self.path, _RIGHT)
        if not isinstance(self.action, Action):
            raise InvalidChange(
                "action", self.action, "one of " + ", ".join(action.name for action in Action)
            )
        for name, value in (("value", self.value), ("before", self.before)):
            if value is not None and not isinstance(value, bytes):
                raise InvalidChange(
                    name, value, "JSON as bytes, or None; set_field() and the like make it of a value"
                )
        if self.action is Action.REMOVE and self.value is not None:
            raise InvalidChange("value", self.value, "left out with the action REMOVE")
        if self.action is not Action.REMOVE and self.value is None:
            raise InvalidChange("value", None, f"given with the action {self.action.name}; null is b'null'")

    @property
    def field(self) -> str:
        """The text of the path."""
        text = ""
        for step in self.path:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += "." * bool(text) + (_SPECIAL.sub(r"\\\1", step) or _EMPTY)
        return text

    def sparse(self, value: bytes | None) -> bytes | None:
        """Returns an image that holds nothing but the field."""
        if value is None:
            return None
        for step in reversed(self.path):
            value = b"[%s]" % value if isinstance(step, int) else b"{%s:%s}" % (_encoder.encode(step), value)
        return value


def set_field(path: FieldPath, value: object, *, before: object = _ABSENT) -> FieldChange:
    """Sets a field to a value, or replaces the item at an index of an array.

    Args:
        path: The field.
        value: Its new value; anything that JSON can represent.
        before: Its previous value, if it had one and it is to be recorded.

    Raises:
        InvalidChange: If the path is invalid, or JSON cannot represent a value.
    """
    return _change(path, Action.SET, value, before)


def remove_field(path: FieldPath, *, before: object = _ABSENT) -> FieldChange:
    """Removes a field, or the item at an index of an array, so that later items move up."""
    return _change(path, Action.REMOVE, _ABSENT, before)


def push(path: FieldPath, value: object) -> FieldChange:
    """Appends an item to an array; creates the array if the field is absent."""
    return _change(path, Action.PUSH, value, _ABSENT)


def add(path: FieldPath, value: object) -> FieldChange:
    """Appends an item to an array that is a set, unless the array contains an equal item."""
    return _change(path, Action.ADD, value, _ABSENT)


def discard(path: FieldPath, value: object) -> FieldChange:
    """Removes an item from an array that is a set; no effect if the array does not contain it."""
    return _change(path, Action.DISCARD, value, _ABSENT)


def _change(path: FieldPath, action: Action, value: object, before: object) -> FieldChange:
    return FieldChange(
        path_names(path),
        action,
        None if value is _ABSENT else encode_value("value", value),
        None if before is _ABSENT else encode_value("before", before),
    )


def path_names(path: FieldPath) -> tuple[str | int, ...]:
    """Returns the names and indices of a path; the first is a name.

    Raises:
        InvalidChange: If the path is invalid.
    """
    steps: list[str | int] = []
    if isinstance(path, str):
        at = 0
        while at < len(path) or not steps:
            step = _STEP.match(path, at)
            if step is None or step[1] is None or (step.end() == len(path) and step[3]):
                raise InvalidChange("path", path, _RIGHT)
            name = "" if step[1] == _EMPTY else re.sub(r"\\(.)", r"\1", step[1], flags=re.DOTALL)
            steps.append(name)
            steps += map(int, re.findall(r"\d+", step[2]))
            at = step.end()
    elif isinstance(path, Sequence):
        steps += path
    if not steps or not isinstance(steps[0], str) or not all(_is_step(step) for step in steps):
        raise InvalidChange("path", path, _RIGHT)
    return tuple(steps)


def _is_step(step: object) -> bool:
    if isinstance(step, str):
        return step.encode("utf-8", "replace").decode() == step
    return isinstance(step, int) and not isinstance(step, bool) and step >= 0


def field_value(change: Change, image: Any = _ABSENT) -> Any:
    """Returns the value in the body of a field-level change, or in another of its images.

    Raises:
        ValueError: If the change is not field-level, or its image does not hold the field.
    """
    _check_field_level(change)
    if change.field is None:
        raise ValueError(f"{change!r} is no field-level change")
    value = change.body if image is _ABSENT else image
    try:
        for step in path_names(change.field):
            value = value[0] if isinstance(step, int) else value[step]
    except (LookupError, TypeError):
        raise ValueError(f"{change!r} has no image that holds {change.field}") from None
    return value


def _check_field_level(change: object) -> None:
    if not isinstance(change, Change):
        raise InvalidChange("change", change, "a Change, as subscribers get it")


def apply_field(entity: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Applies a field-level change to an entity; returns a new mapping.

    Raises:
        ValueError: If the change is not field-level, is HEADER only, or does not fit the entity.
    """
    _check_field_level(change)
    if not isinstance(entity, Mapping):
        raise InvalidChange("entity", entity, "a mapping, as the parsed body of a change is")
    if change.field is None or change.action is None:
        raise ValueError(f"{change!r} is no field-level change")
    value = None if change.action is Action.REMOVE else field_value(change)
    whole: dict[str, Any] = deepcopy(dict(entity))
    try:
        _apply(whole, path_names(change.field), change.action, value)
    except (LookupError, TypeError, AttributeError):
        raise ValueError(f"{change!r} does not fit the entity at {change.field}") from None
    return whole


def _act(place: Any, last: str | int, action: Action, value: Any) -> None:
    if isinstance(last, int) and isinstance(place, Mapping):
        raise TypeError
    match action:
        case Action.SET:
            place[last] = value
        case Action.REMOVE:
            del place[last]
        case Action.PUSH:
            _array(place, last).append(value)
        case Action.ADD:
            items = _array(place, last)
            if not any(_equal(item, value) for item in items):
                items.append(value)
        case Action.DISCARD:
            items = _array(place, last)
            items[:] = [item for item in items if not _equal(item, value)]


def _array(place: Any, last: str | int) -> list[Any]:
    found = place.setdefault(last, []) if isinstance(place, dict) else place[last]
    if not isinstance(found, list):
        raise TypeError
    return found


def changed_fields(
    before: Mapping[str, Any] | bytes | None, after: Mapping[str, Any] | bytes | None
) -> tuple[str, ...]:
    """Returns the top-level names whose values differ between two images, sorted.

    Null and absent differ, as do ``1``, ``1.0`` and ``true``. An image that is None has no names.

    Raises:
        InvalidChange: If an image is not a JSON object.
    """
    old, new = _members("before", before), _members("body", after)
    names = old.keys() | new.keys()
    return tuple(sorted(name for name in names if not _equal(old.get(name, _ABSENT), new.get(name, _ABSENT))))


def field_changes(
    before: Mapping[str, Any] | bytes | None, after: Mapping[str, Any] | bytes
) -> tuple[FieldChange, ...]:
    """Computes field-level changes that lead from one image to the other: fields set and removed, items pushed.

    Raises:
        InvalidChange: If an image is not a JSON object.
    """
    found: list[FieldChange] = []
    _compare((), _members("before", before), _members("body", after), found)
    return tuple(found)


def check_follows(before: bytes, after: bytes, changes: Sequence[FieldChange]) -> None:
    """Checks the consistency of a writer's arguments: the field-level changes must lead from one image to the other.

    A reader that applies the changes to the image before must get the image after. No change is added or altered here.

    Raises:
        InvalidChange: If the changes do not lead there, or are invalid.
    """
    for part in changes:
        if not isinstance(part, FieldChange):
            raise InvalidChange("changes", part, "what set_field(), push() and the like returned")
    entity, wanted = _comparable(before), _comparable(after)
    if entity is None or wanted is None:
        return
    for number, part in enumerate(changes):
        here = f"changes[{number}]"
        if part.before is not None and _at(entity, part.path) != exact_value(part.before):
            right = "the value at its path in before, after the changes ahead of it"
            raise InvalidChange(f"{here}.before", part.before, right)
        try:
            _apply(entity, part.path, part.action, None if part.value is None else exact_value(part.value))
        except (LookupError, TypeError, AttributeError):
            right = "a path that before has, after the changes ahead of it"
            raise InvalidChange(here, part.path, right) from None
    for name in {**entity, **wanted}:
        if entity.get(name, _ABSENT) != wanted.get(name, _ABSENT):
            right = f"such as lead from before to body, also in {name!r}"
            raise InvalidChange("changes", f"{len(changes)} changes", right)


def _comparable(image: bytes) -> dict[str, Any] | None:
    """Parses an object with numbers that compare by value; None if it is not an object, or cannot be compared."""
    try:
        found = exact_value(image)
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return found if isinstance(found, dict) else None


def _at(entity: Any, path: tuple[str | int, ...]) -> Any:
    try:
        for step in path:
            entity = entity[step]
    except (LookupError, TypeError):
        return _ABSENT
    return entity


def _apply(entity: dict[str, Any], path: tuple[str | int, ...], action: Action, value: Any) -> None:
    place: Any = entity
    for step in path[:-1]:
        place = place[step]
    _act(place, path[-1], action, value)


def _compare(path: tuple[str | int, ...], old: Any, new: Any, found: list[FieldChange]) -> None:
    for name in sorted(old.keys() | new.keys()):
        here = (*path, name)
        was, now = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if _equal(was, now):
            continue
        if now is _ABSENT:
            found.append(remove_field(here, before=was))
        elif isinstance(was, dict) and isinstance(now, dict):
            _compare(here, was, now, found)
        elif isinstance(was, list) and isinstance(now, list) and _equal(was, now[: len(was)]):
            found.extend(push(here, item) for item in now[len(was) :])
        else:
            found.append(set_field(here, now, before=was))


def _members(parameter: str, image: Mapping[str, Any] | bytes | None) -> dict[str, Any]:
    if image is None:
        return {}
    try:
        parsed = _decoder.decode(encode_json(parameter, image))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidChange(parameter, image, f"JSON that can be compared ({error})") from None
    if not isinstance(parsed, dict):
        raise InvalidChange(parameter, image, "a JSON object, as only an object has fields to be compared")
    return parsed


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; whole numbers, fractions and booleans all differ from each other."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)

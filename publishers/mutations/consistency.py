"""Whether what a writer says of one change agrees: the images before and after it, and field by field what led to it.

Nothing is found out here that was not given; but who replays the field-level changes over the image before must come to the
image after.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from decimal import InvalidOperation
from typing import Any, Final

from publishers.errors import InvalidChange
from publishers.model.change import Action
from publishers.views.paths import exact_value

__all__ = ["Act", "Step", "check_changes"]

Step = tuple[tuple[str | int, ...], Action, bytes | None, bytes | None]
"""Path, action, value and value before of a field-level change."""

Act = Callable[[dict[str, Any], tuple[str | int, ...], Action, Any], None]
"""Does to an entity what a field-level change says."""

_ABSENT: Final = object()
_UNREADABLE: Final = (ValueError, RecursionError, InvalidOperation)


def check_changes(before: bytes, body: bytes, steps: Sequence[Step], act: Act) -> None:
    """Checks that field-level changes lead from one image to the other.

    Raises:
        InvalidChange: If they do not.
    """
    entity, wanted = _fields(before), _fields(body)
    if entity is None or wanted is None:
        return
    entity = deepcopy(entity)
    for number, (path, action, value, was) in enumerate(steps):
        here = f"changes[{number}]"
        if was is not None and _at(entity, path) != exact_value(was):
            raise InvalidChange(
                f"{here}.before", was, "the value at its path in before, after the changes ahead of it"
            )
        try:
            act(entity, path, action, None if value is None else exact_value(value))
        except (LookupError, TypeError, AttributeError):
            raise InvalidChange(here, path, "a path that before has, after the changes ahead of it") from None
    for name in {**entity, **wanted}:
        if entity.get(name, _ABSENT) != wanted.get(name, _ABSENT):
            raise InvalidChange(
                "changes", f"{len(steps)} changes", f"such as lead from before to body, also in {name!r}"
            )


def _fields(image: bytes) -> dict[str, Any] | None:
    """The fields of an object, with numbers that compare by value; None if it is none, or cannot be compared."""
    try:
        found = exact_value(image)
    except _UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def _at(entity: Any, path: tuple[str | int, ...]) -> Any:
    try:
        for step in path:
            entity = entity[step]
    except (LookupError, TypeError):
        return _ABSENT
    return entity

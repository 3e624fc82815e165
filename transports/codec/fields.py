"""Validation of single fields of client messages."""

from collections.abc import Mapping
from typing import Any, TypeVar

from transports.errors import InvalidDemand, InvalidRequest
from transports.limits import CREDITS_MAX

__all__ = ["checked_credits", "typed", "whole", "word"]

_T = TypeVar("_T")


def typed(payload: Mapping[str, Any], name: str, kind: type[_T], right: str) -> _T | None:
    """Returns a field of the given type, or None if it is absent.

    Raises:
        InvalidRequest: If the field has another type.
    """
    value = payload.get(name)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(name, value, right)
    return value


def word(payload: Mapping[str, Any], name: str, default: str, words: list[str]) -> str:
    """Returns a field with one of the given values, or the default if it is absent.

    Raises:
        InvalidRequest: If the field has another value.
    """
    value = payload.get(name)
    if value is None:
        return default
    if not isinstance(value, str) or value not in words:
        raise InvalidRequest(name, value, "one of: " + ", ".join(words))
    return value


def whole(path: str, value: object, low: int, high: int, default: int | None = None) -> int:
    """Checks a whole number within bounds.

    Raises:
        InvalidRequest: If the value is not a whole number within the bounds.
    """
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(path, value, f"a whole number from {low} to {high}")
    return value


def checked_credits(path: str, value: object) -> int:
    """Checks credits.

    Raises:
        InvalidRequest: If the value is not a whole number.
        InvalidDemand: If the value is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(path, value, f"a whole number from 0 to {CREDITS_MAX}")
    if not 0 <= value <= CREDITS_MAX:
        raise InvalidDemand(path, value, 0, CREDITS_MAX)
    return value

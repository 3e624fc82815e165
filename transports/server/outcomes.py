"""Outcomes of work on another thread: a call returns the result, or raises the error."""

from collections.abc import Callable
from typing import NoReturn

__all__ = ["raising"]


def raising(error: Exception) -> Callable[[], NoReturn]:
    """Returns the outcome of work that has failed or was not begun."""

    def outcome() -> NoReturn:
        raise error

    return outcome

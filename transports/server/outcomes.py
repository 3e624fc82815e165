"""Outcomes of work that is done elsewhere: each is called for what was returned, and raises what was raised."""

from collections.abc import Callable
from typing import NoReturn

__all__ = ["raising"]


def raising(error: Exception) -> Callable[[], NoReturn]:
    """The outcome of work that has failed, or was not begun."""

    def outcome() -> NoReturn:
        raise error

    return outcome

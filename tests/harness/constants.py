"""Sets a constant of the code for one test: a bound that no user has a reason to set, and that a test cannot reach as it is."""

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["set_constant"]


def set_constant(patch: pytest.MonkeyPatch, *place_and_value: Any) -> None:
    """As ``patch.setattr``, for a module and the name of a constant of it, or for its dotted name; undone with ``patch``."""
    setting: Callable[..., None] = patch.setattr
    setting(*place_and_value)

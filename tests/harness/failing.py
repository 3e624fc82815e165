"""Makes one step of the code fail: what a disk, a peer or a library may do at any time, and does not do when a test asks."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

__all__ = ["failing"]


def failing(patch: pytest.MonkeyPatch, *place_and_error: Any) -> None:
    """Raises the error, the last argument, whenever what is at the place is called; a place is as for ``patch.setattr``."""
    *place, error = place_and_error

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    setting: Callable[..., None] = patch.setattr
    setting(*place, fail)

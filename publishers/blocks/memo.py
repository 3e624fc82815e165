"""Where a block keeps what was made of it, by view and form, within a bound."""

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["SHELVES_MAX", "Shelf", "Shelves"]

SHELVES_MAX: Final = 32
"""Most views, of each form in which changes are handed on, for which a block keeps what was made."""


class Shelf:
    """What was made of a block for one view and one form.

    Attributes:
        nbytes: Its weight, roughly.
    """

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes = 0


_Shelf = TypeVar("_Shelf", bound=Shelf)


class Shelves:
    """The shelves of a block; beyond ``SHELVES_MAX`` the oldest goes.

    So a block weighs at most so many times what one view of it weighs, however many views there are. Subscribers read a
    block at about the same time, so the oldest shelf is the one that is least likely to be needed again.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[object, Shelf] = {}

    def take(self, key: object, make: Callable[[], _Shelf]) -> tuple[_Shelf, int]:
        """The shelf of a key, made if need be, and the weight of those that had to go."""
        gone = 0
        found = self._kept.get(key)
        if found is None:
            # Two threads may both get here; setdefault lets one of their shelves win.
            found = self._kept.setdefault(key, make())
            while len(self._kept) > SHELVES_MAX:
                oldest = self._kept.pop(list(self._kept)[0], None)  # noqa: RUF015 - an iterator would see other threads
                gone += 0 if oldest is None else oldest.nbytes
        return found, gone  # type: ignore[return-value]  # a key belongs to one kind of shelf

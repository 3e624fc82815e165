"""What a block keeps of what was made of it, by view and form."""

from typing import Final

__all__ = ["SHELVES_MAX", "Shelf"]

SHELVES_MAX: Final = 32
"""Most views, of each form in which changes are handed on, for which a block keeps what was made.

So a block weighs at most so many times what one view of it weighs, however many views there are.
"""


class Shelf:
    """What was made of a block for one view and one form.

    Attributes:
        nbytes: Its weight, roughly.
    """

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes = 0

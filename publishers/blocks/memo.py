"""The cache of data derived from a block, by view and form."""

from typing import Final

__all__ = ["SHELVES_MAX", "Shelf"]

SHELVES_MAX: Final = 32
"""Most views, for each form in which changes are delivered, whose derived data a block caches.

This bounds the memory of a block to that multiple of one view's, however many views there are.
"""


class Shelf:
    """The data derived from a block for one view and one form.

    Attributes:
        nbytes: Its approximate bytes.
    """

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes: int = 0

"""Projections: the fields of an entity that a subscriber sees."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Self

from publishers.errors import InvalidOption
from publishers.views.paths import Fields, Path, collected, fields_of, items_of, parse_path, path_text, write

__all__ = ["Projection"]


class _Node:
    """A name on a path: shown whole, or only the names below it."""

    __slots__ = ("children", "whole")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.whole = False


@dataclass(frozen=True, slots=True)
class Projection:
    """Paths of an entity to show; everything else is left out.

    The order of the paths does not matter, and a path that another one covers is dropped, so equal projections are equal
    objects. Fields keep the order in which they were written. A projection without any path shows nothing; it arises
    where two projections have nothing in common.

    Attributes:
        paths: The paths, sorted, none below another.
    """

    paths: tuple[Path, ...]
    _tree: _Node = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shortest: list[Path] = []
        for path in sorted(set(self.paths)):  # a path sorts right before the paths below it
            if not shortest or path[: len(shortest[-1])] != shortest[-1]:
                shortest.append(path)
        tree = _Node()
        for path in shortest:
            node = tree
            for name in path:
                node = node.children.setdefault(name, _Node())
            node.whole = True
        object.__setattr__(self, "paths", tuple(shortest))
        object.__setattr__(self, "_tree", tree)

    @classmethod
    def of(cls, paths: Collection[str]) -> Self:
        """Makes a projection onto paths.

        Raises:
            InvalidOption: If a path is invalid, or there is none.
        """
        found = []
        for place, text in enumerate(collected("fields", paths)):
            root, path = parse_path(f"fields[{place}]", text)
            if root:
                right = "a path into the entity; a name that begins with $ is written \\$"
                raise InvalidOption(f"fields[{place}]", text, right)
            found.append(path)
        return cls(tuple(found))

    def to_json(self) -> list[str]:
        """Returns the paths in their wire form."""
        return [path_text(path) for path in self.paths]

    def shows(self, path: Path, *, wholly: bool = False) -> bool:
        """Whether the value at a path is shown at least in part; with ``wholly``, in full."""
        node = self._tree
        for name in path:
            if node.whole:
                return True
            below = node.children.get(name)
            if below is None:
                return False
            node = below
        return node.whole or not wholly

    def trim(self, text: bytes) -> bytes:
        """Returns an image with nothing but the paths; null if it has none of them.

        Raises:
            ValueError: If it is not JSON.
        """
        return _trim(text, self._tree) or b"null"

    def trim_fields(self, fields: Fields) -> Fields:
        """Returns the fields of a split image that the paths show.

        Raises:
            ValueError: If a value is not JSON.
        """
        return _trim_fields(fields, self._tree)


def _trim(text: bytes, node: _Node) -> bytes | None:
    if node.whole:
        return text
    fields = fields_of(text)
    if fields is not None:
        return write(_trim_fields(fields, node))
    items = items_of(text)
    if items is None:
        return None
    return write(kept for item in items if (kept := _trim(bytes(item), node)) is not None)


def _trim_fields(fields: Fields, node: _Node) -> Fields:
    found: dict[str, bytes] = {}
    for name, value in fields.items():
        below = node.children.get(name)
        kept = None if below is None else _trim(bytes(value), below)
        if kept is not None:
            found[name] = kept
    return found

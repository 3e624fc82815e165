"""Views: how much of a change a subscriber sees, with which images, and through which lenses."""

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, Protocol, Self, TypeVar

import msgspec

from publishers.errors import InvalidOption
from publishers.lossless import text_integers
from publishers.views.masking import Mask, Rule
from publishers.views.projection import Projection

__all__ = ["Content", "Images", "Integers", "Lens", "Outsiders", "View"]

_Member = TypeVar("_Member", bound=enum.Enum)


class Content(enum.Enum):
    """How much of a change is delivered: the operation and the key, or the bodies too."""

    HEADER = "HEADER"
    BODY = "BODY"


class Images(enum.Enum):
    """Which images of the entity a change has, if its content is BODY.

    Images that a mode needs and the log lacks are named in ``Change.lacking``; nothing replaces them.
    """

    WRITTEN = "WRITTEN"
    """The images as the writer stored them: the after image, and the before image if there is one."""
    CHANGE = "CHANGE"
    """The changed fields of the after image; ``changed`` lists their names, removed ones included."""
    AFTER = "AFTER"
    """The whole after image."""
    ALL = "ALL"
    """The whole after image and the whole before image."""
    CHANGED_WITH_OLD = "CHANGED_WITH_OLD"
    """As CHANGE, with the same fields of the before image; for a removed entity the whole before image."""
    KEYS_ONLY = "KEYS_ONLY"
    """The identity of the entity only: no image, no names of fields, no attached meta."""
    NOTHING = "NOTHING"
    """No image: as with HEADER."""


class Integers(enum.Enum):
    """How whole numbers beyond 2^53 appear in the JSON of images and of attached meta.

    TEXT is for readers that keep numbers in doubles, such as JavaScript, and would round them. Numbers within 2^53
    are numbers either way.
    """

    NUMBER = "NUMBER"
    TEXT = "TEXT"


# How much of the after image and of the before image a mode shows: 0 nothing, 1 the changed fields, 2 the whole.
_EXTENT: Final = {
    Images.WRITTEN: (2, 2),
    Images.ALL: (2, 2),
    Images.AFTER: (2, 0),
    Images.CHANGED_WITH_OLD: (1, 1),
    Images.CHANGE: (1, 0),
    Images.NOTHING: (0, 0),
}
_WITH_EXTENT: Final = {extent: images for images, extent in _EXTENT.items()}


class Outsiders(Protocol):
    """Tells which changes leave their entity outside what a subscriber keeps; hashable, and equal if it tells the same."""

    def outside(self, block: Any, index: int, /) -> bool:
        """Whether the change at an index of a block does."""
        ...


class Lens(msgspec.Struct, frozen=True):
    """A projection, followed by a mask.

    Attributes:
        fields: The paths that are shown; None for all.
        mask: Replacements for values; None to show all values.
    """

    fields: Projection | None = None
    mask: Mask | None = None


def _member(parameter: str, value: object, kind: type[_Member]) -> _Member:
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(parameter, value, "one of " + ", ".join(one.name for one in kind)) from None


class View(msgspec.Struct, frozen=True, cache_hash=True):
    """How one subscriber sees a change; part of the key of everything that subscribers share.

    Equal views are equal objects, whatever the order of their paths. Use ``View.of`` to make one with a
    projection or a mask. Lenses apply to entities: key and images of changes of other areas are shown unchanged.
    TRANSACTION events have no images and no fields: of a view, only ``content`` and a mask of ``$meta`` apply to them.

    Attributes:
        content: HEADER leaves out body and images.
        images: The images to show if ``content`` is BODY.
        lenses: Applied one after the other to images, names of changed fields, key and attached meta.
        integers: Whether whole numbers beyond 2^53 are numbers or text, in changes of every area; applied after the lenses.
        apart: Whether to show a change as if it were alone, to a subscriber from which other changes are hidden: ``count`` is
            the least that agrees with the next position, TRANSACTION events have no bytes, and the other half of a key change
            is not named.
        outsiders: Tells which changes leave their entity outside what the subscriber keeps; they are shown as REMOVE. None for no
            such changes.
    """

    content: Content = Content.HEADER
    images: Images = Images.WRITTEN
    lenses: tuple[Lens, ...] = ()
    integers: Integers = Integers.NUMBER
    apart: bool = False
    outsiders: Outsiders | None = None

    def __post_init__(self) -> None:
        # Compared by identity from here on: a value that is no member of its enum would count as the widest one.
        for name, value, kind in (
            ("content", self.content, Content),
            ("images", self.images, Images),
            ("integers", self.integers, Integers),
        ):
            if type(value) is not kind:
                msgspec.structs.force_setattr(self, name, _member(name, value, kind))
        if self.content is Content.HEADER and self.images is not Images.KEYS_ONLY:
            # There are no images, so all modes except KEYS_ONLY show the same.
            msgspec.structs.force_setattr(self, "images", Images.WRITTEN)
        lenses: object = self.lenses
        for lens in lenses if isinstance(lenses, tuple) else (None,):
            if not isinstance(lens, Lens):
                raise InvalidOption(
                    "lenses", lenses, "a tuple of Lens; View.of() makes it of fields and mask"
                )

    @classmethod
    def of(
        cls,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        *,
        fields: "Projection | Collection[str] | None" = None,
        mask: "Mask | Mapping[str, Rule | str | Mapping[str, Any]] | None" = None,
        integers: Integers | Literal["NUMBER", "TEXT"] = Integers.NUMBER,
    ) -> Self:
        """Makes a view.

        Args:
            content: HEADER or BODY.
            images: The images to show with BODY.
            fields: Paths to show, such as ``customer.name``; None for all.
            mask: Replacement for the value of each path: a text, or a ``Rule``.
            integers: Whether whole numbers beyond 2^53 are numbers or text.

        Raises:
            InvalidOption: If an argument is invalid.
        """
        if fields is not None and not isinstance(fields, Projection):
            fields = Projection.of(fields)
        if mask is not None and not isinstance(mask, Mask):
            mask = Mask.of(mask) if mask != {} else None
        lenses = () if fields is None and mask is None else (Lens(fields, mask),)
        return cls(content, images, lenses, integers)  # type: ignore[arg-type]  # it makes a member of a text

    @property
    def plain(self) -> bool:
        """Whether it shows stored data unchanged."""
        shown = self.images is Images.WRITTEN and not self.lenses and self.integers is Integers.NUMBER
        return shown and not self.apart and self.outsiders is None

    def render_integers(self, json: bytes) -> bytes:
        """Returns JSON with whole numbers in the form that the view asks for."""
        return json if self.integers is Integers.NUMBER else text_integers(json)

    def within(self, widest: "View") -> "View":
        """Restricts this view to what another one shows: the result shows nothing that the other hides, whatever this view asks for.

        The lenses of the other come first, so a mask of this view receives masked values, and a rule such as ``Hash``
        with a key of the subscriber's own reveals nothing about hidden values. Integers are text if either view says so.
        """
        if not isinstance(widest, View):
            raise InvalidOption("widest", widest, "a View")
        content = self.content if widest.content is Content.BODY else widest.content
        if Images.KEYS_ONLY in (self.images, widest.images):
            images = Images.KEYS_ONLY
        else:
            mine, other = _EXTENT[self.images], _EXTENT[widest.images]
            least = (min(mine[0], other[0]), min(mine[1], other[1]))
            images = self.images if least == mine else _WITH_EXTENT[least]
        integers = self.integers if widest.integers is Integers.NUMBER else widest.integers
        apart = self.apart or widest.apart
        return View(content, images, (*widest.lenses, *self.lenses), integers, apart, self.outsiders)

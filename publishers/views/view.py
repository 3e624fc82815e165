"""How one subscriber sees changes: how much of them, which images, and through which lenses."""

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from publishers.errors import InvalidOption
from publishers.lossless import text_integers
from publishers.views.masking import Mask, Rule
from publishers.views.projection import Projection

__all__ = ["Content", "Images", "Integers", "Lens", "View"]

_Member = TypeVar("_Member", bound=enum.Enum)


class Content(enum.Enum):
    """How much of a change is delivered: what happened to which key, or the bodies too."""

    HEADER = "HEADER"
    BODY = "BODY"


class Images(enum.Enum):
    """Which images of the entity a change carries, if its content is BODY.

    What a mode needs and the log does not hold is named in ``Change.lacking``; nothing is shown in its place.
    """

    WRITTEN = "WRITTEN"
    """What the writer stored, as it is: the after image, and the before image if there is one."""
    CHANGE = "CHANGE"
    """Of the after image the fields that changed, and in ``changed`` their names, removed ones included."""
    AFTER = "AFTER"
    """The whole after image."""
    ALL = "ALL"
    """The whole after image and the whole before image."""
    CHANGED_WITH_OLD = "CHANGED_WITH_OLD"
    """As CHANGE, and of the before image the same fields; of a removed entity the whole before image."""
    KEYS_ONLY = "KEYS_ONLY"
    """Which entity it is and nothing of it: no image, no names of fields, nothing that was attached."""
    NOTHING = "NOTHING"
    """No image: a change as HEADER shows it."""


class Integers(enum.Enum):
    """How whole numbers beyond 2^53 appear in the JSON of images and of what was attached.

    TEXT is for readers that keep numbers in doubles, JavaScript for instance, and would round them. What is within 2^53
    is a number either way.
    """

    NUMBER = "NUMBER"
    TEXT = "TEXT"


# How much of the after image and of the before image a mode shows: 0 nothing, 1 what changed, 2 the whole.
_EXTENT: Final = {
    Images.WRITTEN: (2, 2),
    Images.ALL: (2, 2),
    Images.AFTER: (2, 0),
    Images.CHANGED_WITH_OLD: (1, 1),
    Images.CHANGE: (1, 0),
    Images.NOTHING: (0, 0),
}
_WITH_EXTENT: Final = {extent: images for images, extent in _EXTENT.items()}


class Lens(msgspec.Struct, frozen=True):
    """What is left of an entity: a projection, and after it a mask.

    Attributes:
        fields: The paths that are shown; None for all.
        mask: What stands in place of values; None for the values themselves.
    """

    fields: Projection | None = None
    mask: Mask | None = None


def _member(parameter: str, value: object, kind: type[_Member]) -> _Member:
    if type(value) is kind:
        return value
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(parameter, value, "one of " + ", ".join(one.name for one in kind)) from None


class View(msgspec.Struct, frozen=True, cache_hash=True):
    """How one subscriber sees a change; part of every key under which anything is shared.

    Equal views, in whatever order their paths were given, are equal objects. Use ``View.of`` to make one with a
    projection or a mask. These are for entities: key and images of changes of other areas are shown as they are.
    TRANSACTION events have no images and no fields: of a view, only ``content`` and a mask of ``$meta`` concern them.

    Attributes:
        content: HEADER leaves out body and images.
        images: Which images there are when ``content`` is BODY.
        lenses: What images, names of changed fields, key and attachments are seen through, one after the other.
        integers: Whether whole numbers beyond 2^53 are numbers or text, in changes of every area; after the lenses.
        apart: Whether a change is shown as if it stood alone, for those from whom other changes are hidden: ``count`` is the
            least that agrees with the position behind the change, TRANSACTION events tell no bytes, and the other half of a key
            change is not named.
    """

    content: Content = Content.HEADER
    images: Images = Images.WRITTEN
    lenses: tuple[Lens, ...] = ()
    integers: Integers = Integers.NUMBER
    apart: bool = False

    def __post_init__(self) -> None:
        # Compared by identity from here on: what is no member of its enum would be shown as the widest one.
        msgspec.structs.force_setattr(self, "content", _member("content", self.content, Content))
        msgspec.structs.force_setattr(self, "images", _member("images", self.images, Images))
        msgspec.structs.force_setattr(self, "integers", _member("integers", self.integers, Integers))
        if self.content is Content.HEADER and self.images is not Images.KEYS_ONLY:
            # There are no images, so all modes but this one show the same.
            msgspec.structs.force_setattr(self, "images", Images.WRITTEN)
        if not isinstance(self.lenses, tuple) or not all(isinstance(lens, Lens) for lens in self.lenses):
            raise InvalidOption(
                "lenses", self.lenses, "a tuple of Lens; View.of() makes it of fields and mask"
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
        """A view.

        Args:
            content: HEADER or BODY.
            images: Which images there are with BODY.
            fields: Paths that are shown, such as ``customer.name``; None for all.
            mask: Of each path what is shown in place of its value: a text, or a ``Rule``.
            integers: Whether whole numbers beyond 2^53 are numbers or text.

        Raises:
            InvalidOption: If something is no content, no images, no integers, not a path, or not a rule.
        """
        if fields is not None and not isinstance(fields, Projection):
            fields = Projection.of(fields)
        if mask is not None and not isinstance(mask, Mask):
            mask = Mask.of(mask) if mask != {} else None
        lenses = () if fields is None and mask is None else (Lens(fields, mask),)
        return cls(content, images, lenses, _member("integers", integers, Integers))

    @property
    def plain(self) -> bool:
        """Whether it shows what is stored as it is stored."""
        shown = self.images is Images.WRITTEN and not self.lenses and self.integers is Integers.NUMBER
        return shown and not self.apart

    def tell(self, json: bytes) -> bytes:
        """JSON with its whole numbers as they are wanted."""
        return json if self.integers is Integers.NUMBER else text_integers(json)

    def within(self, widest: "View") -> "View":
        """This view of what another one shows: it sees nothing that the other does not, whatever it asks for.

        The lenses of the other come first, so a mask of this view is given masked values, and a rule such as ``Hash``
        with a key of the subscriber's own reveals nothing of what lies behind. Integers are text if either wants it.
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
        return View(content, images, (*widest.lenses, *self.lenses), integers, apart)

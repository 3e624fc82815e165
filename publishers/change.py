"""What a change is: one event of a log, immutable, with a position of its own."""

import enum
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from zlib import crc32

import msgspec

from publishers.lossless import flaw_of
from publishers.masking import Mask, Rule
from publishers.position import Position
from publishers.projection import Projection

__all__ = ["Action", "Area", "Change", "Content", "Images", "Lens", "Operation", "View", "flaw_in", "time_of"]


class Area(enum.IntEnum):
    """What part of the system a change concerns. The numbers are on disk and are never reused."""

    DATA = 1
    SCHEMA = 2
    INFRASTRUCTURE = 3
    ENGINE = 4
    HOST = 5


class Operation(enum.IntEnum):
    """What happened. The numbers are on disk and are never reused."""

    UPSERT = 1
    REMOVE = 2
    TRANSACTION = 3
    TRUNCATE = 4
    EXPIRE = 5
    READ = 6


class Action(enum.Enum):
    """What a field-level change does to the field that it names."""

    SET = "SET"
    REMOVE = "REMOVE"
    PUSH = "PUSH"
    ADD = "ADD"
    DISCARD = "DISCARD"


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


class View(msgspec.Struct, frozen=True, cache_hash=True):
    """How one subscriber sees a change; part of every key under which anything is shared.

    Equal views, in whatever order their paths were given, are equal objects. Use ``View.of`` to make one with a
    projection or a mask. These are for entities: key and images of changes of other areas are shown as they are.
    TRANSACTION events have no images and no fields: of a view, only ``content`` and a mask of ``$meta`` concern them.

    Attributes:
        content: HEADER leaves out body and images.
        images: Which images there are when ``content`` is BODY.
        lenses: What images, names of changed fields, key and attachments are seen through, one after the other.
    """

    content: Content = Content.HEADER
    images: Images = Images.WRITTEN
    lenses: tuple[Lens, ...] = ()

    def __post_init__(self) -> None:
        if self.content is Content.HEADER and self.images is not Images.KEYS_ONLY:
            # There are no images, so all modes but this one show the same.
            msgspec.structs.force_setattr(self, "images", Images.WRITTEN)

    @classmethod
    def of(
        cls,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        *,
        fields: "Projection | Collection[str] | None" = None,
        mask: "Mask | Mapping[str, Rule | str | Mapping[str, Any]] | None" = None,
    ) -> Self:
        """A view.

        Args:
            content: HEADER or BODY.
            images: Which images there are with BODY.
            fields: Paths that are shown, such as ``customer.name``; None for all.
            mask: Of each path what is shown in place of its value: a text, or a ``Rule``.

        Raises:
            InvalidOption: If something is not a path, or not a rule.
        """
        if fields is not None and not isinstance(fields, Projection):
            fields = Projection.of(fields)
        if mask is not None and not isinstance(mask, Mask):
            mask = Mask.of(mask) if mask != {} else None
        lenses = () if fields is None and mask is None else (Lens(fields, mask),)
        return cls(Content(content), Images(images), lenses)

    @property
    def plain(self) -> bool:
        """Whether it shows what is stored as it is stored."""
        return self.images is Images.WRITTEN and not self.lenses

    def within(self, widest: "View") -> "View":
        """This view of what another one shows: it sees nothing that the other does not, whatever it asks for.

        The lenses of the other come first, so a mask of this view is given masked values, and a rule such as ``Hash``
        with a key of the subscriber's own reveals nothing of what lies behind.
        """
        content = self.content if widest.content is Content.BODY else widest.content
        if Images.KEYS_ONLY in (self.images, widest.images):
            images = Images.KEYS_ONLY
        else:
            mine, other = _EXTENT[self.images], _EXTENT[widest.images]
            least = (min(mine[0], other[0]), min(mine[1], other[1]))
            images = self.images if least == mine else _WITH_EXTENT[least]
        return View(content, images, (*widest.lenses, *self.lenses))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(microseconds: int) -> datetime:
    """The moment ``microseconds`` after the Unix epoch, in UTC and without rounding."""
    return _EPOCH + timedelta(microseconds=microseconds)


def flaw_in(body: bytes | None, before: bytes | None) -> str | None:
    """What keeps images from being rendered; None if nothing does."""
    for name, image in (("body", body), ("before", before)):
        if image is not None and (flaw := flaw_of(image)) is not None:
            return f"{name}: {flaw}"
    return None


class Change(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One event of a change log.

    What does not apply is None. ``body``, ``before`` and ``meta`` are JSON; they are kept as the bytes they arrived as
    and parsed each time the property is read, so keep the value if you need it twice.

    Attributes:
        version: Version of the transaction.
        index: Place in the transaction; 0 is the leading TRANSACTION event.
        count: Changes of the whole transaction, the TRANSACTION event included.
        timestamp: Commit time of the transaction, UTC; not part of equality.
        area: DATA, SCHEMA, INFRASTRUCTURE, ENGINE or HOST.
        operation: UPSERT, REMOVE, TRANSACTION, TRUNCATE, EXPIRE or READ.
        entity_type: Kind of the entity.
        key: Key of the entity. Bytes that are not UTF-8 appear as lone surrogates (PEP 383).
        body_bytes: JSON of the entity after the change.
        before_bytes: JSON of the entity before the change.
        changed: Names of the fields that changed.
        schema_version: Version of the schema in force.
        entry_version: Version of the entity, for conflict resolution.
        origin: Where the change was first made.
        meta_bytes: JSON of what the application attached: to the transaction (index 0) or to the change.
        expires_at: When the entity expires, or expired.
        linked: Of the two halves of a key change, the key of the other.
        field: Path of the one field that a field-level change concerns, such as ``lines[0].price``; None for a change of
            the entity as a whole. Its body and before image hold nothing but that field.
        action: What it does to the field.
        error_text: What could not be read of the change as it is stored; see ``error``.
        lacking: What the images that were asked for need and the log does not hold, or not as JSON that can be read:
            of ``body``, ``before`` and ``changed``; empty if nothing.
    """

    version: int
    index: int
    count: int
    timestamp: datetime
    area: Area
    operation: Operation
    entity_type: str | None = None
    key: str | None = None
    body_bytes: bytes | None = None
    before_bytes: bytes | None = None
    changed: tuple[str, ...] | None = None
    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    meta_bytes: bytes | None = None
    expires_at: datetime | None = None
    linked: str | None = None
    field: str | None = None
    action: Action | None = None
    error_text: str | None = None
    lacking: tuple[str, ...] = ()

    @property
    def body(self) -> Any:
        """The entity after the change, parsed."""
        return None if self.body_bytes is None else msgspec.json.decode(self.body_bytes)

    @property
    def before(self) -> Any:
        """The entity before the change, parsed."""
        return None if self.before_bytes is None else msgspec.json.decode(self.before_bytes)

    @property
    def meta(self) -> Any:
        """What the application attached, parsed."""
        return None if self.meta_bytes is None else msgspec.json.decode(self.meta_bytes)

    @property
    def error(self) -> str | None:
        """What of this change cannot be rendered, and why; None for a sound one. Its other fields can be used."""
        if self.error_text is not None:
            return self.error_text
        return flaw_in(self.body_bytes, self.before_bytes)

    def partition(self, partitions: int) -> int:
        """A number from 0 to below ``partitions`` that is the same for all changes of a key.

        It is the CRC-32 of the key's bytes modulo ``partitions``, so that any program can tell it; 0 without a key.

        Raises:
            ValueError: If ``partitions`` is not at least 1.
        """
        if partitions < 1:
            raise ValueError(f"partitions is {partitions}, but must be at least 1")
        return 0 if self.key is None else crc32(self.key.encode("utf-8", "surrogateescape")) % partitions

    @property
    def position(self) -> Position:
        """Where this change is."""
        return Position(self.version, self.index)

    @property
    def after(self) -> Position:
        """The position after this change: subscribe there to go on behind it."""
        return (
            Position(self.version + 1, 0)
            if self.index + 1 == self.count
            else Position(self.version, self.index + 1)
        )

    def _identity(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "timestamp")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.version, self.index, self.key))

    def __repr__(self) -> str:
        what = f"{self.operation.name} {self.entity_type}" if self.entity_type else self.operation.name
        key = f" {self.key}" if self.key is not None else ""
        return f"<Change {self.version}:{self.index} {what}{key}>"

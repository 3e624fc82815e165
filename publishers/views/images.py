"""The images of a change as a view renders them: image modes, projections and masks, applied to JSON as text.

Bodies are parsed only if a mode compares fields or a lens needs them, and the parsed form of a change serves all
views. An image that is not readable JSON is not shown through a lens, and is named in ``lacking``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from publishers.model.change import Operation
from publishers.model.fields import Field, FieldKind
from publishers.views.paths import Fields, Path, exact_value, parse_path, write
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, Lens, View

__all__ = [
    "Name",
    "ShownImages",
    "Stored",
    "show",
    "show_field",
    "show_key",
    "show_meta",
    "shows",
    "unreadable",
]

Name = Literal["body", "before"]

_UPSERTS: Final = frozenset({Operation.UPSERT, Operation.READ})
_REMOVALS: Final = frozenset({Operation.REMOVE, Operation.EXPIRE})
_DIFFERENCES: Final = frozenset({Images.CHANGE, Images.CHANGED_WITH_OLD})
_NULL: Final = b"null"
_ESCAPED: Final = re.compile(r"\\.|\[\d+\]|.", re.DOTALL)
_names: Final = msgspec.json.Decoder(list[str])
_encoder: Final = msgspec.json.Encoder()
unreadable: Final = (ValueError, RecursionError)
"""Errors of parsing text that is not JSON, or is nested too deeply. msgspec's errors are ValueErrors."""


class Stored(Protocol):
    """A stored change. Its parts are read on demand."""

    @property
    def operation(self) -> Operation:
        """The operation."""
        ...

    @property
    def entity(self) -> bool:
        """Whether it is a change of an entity. Lenses apply to entities only; a schema or a log has other fields."""
        ...

    @property
    def partial(self) -> bool:
        """Whether it is a field-level change, whose images hold nothing but that field."""
        ...

    @property
    def changed(self) -> bytes | None:
        """JSON list of the names of changed fields."""
        ...

    def image(self, name: Name, /) -> bytes | None:
        """Returns the JSON after or before the change."""
        ...

    def parsed(self, name: Name, /) -> Fields | None:
        """Returns the fields of an image, split once for all views; None if it is not an object.

        Raises:
            ValueError, RecursionError: If it is not JSON, or nested too deeply.
        """
        ...


class ShownImages(NamedTuple):
    """The rendered parts of a change; their meanings are those of ``Change``."""

    body: bytes | None = None
    before: bytes | None = None
    changed: bytes | None = None
    lacking: tuple[str, ...] = ()

    def with_integers(self, view: View) -> "ShownImages":
        """Returns the images with whole numbers in the form that the view asks for."""
        if view.integers is Integers.NUMBER:
            return self
        body, before = (
            None if text is None else view.render_integers(text) for text in (self.body, self.before)
        )
        return self._replace(body=body, before=before)


def show(stored: Stored, view: View) -> ShownImages:
    """Renders the images of a change that is not a TRANSACTION event."""
    if view.images is Images.KEYS_ONLY:
        return ShownImages()
    if view.lenses and not stored.entity:
        view = View(view.content, view.images)
    if view.content is Content.HEADER or view.images is Images.NOTHING:
        return ShownImages(changed=_visible(stored.changed, view.lenses))
    mode = view.images
    if mode in _DIFFERENCES:
        if stored.partial:
            mode = Images.AFTER if mode is Images.CHANGE else Images.ALL
        elif stored.operation is Operation.UPSERT:
            return _difference(stored, view)
    lacking: list[str] = []
    images: dict[Name, bytes | None] = {"body": None, "before": None}
    for name in _wanted(stored, mode):
        try:
            images[name] = _through(stored, name, view.lenses)
        except unreadable:
            lacking.append(name)
        else:
            if images[name] is None and _expected(stored, name, mode):
                lacking.append(name)
    return ShownImages(
        images["body"], images["before"], _visible(stored.changed, view.lenses), tuple(lacking)
    )


def show_key(key: str, view: View) -> str | None:
    """Renders a key."""
    shown: str | None = key
    for lens in view.lenses:
        if lens.mask is not None and shown is not None:
            shown = lens.mask.key(shown)
    return shown


def shows(field: Field) -> Callable[[Any, View], Any] | None:
    """Returns the function by which a view renders a field that is attached to changes; None if each view shows it as it is."""
    show = _SHOWS.get(field.kind)
    if field.apart:
        return show
    return lambda value, view: None if view.apart else value if show is None else show(value, view)


def show_field(field: str, view: View) -> str | None:
    """Renders the path of a field-level change, such as ``lines[0].price``; None if the view hides the field."""
    path, place = [""], 0
    for character in _ESCAPED.findall(field):
        if character[0] == "\\":
            path[place] += character[1:].replace("-", "")  # \\- is the empty name
        elif character == ".":
            path.append("")
            place += 1
        elif character[0] != "[":
            path[place] += character
    return field if all(_may_name(lens, tuple(path)) for lens in view.lenses) else None


_SHOWS: Final[Mapping[FieldKind, Callable[[str, View], str | None]]] = {
    FieldKind.KEY: show_key,
    FieldKind.PATH: show_field,
}


def show_meta(meta: bytes, view: View, *, transaction: bool) -> bytes:
    """Renders the meta attached to a change or to a transaction; empty for none."""
    if view.images is Images.KEYS_ONLY and not transaction:
        return b""
    for lens in view.lenses:
        if lens.mask is not None and meta:
            try:
                meta = lens.mask.meta(meta) or b""
            except unreadable:
                meta = b""
    return meta


def _wanted(stored: Stored, images: Images) -> tuple[Name, ...]:
    """Returns the images that are shown whole."""
    if images in _DIFFERENCES:
        if stored.operation is Operation.READ:
            return ("body",)
        removed = images is Images.CHANGED_WITH_OLD and stored.operation in _REMOVALS
        return ("before",) if removed else ()
    return ("body",) if images is Images.AFTER else ("body", "before")


def _expected(stored: Stored, name: Name, images: Images) -> bool:
    """Whether a change of this kind has the image, so that it counts as lacking if the log does not hold it."""
    if images is Images.WRITTEN or stored.partial:
        return False
    return stored.operation in (_UPSERTS if name == "body" else _REMOVALS | {Operation.UPSERT})


def _through(stored: Stored, name: Name, lenses: Sequence[Lens]) -> bytes | None:
    """Renders an image through the lenses."""
    text = stored.image(name)
    if text is None or not lenses:
        return text
    fields = stored.parsed(name)
    if fields is not None:
        return write(_masked(fields, lenses))
    for lens in lenses:
        text = text if lens.fields is None else lens.fields.trim(text)
        text = text if lens.mask is None else lens.mask.image(text)
    return text


def _difference(stored: Stored, view: View) -> ShownImages:
    """Renders the difference of the images, or, without a before image, the fields that the writer lists as changed."""
    old = view.images is Images.CHANGED_WITH_OLD
    lenses = view.lenses
    names = _visible(stored.changed, lenses)
    if stored.image("body") is None:
        return ShownImages(changed=names, lacking=("body",))
    try:
        after = stored.parsed("body")
        if after is None:  # a value without fields
            return _whole(stored, names, lenses, old=old)
    except unreadable:
        return ShownImages(changed=names, lacking=("body",))
    image = stored.image("before")
    created = image is not None and image.strip() == _NULL
    try:
        before = {} if created else None if image is None else stored.parsed("before")
        if before is None and image is not None:
            return _whole(stored, names, lenses, old=old)
        if before is not None:
            return _compared(after, before, lenses, old=old and not created)
    except unreadable:
        pass  # counts as absent
    lacking = ("before",) if old else ()
    listed = stored.changed
    if listed is None:
        return ShownImages(lacking=("before", "changed"))
    try:
        return ShownImages(write(_masked(_picked(after, listed), lenses)), None, names, lacking)
    except unreadable:
        return ShownImages(changed=names, lacking=("body",))


def _whole(stored: Stored, names: bytes | None, lenses: Sequence[Lens], *, old: bool) -> ShownImages:
    body, before = _through(stored, "body", lenses), _through(stored, "before", lenses) if old else None
    return ShownImages(body, before, names, ("before",) if old and before is None else ())


def _compared(after: Fields, before: Fields, lenses: Sequence[Lens], *, old: bool) -> ShownImages:
    """Renders the fields whose visible parts differ."""
    candidates = [name for name, text in after.items() if bytes(text) != bytes(before.get(name, b""))]
    candidates += [name for name in before if name not in after]
    new, was = _only(after, candidates), _only(before, candidates)
    seen, saw = _masked(new, lenses, values=False), _masked(was, lenses, values=False)
    differ = [
        name
        for name in candidates
        if (name in seen) != (name in saw)
        or (name in seen and not _same(bytes(seen[name]), bytes(saw[name])))
    ]
    body, image = _masked(_only(new, differ), lenses), _masked(_only(was, differ), lenses)
    changed = [name for name in differ if name in body or name in image]
    return ShownImages(write(body), write(image) if old else None, _encoder.encode(changed))


def _only(fields: Fields, names: Sequence[str]) -> Fields:
    return {name: fields[name] for name in names if name in fields}


def _picked(fields: Fields, changed: bytes) -> Fields:
    """Returns the fields that a writer lists as changed; a name that is not a field is a path into one."""
    names = _names.decode(changed)
    paths = [path for name in names if name not in fields and (path := _path(name)) is not None]
    inner = Projection(tuple(paths)).trim_fields(fields)
    return {
        name: text if name in names else inner[name]
        for name, text in fields.items()
        if name in names or name in inner
    }


def _masked(fields: Fields, lenses: Sequence[Lens], *, values: bool = True) -> Fields:
    """Passes fields through the lenses; without ``values``, fields are dropped but not masked, so that values can be compared."""
    for lens in lenses:
        fields = fields if lens.fields is None else lens.fields.trim_fields(fields)
        fields = fields if lens.mask is None else lens.mask.image_fields(fields, values=values)
    return fields


def _visible(changed: bytes | None, lenses: Sequence[Lens]) -> bytes | None:
    """Returns the names of changed fields that are visible at least in part."""
    if changed is None or not lenses:
        return changed
    try:
        names = _names.decode(changed)
    except unreadable:
        return None
    # A name may be the name of a field, or a path.
    readings = {name: ((name,), _path(name) or (name,)) for name in names}
    return _encoder.encode(
        [name for name in names if all(_may_name(lens, *readings[name]) for lens in lenses)]
    )


def _may_name(lens: Lens, *readings: Path) -> bool:
    """Whether a field with one of these paths may be named: its value is visible, masked or not."""
    if lens.fields is not None and not any(map(lens.fields.shows, readings)):
        return False
    return lens.mask is None or not any(map(lens.mask.drops, readings))


def _path(name: str) -> Path | None:
    try:
        root, path = parse_path("changed", name)
    except ValueError:
        return None
    return None if root else path


def _same(one: bytes, other: bytes) -> bool:
    """Whether two JSON values are equal, however they are written; numbers are compared by value."""
    if one == other:
        return True
    try:
        return bool(exact_value(one) == exact_value(other))
    except (*unreadable, ArithmeticError):
        return False

"""Events as JSON: encoded once per event and view, and spliced from stored JSON.

The log stores bodies, images, metadata and lists of changed fields as JSON. They are copied into the event, and parsed only
for a view that shows parts of them. Encoded events are cached with the block, so that all subscribers of a block with the
same view share them; the cache goes with the block.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from publishers.blocks.block import Block, Shelf, seen, seen_error
from publishers.blocks.decode import KEYLESS, names_of
from publishers.blocks.slices import Slice
from publishers.fanout.batch import Batch
from publishers.lossless import flaw_of
from publishers.model.change import Area, Change, Operation, time_of
from publishers.model.fields import ATTACHED, Field, FieldKind, compiled, values_of
from publishers.model.position import Position
from publishers.views.images import show_meta
from publishers.views.view import Content, Integers, View

__all__ = ["EventEncoder", "encode_change", "encode_text", "next_head"]

_AREAS: Final = {area.value: b',"area":"%s"' % area.name.encode() for area in Area}
_OPERATIONS: Final = {
    operation.value: b',"operation":"%s"' % operation.name.encode() for operation in Operation
}
_FORMAT: Final = "penstock.v1+json"
_ATTACHED_MAX: Final = 16  # a stream stamped with its schema has the same few attachments in every change
_EVENT_BYTES: Final = 64  # the weight of a cached event beside its bytes
_is_plain: Final = re.compile(rb"[ !#-\[\]-~]*").fullmatch  # without quotes, escapes and anything but ASCII


def encode_text(text: str) -> bytes:
    """Returns a JSON string. Lone surrogates, which stand for bytes that are not UTF-8, become escapes."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def encode_change(change: Change, cursor: str, integers: Integers = Integers.NUMBER) -> bytes:
    """Encodes a change outside a block, with the cursor behind it, to the same JSON as ``EventEncoder``.

    ``integers`` is the format of the view; here it applies to the numbers outside the stored JSON.
    """
    plain: dict[str, Any] = {
        "cursor": cursor,
        "version": change.version,
        "index": change.index,
        "count": change.count,
        "timestamp": _stamp(change.timestamp),
        "area": change.area.name,
        "operation": change.operation.name,
        "entity_type": change.entity_type,
        "key": None if change.key is None else msgspec.Raw(encode_text(change.key)),
        "body": _raw(change.body_bytes),
        "before": _raw(change.before_bytes),
        "changed": change.changed,
    }
    _attach(plain, change, integers)
    plain |= {"error": change.error_text, "lacking": change.lacking or None}
    return msgspec.json.encode({name: value for name, value in plain.items() if value is not None})


def _raw(value: bytes | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _number(number: int, integers: Integers) -> msgspec.Raw:
    return msgspec.Raw(View(integers=integers).render_integers(b"%d" % number))


def _stamp(moment: datetime) -> str:
    """Formats a time as RFC 3339 in UTC, always with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


_Encode = Callable[[Any, View, int], bytes | None]
_ENCODES: Final[Mapping[FieldKind, _Encode]] = {
    FieldKind.NUMBER: lambda number, view, _index: view.render_integers(b"%d" % number),
    FieldKind.TEXT: lambda text, _view, _index: encode_text(text),
    FieldKind.KEY: lambda key, _view, _index: encode_text(key),
    FieldKind.PATH: lambda path, _view, _index: encode_text(path),
    FieldKind.WORD: lambda word, _view, _index: encode_text(word.value),
    FieldKind.MOMENT: lambda moment, _view, _index: b'"%s"' % _stamp(moment).encode(),
    FieldKind.JSON: lambda raw, view, index: view.render_integers(
        show_meta(bytes(raw), view, transaction=not index)
    ),
}


def _encode_of(field: Field) -> _Encode:
    """Returns the function that encodes a stored field as a view shows it; None or nothing is left out."""
    encode, show = _ENCODES[field.kind], seen(field)
    if show is None:
        return encode

    def shown(value: object, view: View, index: int) -> bytes | None:
        told = show(value, view)
        return None if told is None else encode(told, view, index)

    return shown


_STORED: Final = tuple(
    (b',"%s":' % field.name.encode(), _encode_of(field), field.versioned) for field in ATTACHED
)
_members: Final = values_of(ATTACHED, stored=True)

_ENCODES_ALONE: Final[Mapping[FieldKind, Callable[[Any, Integers], Any]]] = {
    FieldKind.NUMBER: _number,
    FieldKind.KEY: lambda key, _integers: msgspec.Raw(encode_text(key)),
    FieldKind.WORD: lambda word, _integers: word.value,
    FieldKind.MOMENT: lambda moment, _integers: _stamp(moment),
    FieldKind.JSON: lambda text, _integers: msgspec.Raw(text),
}
_attach: Final[Callable[[dict[str, Any], Change, Integers], None]] = compiled(
    "attach(plain, change, integers)",
    *(
        f"if (value := change.{field.attribute}) is not None"
        + (" and value != change.version" if field.versioned else "")
        + f": plain[{field.name!r}] = "
        + (f"{field.kind.name}(value, integers)" if field.kind in _ENCODES_ALONE else "value")
        for field in ATTACHED
    ),
    **{kind.name: encode for kind, encode in _ENCODES_ALONE.items()},
)
"""Adds what is attached to a change outside a block."""


def next_head(subscription: str) -> bytes:
    """Returns the start of every ``next`` of a subscription, the only part that differs between subscribers with the same view."""
    return b'{"type":"next","id":%s,"events":[' % encode_text(subscription)


class _Shelf(Shelf):
    """The cached events of one block for one view."""

    __slots__ = ("attached", "head", "labels", "made", "middle", "types")

    def __init__(self, block: Block, prefix: str) -> None:
        super().__init__()
        stamp = _stamp(time_of(block.committed_at))
        self.head = b'{"cursor":"%s' % prefix.encode()
        self.middle = b',"timestamp":"%s"' % stamp.encode()
        self.types: dict[str, bytes] = {}
        self.labels: dict[tuple[int, str], bytes] = {}
        self.attached: dict[bytes | None, tuple[bytes, bool]] = {}
        self.made: dict[int, bytes] = {}


def _images(body: bytes | None, before: bytes | None) -> bytes | None:
    """Returns the members of the images; None if one of them is damaged, and would corrupt the event."""
    text = b""
    for name, image in ((b',"body":', body), (b',"before":', before)):
        if image is not None:
            if flaw_of(image) is not None:
                return None
            text += name + image
    return text


class EventEncoder:
    """Encodes the events of one log.

    Args:
        token: Makes the text of a position; the part before the version must be the same for a whole block.
    """

    __slots__ = ("_token",)

    def __init__(self, token: Callable[[Position], object]) -> None:
        self._token = token

    def cursor(self, position: Position) -> str:
        """Returns the opaque text of a position."""
        return str(self._token(position))

    def events(self, parts: Iterable[Slice], view: View) -> list[bytes]:
        """Encodes the events of slices, each as one JSON object."""
        encoded: list[bytes] = []
        for part in parts:
            block = part.block
            shelf = self._shelf(block, view)
            made, weight = shelf.made, 0
            indices = part.indices
            if isinstance(indices, range) and view.plain:
                weight = self._run(block, indices, view, shelf)
            for index in indices:
                event = made.get(index)
                if event is None:
                    event = made[index] = self._encode(block, index, view, shelf)
                    weight += len(event) + _EVENT_BYTES
                encoded.append(event)
            if weight:
                block.weigh(shelf, weight)
        return encoded

    def next(self, head: bytes, batch: Batch) -> bytes:
        """Returns a ``next`` message: the head from ``next_head``, the events of a batch, and the cursor behind them."""
        encoded: bytes | None = batch.memo.get(_FORMAT)
        if encoded is None:
            events = b",".join(self.events(batch.slices, batch.view))
            flag = b"true" if batch.boundary else b"false"
            encoded = b'%s],"cursor":"%s","boundary":%s}' % (events, self.cursor(batch.end).encode(), flag)
            batch.memo[_FORMAT] = encoded
        return head + encoded

    def _shelf(self, block: Block, view: View) -> _Shelf:
        def make() -> _Shelf:
            # Each event carries the cursor behind it. All but the last have this very version, so they share the prefix.
            return _Shelf(block, self.cursor(Position(block.version, 1)).rsplit(":", 2)[0] + ":")

        return block.shelf((_FORMAT, view), make)

    def _run(self, block: Block, indices: range, view: View, shelf: _Shelf) -> int:
        """Encodes the changes of a range that have a key and no damage; returns the weight of their events."""
        made, labels, weight = shelf.made, shelf.labels, 0
        if not indices or indices[-1] in made or "errors" in block.memo:
            return 0
        version, count, whole = block.version, block.transaction_count, view.content is Content.BODY
        begin, middle = b"%s%d:" % (shelf.head, version), b'","version":%d,"index":' % version
        low = max(indices.start, block.first_index)
        rows = enumerate(block.rows(low, indices.stop), low)
        for index, (kind, name, key, body, before, changed, meta) in rows:
            if kind == KEYLESS or index in made:
                continue
            more = _images(body, before) if whole else b""
            if more is None:
                continue
            if changed is not None:
                if names_of(changed)[1]:
                    continue
                more += b',"changed":' + changed
            if meta is not None:
                attached, damaged = self._shared(block, index, meta, view, shelf)
                if damaged:
                    continue
                more += attached
            label = labels.get((kind, name))
            if label is None:
                named = b',"entity_type":' + encode_text(name)
                label = labels[kind, name] = shelf.middle + _AREAS[kind >> 4] + _OPERATIONS[kind & 15] + named
            text = b'"%s"' % key if _is_plain(key) else encode_text(key.decode("utf-8", "surrogateescape"))
            after = index + 1
            if after == count:
                begin, after = b"%s%d:" % (shelf.head, version + 1), 0
            parts = (begin, after, middle, index, count, label, text, more)
            event = made[index] = b'%s%d%s%d,"count":%d%s,"key":%s%s}' % parts
            weight += len(event) + _EVENT_BYTES
        return weight

    def _encode(self, block: Block, index: int, view: View, shelf: _Shelf) -> bytes:
        version = block.version
        kind = block.kind(index)
        last = index + 1 == block.transaction_count
        parts = [
            shelf.head,
            b'%d:%d","version":%d,"index":%d,"count":%d'
            % (
                version + 1 if last else version,
                0 if last else index + 1,
                version,
                index,
                block.shown_count(index, view),
            ),
            shelf.middle,
            _AREAS[kind >> 4],
            _OPERATIONS[kind & 15],
        ]
        entity_type = block.entity_type(index)
        if entity_type is not None:
            named = shelf.types.get(entity_type)
            if named is None:
                named = shelf.types[entity_type] = b',"entity_type":' + encode_text(entity_type)
            parts.append(named)
        parts += self._stored(block, index, view) if view.plain else self._shown(block, index, view)
        damaged = "errors" in block.memo
        if not index:
            parts += self._attached(block, index, view)
        elif (meta := block.columns.meta) is not None:
            attached = self._shared(block, index, meta[index - block.first_index], view, shelf)
            parts.append(attached[0])
            damaged |= attached[1]
        if damaged and (error := seen_error(block, index, view)) is not None:
            parts += (b',"error":', encode_text(error))
        parts.append(b"}")
        return b"".join(parts)

    @staticmethod
    def _stored(block: Block, index: int, view: View) -> list[bytes]:
        """Returns key and images as they are stored, which suits most subscribers; parses nothing."""
        parts = []
        columns = block.columns
        key = block.key(index)
        if key is not None:
            parts += [b',"key":', encode_text(key.decode("utf-8", "surrogateescape"))]
        if view.content is Content.BODY:
            if (body := block.body(index)) is not None:
                parts += [b',"body":', body]
            if columns.before is not None and (before := block.before(index)) is not None:
                parts += [b',"before":', before]
        if columns.changed is not None and (changed := block.changed(index)) is not None:
            parts += [b',"changed":', changed]
        return parts

    @staticmethod
    def _shown(block: Block, index: int, view: View) -> list[bytes]:
        """Returns key and images as a view shows them."""
        key = block.shown_key(index, view)
        shown = block.shown(index, view)
        parts = []
        for name, value in (
            (b',"key":', None if key is None else encode_text(key)),
            (b',"body":', shown.body),
            (b',"before":', shown.before),
            (b',"changed":', shown.changed),
            (b',"lacking":', msgspec.json.encode(shown.lacking) if shown.lacking else None),
        ):
            if value is not None:
                parts += [name, value]
        return parts

    def _shared(
        self, block: Block, index: int, stored: bytes | None, view: View, shelf: _Shelf
    ) -> tuple[bytes, bool]:
        """Returns what is attached to a change, and whether it is damaged; encoded once for changes that have the same."""
        attached = shelf.attached.get(stored)
        if attached is None:
            encoded = b"".join(self._attached(block, index, view))
            attached = encoded, block.attached(index).error is not None
            if len(shelf.attached) < _ATTACHED_MAX:
                shelf.attached[stored] = attached
        return attached

    @staticmethod
    def _attached(block: Block, index: int, view: View) -> list[bytes]:
        parts: list[bytes] = []
        for (name, encode, versioned), value in zip(_STORED, _members(block.attached(index)), strict=True):
            if value is not None and not (versioned and value == block.version):
                text = encode(value, view, index)
                if text:
                    parts += (name, text)
        return parts

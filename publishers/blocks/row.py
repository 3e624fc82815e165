"""A change of a block through a view."""

from typing import TYPE_CHECKING, Final

import msgspec

from publishers.blocks.decode import Attached
from publishers.model.change import Area, Change, Operation
from publishers.views.images import Name, show_field, show_key
from publishers.views.paths import Fields
from publishers.views.view import View

if TYPE_CHECKING:
    from publishers.blocks.block import Block

__all__ = ["Row", "seen", "seen_error", "seen_linked"]

_UNREADABLE: Final = "something of the change as it is stored cannot be read"


class Row:
    """A change as it lies in a block; nothing is read before it is asked for."""

    __slots__ = ("_block", "_index")

    def __init__(self, block: "Block", index: int) -> None:
        self._block = block
        self._index = index

    @property
    def operation(self) -> Operation:
        """What happened."""
        return self._block.operation(self._index)

    @property
    def entity(self) -> bool:
        """Whether it is a change of an entity."""
        return self._block.kind(self._index) >> 4 == Area.DATA

    @property
    def partial(self) -> bool:
        """Whether it is a field-level change, whose images hold nothing but what changed."""
        return getattr(self._block.attached(self._index), "field", None) is not None

    @property
    def changed(self) -> bytes | None:
        """JSON list of the names of changed fields."""
        return self._block.changed(self._index)

    def image(self, name: Name, /) -> bytes | None:
        """JSON after or before the change."""
        return self._block.body(self._index) if name == "body" else self._block.before(self._index)

    def parsed(self, name: Name, /) -> Fields | None:
        """An image taken apart, once for all views."""
        return self._block.parsed(self._index, name)


def seen(block: "Block", change: Change, view: View) -> Change:
    """A change of a block, which was made without images, as a view shows it."""
    index = change.index
    shown = block.shown(index, view)
    return msgspec.structs.replace(
        change,
        key=block.shown_key(index, view),
        linked=None if change.linked is None else show_key(change.linked, view),
        field=None if change.field is None else show_field(change.field, view),
        body_bytes=shown.body,
        before_bytes=shown.before,
        changed=None if shown.changed is None else tuple(msgspec.json.decode(shown.changed)),
        meta_bytes=block.shown_meta(index, view) or None,
        error_text=seen_error(block, index, view),
        lacking=shown.lacking,
    )


def seen_linked(attached: Attached, view: View) -> str | None:
    """The key of the other half of a key change, as a view shows it."""
    linked = attached.linked
    return None if linked is None else show_key(linked.decode("utf-8", "surrogateescape"), view)


def seen_error(block: "Block", index: int, view: View) -> str | None:
    """What of a change cannot be rendered, as far as it was asked for; but not why, which may quote what is masked."""
    error = block.noted(index)
    return error if error is None or not view.lenses else _UNREADABLE

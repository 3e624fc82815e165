"""The parsed images and changed fields of a block, read once for all conditions and criterions."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from publishers.blocks.block import Block
from publishers.criteria.conditions import ABSENT
from publishers.wal import Column

__all__ = ["Facts", "facts_of", "forget_facts"]

_UNREAD: Final = object()
_PARSED: Final = 4  # parsed JSON takes a multiple of the memory of its text


class Facts:
    """Parsed images and names of changed fields of a block, parsed on demand.

    Data that cannot be read, because it is not JSON or not a list of names, counts as absent: a malformed change fulfils no
    condition, and does not stop the matching of others.
    """

    __slots__ = ("_after", "_annotations", "_before", "_block", "_lists", "_names", "weight")

    def __init__(self, block: Block) -> None:
        self.weight: int = 0
        self._block = block
        self._annotations: Any = _UNREAD
        self._after: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        self._lists: list[bytes | None] | None = None
        self._names: dict[bytes | None, tuple[str, ...]] = {None: ()}

    def key(self, index: int) -> bytes:
        """Returns the key of a change."""
        return self._block.columns.key[index - self._block.first_index] or b""

    def kind(self, index: int) -> int:
        """Returns area and operation of a change, as blocks store them."""
        return self._block.kind(index)

    def entity_type(self, index: int) -> str | None:
        """Returns the entity type of a change."""
        return self._block.entity_type(index)

    def after(self, index: int) -> Any:
        """Returns the parsed body of a change, or ``ABSENT``."""
        found = self._after.get(index, _UNREAD)
        if found is _UNREAD:
            found = self._after[index] = self._parsed(self._block.columns.body, index)
        return found

    def before(self, index: int) -> Any:
        """Returns the parsed image before a change, or ``ABSENT``."""
        found = self._before.get(index, _UNREAD)
        if found is _UNREAD:
            found = self._before[index] = self._parsed(self._block.columns.before, index)
        return found

    @property
    def annotations(self) -> Any:
        """The parsed annotations of the transaction; an empty object if there are none."""
        if self._annotations is _UNREAD:
            stored = bytes(self._block.attached(0).meta)
            found = parse(stored) if stored else ABSENT
            self._annotations = {} if found is ABSENT else found
            self._weigh(len(stored))
        return self._annotations

    def changed(self, index: int) -> tuple[str, ...]:
        """Returns the names of the fields that a change says it touched; empty if it does not say."""
        return self.names_of(self.lists[index - self._block.first_index]) if index else ()

    @property
    def lists(self) -> Sequence[bytes | None]:
        """The lists of changed fields of all stored changes, not parsed."""
        if self._lists is None:
            column = self._block.columns.changed
            self._lists = [None] * self._block.count if column is None else list(column)
            self._weigh(16 * len(self._lists))
        return self._lists

    def names_of(self, stored: bytes | None) -> tuple[str, ...]:
        """Returns the names in a list of changed fields. Few distinct lists occur, and each is parsed once."""
        found = self._names.get(stored)
        if found is None and stored is not None:
            found = self._names[stored] = _names_of(stored)
            self._weigh(len(stored))
        return found or ()

    def _parsed(self, column: Column | None, index: int) -> Any:
        stored = column[index - self._block.first_index] if column is not None and index else None
        if stored is None:
            return ABSENT
        self._weigh(len(stored))
        return parse(stored)

    def _weigh(self, size: int) -> None:
        weight = 64 + _PARSED * size
        self.weight += weight
        self._block.memo_bytes += weight


def facts_of(block: Block) -> Facts:
    """Returns the facts of a block, which are cached with it."""
    found: Facts | None = block.memo.get(Facts)
    if found is None:
        found = block.memo.setdefault(Facts, Facts(block))
    return found


def forget_facts(block: Block) -> None:
    """Drops the facts of a block after its matching: parsed data takes more memory than stored data."""
    found: Facts | None = block.memo.pop(Facts, None)
    if found is not None:
        block.memo_bytes -= found.weight


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number beyond all bounds") from None


_json: Final = msgspec.json.Decoder(float_hook=_decimal)
_names_list: Final = msgspec.json.Decoder(tuple[str, ...])


def parse(stored: bytes) -> Any:
    """Parses JSON with exact numbers; ``ABSENT`` if it is malformed."""
    try:
        return _json.decode(stored)
    except (ValueError, RecursionError):
        return ABSENT


def _names_of(stored: bytes) -> tuple[str, ...]:
    try:
        return _names_list.decode(stored)
    except (ValueError, RecursionError):
        return ()

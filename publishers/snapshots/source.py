"""Where the rows of a snapshot come from, if not from the compacted state of the log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from publishers.commits import Commit
from publishers.errors import InvalidOption, SourceRowRefused
from publishers.model.position import Position
from publishers.mutations.arguments import check_entity_type
from publishers.options import MIB, check_switches, check_whole

__all__ = [
    "PageRequest",
    "PageSource",
    "SnapshotMode",
    "SnapshotSource",
    "SourceRow",
    "check_source",
    "checked_sources",
    "distinct_rows",
]

SnapshotMode = Literal["never", "initial", "initial_only", "on_gap"]
"""When there are rows.

``"never"``
    Changes only.
``"initial"``
    Rows, if it begins with them, then every change after them; and rows again whenever the subscriber asks for some.
``"initial_only"``
    Rows, then the end.
``"on_gap"``
    Changes; where history is missing that was still to be read, rows of the present instead, and changes again.
"""

SourceRow = tuple[str | bytes, Mapping[str, Any] | bytes]
"""A row: the key of an entity, and its body as for ``upsert``."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which rows are to be read.

    Attributes:
        after: The key behind which the page begins, in the source's own order; None for the first page.
        until: The last key that is wanted; None for no bound.
        limit: Most rows. A page of fewer rows is the last one.
        version: The version of the log as of which the rows are to be, for a source that promises this; else None.
    """

    after: str | None
    until: str | None
    limit: int
    version: int | None


class SnapshotSource(Protocol):
    """Rows of one entity type by pages, in an order of keys that stays the same. Each key has the text that it has in the log."""

    @property
    def entity_type(self) -> str:
        """Of which entities the rows are."""
        ...

    @property
    def as_of(self) -> bool:
        """Whether rows can be read as of a version of the log.

        If not, they are read as they are at the moment, and two things must be true then: a version of the log that is visible
        is in the source; and what is in the source is in the log too, at the latest when ``mark`` returns.
        """
        ...

    @property
    def page_rows(self) -> int:
        """Most rows of a page, from 1."""
        ...

    @property
    def page_bytes(self) -> int:
        """Bytes after which a page ends; it holds one row at least."""
        ...

    def read(self, request: PageRequest, /) -> Iterable[SourceRow]:
        """The rows of a page, from a thread of its own; it may block. What it raises ends the snapshot with ``SourceFailed``."""
        ...

    def mark(self) -> Commit | Position | int | None:
        """Called behind each page of a source that reads "now".

        Returns:
            A visible version in or before which everything is that the page may contain: one that was committed by the way
            that all changes take, after the page was read. None if what was read is in the log already.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PageSource:
    """Rows that a function reads; see `SnapshotSource`.

    Attributes:
        entity_type: Of which entities the rows are.
        pages: Answers the rows of a page: pairs of key and body.
        as_of: Whether it reads as of ``request.version``.
        marker: What ``mark`` does, for a source whose changes reach the log a moment later.
        page_rows: Most rows of a page, from 1 to 1,000,000.
        page_bytes: Bytes after which a page ends.

    Raises:
        InvalidChange: If the entity type is none.
        InvalidOption: If something else is not what it should be.
    """

    entity_type: str
    pages: Callable[[PageRequest], Iterable[SourceRow]]
    as_of: bool = False
    marker: Callable[[], Commit | Position | int] | None = None
    page_rows: int = 1_000
    page_bytes: int = MIB

    def __post_init__(self) -> None:
        check_source(self)
        if not callable(self.pages):
            raise InvalidOption("pages", self.pages, "a callable that takes a PageRequest")
        if self.marker is not None and not callable(self.marker):
            raise InvalidOption("marker", self.marker, "a callable without arguments, or None")

    def read(self, request: PageRequest, /) -> Iterable[SourceRow]:
        """See `SnapshotSource.read`."""
        return self.pages(request)

    def mark(self) -> Commit | Position | int | None:
        """See `SnapshotSource.mark`."""
        return None if self.marker is None else self.marker()


def check_source(source: SnapshotSource) -> None:
    """Checks what every source says of itself.

    Raises:
        InvalidChange: If the entity type is none.
        InvalidOption: If something else is not what it should be.
    """
    check_entity_type(source.entity_type)
    check_switches(as_of=source.as_of)
    check_whole("page_rows", source.page_rows, "a whole number from 1 to 1000000", 1, 1_000_000)
    check_whole("page_bytes", source.page_bytes, "a number of bytes, from 1", 1)


def checked_sources(source: SnapshotSource | Iterable[SnapshotSource]) -> Sequence[SnapshotSource]:
    """One source or several, each of another entity type.

    Raises:
        InvalidChange: If the entity type of one is none.
        InvalidOption: If one is no source, or there is none, or two are of one entity type.
    """
    sources = list(source) if isinstance(source, Iterable) else [source]
    right = "a SnapshotSource such as SqlSource or PageSource, or several, each of another entity type"
    for one in sources:
        if not callable(getattr(one, "read", None)) or not callable(getattr(one, "mark", None)):
            raise InvalidOption("source", one, right)
        check_source(one)
    if not sources or len({one.entity_type for one in sources}) < len(sources):
        raise InvalidOption("source", source, right)
    return sources


def distinct_rows(
    entity_type: str, rows: Iterable[tuple[str | bytes | None, Mapping[str, Any] | bytes]]
) -> Iterator[SourceRow]:
    """Rows in the order of their keys, each given once the one behind it is known to have another key.

    A page goes on behind the last key of the page before, and would leave out the second of two rows of that key.

    Raises:
        SourceRowRefused: If a key is null, or there twice.
    """
    waiting: SourceRow | None = None
    for key, body in rows:
        if key is None or (waiting is not None and waiting[0] == key):
            raise SourceRowRefused(
                entity_type, key.decode("utf-8", "replace") if isinstance(key, bytes) else key
            )
        if waiting is not None:
            yield waiting
        waiting = key, body
    if waiting is not None:
        yield waiting

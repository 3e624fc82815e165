"""The sources of snapshot rows other than the compacted state of the log."""

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
"""When rows are delivered.

``"never"``
    Changes only.
``"initial"``
    Rows, if it begins with them, then every change after them; and rows again on request.
``"initial_only"``
    Rows, then the end.
``"on_gap"``
    Changes; after a gap current rows, and then changes again.
"""

SourceRow = tuple[str | bytes, Mapping[str, Any] | bytes]
"""A row: the key of an entity, and its body as for ``upsert``."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The rows to read.

    Attributes:
        after: The key after which the page begins, in the order of the source; None for the first page.
        until: The last key; None for no bound.
        limit: Most rows. A page of fewer rows is the last one.
        version: The version of the log as of which to read, for a source with ``as_of``; else None.
        keys: The keys of wanted rows, beside those with ``heads``; None for any. A source may read other rows too, which are left out.
        heads: Beginnings of the keys of further wanted rows; None, as ``keys`` is, for any.
    """

    after: str | None
    until: str | None
    limit: int
    version: int | None
    keys: tuple[str, ...] | None = None
    heads: tuple[str, ...] | None = None


class SnapshotSource(Protocol):
    """Rows of one entity type in pages, in a stable order of keys. Keys have the same text as in the log."""

    @property
    def entity_type(self) -> str:
        """The entity type of the rows."""
        ...

    @property
    def as_of(self) -> bool:
        """Whether rows can be read as of a version of the log.

        If not, current rows are read, under two conditions: the source contains every visible version of the log, and the log contains
        everything in the source, at the latest when ``mark`` returns.
        """
        ...

    @property
    def page_rows(self) -> int:
        """Most rows of a page, at least 1."""
        ...

    @property
    def page_bytes(self) -> int:
        """Bytes after which a page ends; a page has at least one row."""
        ...

    def read(self, request: PageRequest, /) -> Iterable[SourceRow]:
        """Reads a page on a separate thread; may block. An error ends the snapshot with ``SourceFailed``."""
        ...

    def mark(self) -> Commit | Position | int | None:
        """Called after each page of a source that reads "now".

        Returns:
            A visible version up to which the log contains everything in the page: one that was committed after the page was read, by
            the path of all changes. None if the log already contains it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PageSource:
    """A source that reads rows by a function; see `SnapshotSource`.

    Attributes:
        entity_type: The entity type of the rows.
        pages: Returns the rows of a page: pairs of key and body.
        as_of: Whether it reads as of ``request.version``.
        marker: Implements ``mark``, for a source whose changes reach the log later.
        page_rows: Most rows of a page, from 1 to 1,000,000.
        page_bytes: Bytes after which a page ends.

    Raises:
        InvalidChange: If the entity type is invalid.
        InvalidOption: If another argument is invalid.
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
    """Checks the attributes of a source.

    Raises:
        InvalidChange: If the entity type is invalid.
        InvalidOption: If another argument is invalid.
    """
    check_entity_type(source.entity_type)
    check_switches(as_of=source.as_of)
    check_whole("page_rows", source.page_rows, "a whole number from 1 to 1000000", 1, 1_000_000)
    check_whole("page_bytes", source.page_bytes, "a number of bytes, from 1", 1)


def checked_sources(source: SnapshotSource | Iterable[SnapshotSource]) -> Sequence[SnapshotSource]:
    """Checks one source or several, each of another entity type.

    Raises:
        InvalidChange: If an entity type is invalid.
        InvalidOption: If one is not a source, there is none, or two have the same entity type.
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
    """Yields rows in the order of their keys, each once the next row is known to have another key.

    A page continues after the last key of the previous page, and would skip the second of two rows with that key.

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

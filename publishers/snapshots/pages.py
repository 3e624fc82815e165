"""Pages of rows, each with the versions of the log between which it was read; the threads that read them, and what became of their rows meanwhile."""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from publishers.background import BackgroundThread
from publishers.blocks.block import Block
from publishers.commits import Commit
from publishers.criteria.entities import KeyReach
from publishers.errors import (
    InvalidChange,
    InvalidOption,
    LogExhausted,
    PenstockError,
    SourceFailed,
    SourceRowRefused,
)
from publishers.fanout.service import Service
from publishers.model.position import Position
from publishers.mutations.arguments import key_bytes
from publishers.mutations.mutation import upsert
from publishers.snapshots.source import PageRequest, SnapshotSource
from publishers.state import CompactedState
from publishers.state.rows import RowActions, RowPlace, StoredRow

__all__ = ["KeyRange", "PageChanges", "Pages", "SnapshotPage", "SourcePages", "SourceThreads", "StatePages"]


class SourceThreads:
    """Threads for reads that may block for long: as many as there is work for, up to a bound, and none without any.

    Args:
        most: The bound, from 1.
        name: What the threads are called.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._running = 0

    @property
    def waiting(self) -> int:
        """How many reads wait for a thread."""
        return len(self._waiting)

    def send(self, key: Hashable, read: Callable[[], object]) -> None:
        """Has something read that never raises; ``key`` has nothing else to be read meanwhile.

        Raises:
            LogExhausted: If there is no thread for it, and the system gives none.
        """
        with self._lock:
            self._waiting[key] = read
            if self._running == self._most:
                return
            self._running += 1
        try:
            BackgroundThread(target=self._work, name=self._name, daemon=True).start()
        except LogExhausted:
            with self._lock:
                self._running -= 1
                self._waiting.pop(key, None)
            raise

    def forget(self, key: Hashable) -> None:
        """Reads nothing for a key any more, unless it is being read."""
        with self._lock:
            self._waiting.pop(key, None)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                read = self._waiting.pop(next(iter(self._waiting)))
            read()


class KeyRange(NamedTuple):
    """A range of keys of one entity type.

    Attributes:
        after: The key behind which they begin; None for the first.
        until: The last one; None for no bound.
    """

    after: str | None = None
    until: str | None = None


class SnapshotPage(NamedTuple):
    """A page of rows.

    Attributes:
        rows: The rows in their order.
        low: The version that they contain in any case.
        version: The version above which they contain nothing. The versions in between are in some rows only.
        more: Whether further rows may follow.
    """

    rows: list[StoredRow]
    low: int
    version: int
    more: bool


class Pages(Protocol):
    """The pages of any source, for one subscriber."""

    def read(
        self,
        after: RowPlace | None,
        types: Sequence[str] | None,
        position: Position,
        bounds: tuple[int, int],
        reach: KeyReach | None = None,
    ) -> SnapshotPage | None:
        """The rows behind one, which contain everything before a position; None if they are not there yet.

        Args:
            after: The row behind which the page begins; None for the first.
            types: Entity types of which rows are wanted, sorted; None for all.
            position: The next change that the subscriber is given.
            bounds: Most rows, and bytes after which the page ends, if the source names none of its own.
            reach: The keys that wanted rows have; other rows may be left out. None for any.
        """
        ...

    def listen(self, notify: Callable[[], object]) -> None:
        """Calls once it makes sense to read again: at once, or from another thread. After ``read`` has answered None."""
        ...

    def leave(self) -> None:
        """Stops reading."""
        ...


class StatePages:
    """Pages of the compacted state of the log, each of one moment.

    Args:
        state: The state.
        keys: The range of keys.
    """

    def __init__(self, state: CompactedState, keys: KeyRange = KeyRange()) -> None:  # noqa: B008 - immutable
        self._state = state
        self._keys = keys
        self._needed = 0

    def read(
        self,
        after: RowPlace | None,
        types: Sequence[str] | None,
        position: Position,
        bounds: tuple[int, int],
        reach: KeyReach | None = None,
    ) -> SnapshotPage | None:
        """See `Pages.read`."""
        first, last = self._keys
        if after is None and first is not None and types:  # none, if the criteria do not ask for that type
            after = RowPlace(types[0], key_bytes(first))
        page = self._state.read(
            after, None if types is None else tuple(types), *bounds, None if reach is None else reach.spans
        )
        self._needed = _before(position)
        if page.version < self._needed:
            return None
        rows, more = page.rows, page.more
        if last is not None:
            wanted = [row for row in rows if row.key <= key_bytes(last)]
            rows, more = wanted, more and len(wanted) == len(rows)
        return SnapshotPage(rows, page.version, page.version, more)

    def listen(self, notify: Callable[[], object]) -> None:
        """See `Pages.listen`."""
        self._state.listen(self._needed, notify)

    def leave(self) -> None:
        """See `Pages.leave`."""


class SourcePages:
    """The pages of the user's sources, one source after the other.

    Args:
        service: The log's watermark and clock.
        threads: The threads that read them.
        sources: The sources, each of another entity type.
        keys: The range of keys.
    """

    def __init__(
        self,
        service: Service,
        threads: SourceThreads,
        sources: Sequence[SnapshotSource],
        keys: KeyRange = KeyRange(),  # noqa: B008 - immutable
    ) -> None:
        self._service = service
        self._threads = threads
        self._sources = sources
        self._keys = keys
        self._wanted: Callable[[], SnapshotPage] | None = None
        self._found: SnapshotPage | Exception | None = None

    def read(
        self,
        after: RowPlace | None,
        types: Sequence[str] | None,
        position: Position,
        bounds: tuple[int, int],
        reach: KeyReach | None = None,
    ) -> SnapshotPage | None:
        """See `Pages.read`. It answers None the first time; what the source raises is raised here the second time."""
        found, self._found = self._found, None
        if isinstance(found, Exception):
            raise found
        if found is None:
            self._wanted = lambda: self._next(after, types, position, reach)
        return found

    def listen(self, notify: Callable[[], object]) -> None:
        """See `Pages.listen`."""
        wanted = self._wanted
        assert wanted is not None  # ``read`` has answered None
        self._threads.send(self, lambda: self._fetch(wanted, notify))

    def leave(self) -> None:
        """See `Pages.leave`."""
        self._threads.forget(self)

    def _fetch(self, wanted: Callable[[], SnapshotPage], notify: Callable[[], object]) -> None:
        try:
            self._found = wanted()
        except Exception as error:  # noqa: BLE001 - the subscriber must get every error
            self._found = error
        notify()

    def _next(
        self,
        after: RowPlace | None,
        types: Sequence[str] | None,
        position: Position,
        reach: KeyReach | None,
    ) -> SnapshotPage:
        """Returns the next page that has rows, or the last page."""
        sources = [one for one in self._sources if types is None or one.entity_type in types]
        if after is not None:
            names = [one.entity_type for one in sources]
            if after.entity_type not in names:
                right = "the source, or the sources, with which the snapshot was begun"
                raise InvalidOption("source", names, right)
            sources = sources[names.index(after.entity_type) :]
        for source in sources:
            page = self._page(source, after, position, reach)
            more = page.more or source is not sources[-1]
            if page.rows or not more:
                return page._replace(more=more)
            after = None
        visible = self._service.watermark.visible  # no source is of a type that is wanted
        return SnapshotPage([], visible, visible, more=False)

    def _page(
        self, source: SnapshotSource, after: RowPlace | None, position: Position, reach: KeyReach | None
    ) -> SnapshotPage:
        watermark = self._service.watermark
        first, last = self._keys
        key = first if after is None else after.key.decode("utf-8", "surrogateescape")
        low = watermark.visible
        if source.as_of and after is not None:
            low = _before(position)  # all of its pages are of one version
        asked = None if reach is None else reach.of(source.entity_type)
        keys, heads = (None, None) if asked is None else (_texts(asked.exact), _texts(asked.heads))
        request = PageRequest(key, last, source.page_rows, low if source.as_of else None, keys, heads)
        with self._naming(source):
            rows, more = _taken(source, request, self._service.clock.now_us())
            high = low if source.as_of else _high(source.mark(), watermark.visible)
            if more and rows[-1].place == after:
                raise InvalidOption("source", source, f"one whose pages go on behind the key {key!r}")
        return SnapshotPage([row._replace(version=high) for row in rows], low, high, more)

    @contextlib.contextmanager
    def _naming(self, source: SnapshotSource) -> Iterator[None]:
        """Turns an error of a source into one that names the source."""
        try:
            yield
        except InvalidOption as error:
            if error.parameter == "key" and self._keys != KeyRange():
                raise  # no key of this source is what was asked for
            raise SourceFailed(source.entity_type, f"is wrong: {error}", retryable=False) from error
        except InvalidChange as error:
            raise SourceFailed(
                source.entity_type, f"has a row that is none: {error}", retryable=False
            ) from error
        except PenstockError:
            raise
        except Exception as error:
            why = f"could not be read: {type(error).__name__}: {error}"
            raise SourceFailed(source.entity_type, why) from error


def _texts(keys: frozenset[bytes]) -> tuple[str, ...]:
    return tuple(key.decode("utf-8", "surrogateescape") for key in sorted(keys))


def _taken(source: SnapshotSource, request: PageRequest, now: int) -> tuple[list[StoredRow], bool]:
    """The rows of a page as they are stored, and whether further ones may follow."""
    rows: list[StoredRow] = []
    seen: set[bytes] = set()
    room = source.page_bytes
    found = source.read(request)
    try:
        for pair in found:
            rows.append(row := _stored(source.entity_type, pair, now))
            if row.key in seen:
                raise SourceRowRefused(source.entity_type, row.key.decode("utf-8", "surrogateescape"))
            seen.add(row.key)
            room -= row.size
            if len(rows) == request.limit or room <= 0:
                return rows, True
    finally:
        if callable(close := getattr(found, "close", None)):
            close()
    return rows, False


def _stored(entity_type: str, pair: Any, now: int) -> StoredRow:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InvalidOption("source", pair, "pairs of key and body")
    row = upsert(entity_type, *pair)  # which checks and encodes
    return StoredRow(entity_type, row.key, row.body, None, 0, 1, now)


def _high(mark: object, visible: int) -> int:
    """Returns the version above which a page contains nothing."""
    if mark is None:
        return visible
    version = mark.version if isinstance(mark, (Commit, Position)) else mark
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= visible:
        raise InvalidOption("marker", mark, f"a version that is visible, which those up to {visible} are")
    return version


def _before(position: Position) -> int:
    """Returns the version that rows must contain if changes continue at a position."""
    return position.version - 1 if position.index == 0 else position.version


class PageChanges:
    """The rows of a page, without what changes since then have made of them.

    A page that is read "now" has of some changes the effect and of others not. A key that was changed meanwhile is not given
    as a row, as the subscriber has got the change, which is as new; or as the change has left it, if changes are not wanted
    for what they are (by their operation, say).

    Args:
        plain: Whether of each row that is wanted every change is given.
    """

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self._low = 0
        self._kept: dict[RowPlace, StoredRow] | None = None
        self._page: list[StoredRow] = []

    @property
    def rows(self) -> list[StoredRow]:
        """The rows, as of the newest version that was added."""
        return self._page if self._kept is None else list(self._kept.values())

    def begin(self, page: SnapshotPage) -> None:
        """The page that was read."""
        self._low, self._page = page.low, page.rows
        self._kept = None if page.low == page.version else {row.place: row for row in page.rows}

    def add(self, block: Block) -> None:
        """Changes, in their order; again is harmless."""
        kept = self._kept
        if kept is None or block.version <= self._low:
            return
        actions = RowActions()
        actions.add(block.columns, block.version, block.first_index, block.committed_at)
        known = {row.place for row in self._page}
        if actions.cleared:
            for place in [place for place in kept if place.entity_type in actions.cleared]:
                del kept[place]
        for changed, row in actions.rows.items():
            place = RowPlace(*changed)
            if row is None or self._plain:
                kept.pop(place, None)
            elif place in known:
                kept[place] = row

"""Checks whether a batch is a repetition of the one in the log, or a different batch with the same number.

Spark repeats only the newest batch of a checkpoint. A batch committed under the query's id is safe, as a new checkpoint has a new
id. A ``producer`` name chosen by the user outlives the checkpoint: with a new checkpoint numbers begin at 0 again, and new rows come
under numbers that the log already has.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from publishers.criteria.criteria import Criterion
from publishers.errors import HistoryPruned
from publishers.log.changelog import ChangeLog
from publishers.model.change import Area
from publishers.model.position import Position
from publishers.views.view import Content
from publishers.wal.format.columns import Column, Columns

__all__ = ["RowSum", "is_repeated"]

_PAGE = 10_000
_MASK = 2**64 - 1

Row = tuple[int, str | None, bytes | None, bytes | None, bytes | None]


class RowSum:
    """Count and checksum of rows, independent of their order; ``str`` returns text that is the same in every process."""

    __slots__ = ("_total", "rows")

    def __init__(self) -> None:
        self.rows: int = 0
        self._total = 0

    def add(self, columns: Columns) -> None:
        """Adds rows."""
        for row in _computed([columns]):
            self.rows += 1
            self._total += int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest())

    def __str__(self) -> str:
        return f"{self.rows}:{self._total & _MASK:016x}"


def is_repeated(columns: Iterable[Columns], log: ChangeLog, version: int) -> bool:
    """Returns whether the rows are those of a version, in any order, since a shuffle keeps no order.

    A version committed with ``compare`` holds only the rows that changed something; its annotations hold the checksum of all rows.
    Returns True if retention has deleted the version.
    """
    try:
        stored = _content(log, version)
        if stored is not None:
            found = RowSum()
            for part in columns:
                found.add(part)
            return str(found) == stored
        return _sum(_computed(columns)) == _sum(_stored(log, version))
    except HistoryPruned:
        return True


def _content(log: ChangeLog, version: int) -> str | None:
    """Returns the checksum in the annotations of a version; None if there is none."""
    criterion = Criterion(areas={Area.INFRASTRUCTURE})
    for change in log.history(criterion, Position(version), 1, content=Content.BODY).changes:
        if change.version == version and change.meta is not None:
            content = change.meta.get("spark", {}).get("content")
            return None if content is None else str(content)
    return None


def _sum(rows: Iterable[Row]) -> tuple[int, int]:
    count = total = 0
    for row in rows:
        count += 1
        total += hash(row)
    return count, total & _MASK


def _computed(columns: Iterable[Columns]) -> Iterator[Row]:
    for part in columns:
        names = part.entity_types
        types = [0] * part.count if part.type_ids is None else part.type_ids.tolist()
        images = (_values(part.body, part.count), _values(part.before, part.count))
        for kind, number, key, body, before in zip(
            part.kinds.tobytes(), types, part.key, *images, strict=True
        ):
            yield kind % 16, names[number], key, body, before


def _values(column: Column | None, count: int) -> Iterable[bytes | None]:
    return [None] * count if column is None else column


def _stored(log: ChangeLog, version: int) -> Iterator[Row]:
    place = Position(version)
    while place.version == version:
        page = log.history(Criterion(areas={Area.DATA}), place, _PAGE, content=Content.BODY)
        for change in page.changes:
            if change.version == version:
                key = None if change.key is None else change.key.encode("utf-8", "surrogateescape")
                yield int(change.operation), change.entity_type, key, change.body_bytes, change.before_bytes
        if place == page.next:
            return
        place = page.next

"""Comparison of a batch with the state of the log: which rows are new, which differ, and which change nothing."""

from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import Final

from publishers.commits.expectation import EXPECTED_KEYS, Expect
from publishers.errors import InvalidChange
from publishers.log.changelog import ChangeLog
from publishers.model.change import Operation
from publishers.model.position import Position
from publishers.mutations.fields import changed_fields
from publishers.mutations.mutation import Mutation, columns_of, expire, remove, truncate, upsert
from publishers.spark.errors import ComparisonTooLarge
from publishers.spark.repeats import RowSum
from publishers.state.rows import RowPlace
from publishers.wal.format.columns import Columns

__all__ = ["BatchComparison", "StateReads"]

_NEW: Final = b"null"  # before image of an entity that did not exist
_HELD: Final = 256  # overhead in bytes of a change held in memory, besides its images


class StateReads:
    """What an attempt to commit a batch has read from the state of its log, which must be the same at the commit.

    Args:
        log: The log.
    """

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._place: int | None = None  # the oldest version at which the state was read
        self._pairs: set[RowPlace] | None = set()  # entities read; None above EXPECTED_KEYS

    def found(self, wanted: Collection[RowPlace]) -> dict[RowPlace, bytes]:
        """Returns the bodies that the state has for these entities.

        Raises:
            StateOff, StateIncomplete, StateUnusable: If the log has no usable state.
        """
        page = self._log.state.find(wanted)
        # Later pages are of this version or a newer one, so expecting "unchanged since the first page" covers them all.
        self._place = page.version if self._place is None else self._place
        if self._pairs is not None:
            self._pairs |= {place for place in wanted if place.key}
            if len(self._pairs) > EXPECTED_KEYS:
                self._pairs = None
        return {row.place: row.body or _NEW for row in page.rows}

    def expect(self) -> Expect | None:
        """Returns the expectation of the commit: what was read has not changed since. None if nothing was read."""
        if self._place is None or self._pairs == set():  # TRUNCATE alone is valid in any state
            return None
        token = str(self._log.token(Position(self._place + 1)))
        return token if self._pairs is None else (token, self._pairs)


class BatchComparison:
    """Computes the changes of one batch. Each row is compared with the result of earlier rows of the batch, else with the state.

    All changes are held in memory until the batch ends, since only then its checksum and its keys are known.

    Args:
        log: A log that keeps its state.
        reads: Notes what is read from the state.
        limit: Maximum bytes of changes to hold.
        timeout: Seconds to wait until the state reaches the visible version.

    Attributes:
        unchanged: Rows that change nothing: upserts of equal content, and removals or expiries of entities that do not exist.
        content: Count and checksum of all rows of the batch, changed or not, independent of their order.
        nbytes: Bytes of these rows.

    Raises:
        StateOff, StateIncomplete, StateUnusable: If the log has no usable state.
        TimeoutError: If the state does not reach the visible version within ``timeout``.
    """

    def __init__(self, log: ChangeLog, reads: StateReads, limit: int, timeout: float) -> None:
        self.unchanged: int = 0
        self.content: RowSum = RowSum()
        self.nbytes: int = 0
        self._reads = reads
        self._limit = limit
        self._held = 0
        self._now: dict[RowPlace, bytes | None] = {}  # bodies as changed by the batch so far; None if removed
        self._cleared: set[str] = set()
        log.state.wait(log.visible, timeout)

    def decided(self, batch: Iterable[list[Columns]]) -> Iterator[list[Columns]]:
        """Yields all changes of a batch in one list; yields nothing if the batch changes nothing.

        Raises:
            ComparisonTooLarge: If the changes exceed ``limit`` bytes.
        """
        found: list[Columns] = []
        for columns in (one for window in batch for one in window):
            self.content.add(columns)
            self.nbytes += columns.nbytes
            changes = list(self._changes(columns))
            self.unchanged += columns.count - len(changes)
            if changes:
                found.append(columns_of(changes))
        if found:
            yield found

    def _changes(self, columns: Columns) -> Iterator[Mutation]:
        names, ids = columns.entity_types, columns.type_ids
        types = repeat(names[0]) if ids is None else map(names.__getitem__, ids)
        bodies = repeat(None) if columns.body is None else columns.body
        places = [RowPlace(name, key or b"") for name, key in zip(types, columns.key, strict=False)]
        stored = self._reads.found({*places})
        for kind, place, body in zip(columns.kinds.tobytes(), places, bodies, strict=False):
            operation = Operation(kind % 16)
            if operation is Operation.TRUNCATE:
                self._cleared.add(place.entity_type)
                self._now = {
                    one: is_ for one, is_ in self._now.items() if one.entity_type != place.entity_type
                }
                yield truncate(place.entity_type)
                continue
            there = stored.get(place)
            if place.entity_type in self._cleared:
                there = None
            change = _change(operation, place, body, self._now.get(place, there))
            if change is None:
                continue
            self._now[place] = body
            self._held += _HELD + 2 * len(body or b"") + len(change.before or b"")
            if self._held > self._limit:
                raise ComparisonTooLarge(self._limit)
            yield change


def _change(operation: Operation, place: RowPlace, body: bytes | None, old: bytes | None) -> Mutation | None:
    """Returns the change that a row makes to an entity whose body is ``old``; None if it changes nothing."""
    name, key = place
    if operation is not Operation.UPSERT:
        if old is None:
            return None
        return (
            remove(name, key, before=old) if operation is Operation.REMOVE else expire(name, key, before=old)
        )
    assert body is not None  # the JSON of a struct is never null
    if body == old:
        return None
    if old is None:
        return upsert(name, key, body, before=_NEW, changed=changed_fields(None, body))
    try:
        changed = changed_fields(old, body)
    except InvalidChange:  # another writer committed a body that is not a JSON object
        return upsert(name, key, body, before=old)
    return upsert(name, key, body, before=old, changed=changed) if changed else None

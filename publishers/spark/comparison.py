"""What the rows of a batch change of the state of their log: some are new, some differ, and some say what is known already."""

from collections.abc import Iterable, Iterator
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

__all__ = ["BatchComparison"]

_NEW: Final = b"null"  # the image before of an entity that was not there
_HELD: Final = 256  # bytes of a change that is held, besides its images


class BatchComparison:
    """Decides what one batch changes. A row is compared with what the rows before it in the batch have left, else with the state.

    Everything that is decided is held until the batch is over, which tells its checksum and which keys it is about.

    Args:
        log: A log that keeps its state.
        limit: Most bytes that are held.
        timeout: Seconds for which the state may be behind what is visible.

    Attributes:
        unchanged: Rows that say what is known already: of equal content, or of the end of what is not there.
        content: Number and checksum of all rows of the batch, whatever they change, in any order.
        nbytes: Bytes of these rows.

    Raises:
        StateOff, StateIncomplete, StateUnusable: If the log has no state.
        TimeoutError: If its state is still behind.
    """

    def __init__(self, log: ChangeLog, limit: int, timeout: float) -> None:
        self.unchanged = 0
        self.content = RowSum()
        self.nbytes = 0
        self._log = log
        self._limit = limit
        self._held = 0
        self._place: int | None = None  # the oldest version as of which something was looked at
        self._pairs: set[RowPlace] | None = set()  # what was looked at; None if that is too much
        self._now: dict[RowPlace, bytes | None] = {}  # what the batch has made of entities so far
        self._cleared: set[str] = set()
        log.state.wait(log.visible, timeout)

    @property
    def expect(self) -> Expect | None:
        """What the log must be for that to be right; None if nothing was looked at."""
        if self._place is None or self._pairs == set():  # TRUNCATE alone is right whatever there is
            return None
        token = str(self._log.token(Position(self._place + 1)))
        return token if self._pairs is None else (token, self._pairs)

    def decided(self, batch: Iterable[list[Columns]]) -> Iterator[list[Columns]]:
        """The changes of a batch, all in one list; none if it changes nothing.

        Raises:
            ComparisonTooLarge: If they are more than may be held.
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
        stored = self._looked_up(places)
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

    def _looked_up(self, places: list[RowPlace]) -> dict[RowPlace, bytes]:
        """The bodies of entities in the state."""
        wanted = set(places)
        page = self._log.state.find(wanted)
        # What comes later is of this version or a newer one. It is right all the same if nothing of it was changed since.
        self._place = page.version if self._place is None else self._place
        if self._pairs is not None:
            self._pairs |= {place for place in wanted if place.key}
            if len(self._pairs) > EXPECTED_KEYS:
                self._pairs = None
        return {row.place: row.body or _NEW for row in page.rows}


def _change(operation: Operation, place: RowPlace, body: bytes | None, old: bytes | None) -> Mutation | None:
    """What a row makes of an entity; None if nothing."""
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
    except InvalidChange:  # what another writer has committed is no object
        return upsert(name, key, body, before=old)
    return upsert(name, key, body, before=old, changed=changed) if changed else None

"""Dead letters of a group, stored as a change log beside the group's log."""

from collections.abc import Callable
from typing import Any, Protocol

from publishers.criteria.criteria import Criteria
from publishers.log.history import History
from publishers.model.change import Operation
from publishers.model.position import Position
from publishers.mutations.mutation import remove, upsert
from publishers.views.view import Content

__all__ = ["DEAD_TYPE", "DeadLetterLog"]

DEAD_TYPE = "dead_letter"
"""The entity type of dead letters; their keys are positions."""

_PAGE = 1_000


class _Beside(Protocol):
    """The log of the letters; see ``ChangeLog``."""

    @property
    def oldest(self) -> Position: ...

    @property
    def head(self) -> Position: ...

    def commit(self, mutations: Any, *, durable: bool = False) -> Any: ...

    def history(self, criteria: Any, since: Any, limit: int, *, content: Content) -> History: ...

    def close(self) -> None: ...


class DeadLetterLog:
    """See `publishers.groups.ports.DeadLog`.

    Args:
        log: The change log that holds the letters.
    """

    def __init__(self, log: _Beside) -> None:
        self._log = log
        self.close: Callable[[], None] = log.close

    def put(self, key: str, letter: dict[str, Any]) -> None:
        """See `DeadLog.put`."""
        self._log.commit([upsert(DEAD_TYPE, key, letter)], durable=True)

    def letters(self) -> dict[str, Any]:
        """See `DeadLog.letters`."""
        found: dict[str, Any] = {}
        since, more = self._log.oldest, True
        while more:
            page = self._log.history(Criteria.of(None), since, _PAGE, content=Content.BODY)
            for change in page.changes:
                if change.operation is Operation.UPSERT and change.key is not None:
                    found[change.key] = change.body
                elif change.operation is Operation.REMOVE and change.key is not None:
                    found.pop(change.key, None)
            since, more = page.next, page.more
        return found

    def remove(self, keys: list[str]) -> None:
        """See `DeadLog.remove`."""
        if keys:
            self._log.commit([remove(DEAD_TYPE, key) for key in keys], durable=True)

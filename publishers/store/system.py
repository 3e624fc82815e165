"""The system log of a store: the stored changes of its logs, and the events of its logs in this process."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeGuard

from flow.bridges.iterators import IterablePublisher
from flow.clock import SYSTEM_CLOCK
from publishers.commits.group_commit import Commit, Committer
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.errors import LogReadOnly
from publishers.log.changelog import ChangeLog
from publishers.log.feed import ChangeFeed
from publishers.log.history import History
from publishers.log.process_events import HostBoard, HostingSubscription
from publishers.log.readable import AnyCriteria
from publishers.model.change import Area
from publishers.mutations.mutation import Mutation
from publishers.store.log_entries import SYSTEM
from publishers.wal import Wal

__all__ = ["SystemLog"]

_NOTHING = Criterion(areas={Area.HOST})
"""Matches no stored change."""


class SystemLog(ChangeLog):
    """A change log that its store alone writes. It is read like any other log, with two differences.

    *Criteria.* None matches everything that is stored: of each transaction the TRANSACTION event, then its one change of
    area ENGINE. An empty list matches nothing.

    *Events of this process* (area HOST, see ``publishers.log.process_events``) are not stored. A subscription whose criteria name
    the area receives those that follow its beginning: ``Criterion(areas={Area.ENGINE, Area.HOST})``.

    Attributes:
        board: Publishes the events of this process.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        self._pen = (
            threading.local()
        )  # held by the thread that records something for the store; `_writer` asks from the start
        super().__init__(*args, **named)
        self.name = SYSTEM
        self.board: HostBoard = HostBoard(lambda: self.head.version - 1, SYSTEM_CLOCK.now_us)

    def _feed(self, criteria: Iterable[AnyCriteria], *args: Any) -> ChangeFeed:
        listed = [tuple(criterion) if _several(criterion) else criterion for criterion in criteria]
        nothing = bool(listed) and not any(criterion != () for criterion in listed)
        given = [_NOTHING] if nothing else listed
        feed = super()._feed(given, *args)
        hosted = [one for one in _criterions(listed) if Area.HOST in one.areas]
        if hosted:
            feed.kind = partial(HostingSubscription, board=self.board, wanted=Predicate(Criteria.of(hosted)))
        return feed

    def history(self, criteria: AnyCriteria = None, *args: Any, **named: Any) -> History:
        """Stored changes of the logs of the store, as a bounded list; the arguments are those of ``ChangeLog.history``."""
        listed = tuple(criteria) if _several(criteria) else criteria
        return super().history(_NOTHING if listed == () else listed, *args, **named)

    def commit(self, *args: Any, **named: Any) -> Commit:
        """Commits for the store; raises LogReadOnly for any other caller."""
        self._writer()
        return super().commit(*args, **named)

    def record(self, mutation: Mutation) -> Commit:
        """Commits a transaction of one change, durably; for the store."""
        self._pen.held = True
        try:
            return self.commit([mutation], durable=True)
        finally:
            self._pen.held = False

    def _writer(self) -> tuple[Committer, Wal]:
        """The committer and the WAL; every way of writing calls this.

        Raises:
            LogReadOnly: If the caller is not ``record``.
        """
        if not getattr(self._pen, "held", False):
            raise LogReadOnly(self.path, "is the system log, which its store writes,")
        return super()._writer()


def _several(criterion: AnyCriteria) -> TypeGuard[Iterable[Criterion]]:
    """Whether the criteria are an iterable of several."""
    single = (str, bytes, Mapping, Criteria, Criterion, IterablePublisher)
    return isinstance(criterion, Iterable) and not isinstance(criterion, single)


def _criterions(criteria: Iterable[AnyCriteria]) -> Iterator[Criterion]:
    """Each single criterion, before they are merged: criteria for everything that is stored must not absorb those for HOST."""
    for criterion in criteria:
        if isinstance(criterion, Criterion):
            yield criterion
        elif isinstance(criterion, Criteria):
            yield from criterion.criterions
        elif criterion is not None:
            yield from criterion

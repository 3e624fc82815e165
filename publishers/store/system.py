"""The system log of a store: what becomes of its logs, and what happens to them in this process."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeGuard

from flow.bridges.iterable import IterablePublisher
from flow.clock import SYSTEM_CLOCK
from publishers.commits.group_commit import Commit, Committer
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.errors import LogReadOnly
from publishers.log.changelog import ChangeLog
from publishers.log.feed import ChangeFeed
from publishers.log.history import History
from publishers.log.process_events import HostBoard, HostingSubscription
from publishers.log.readable import Wishes
from publishers.model.change import Area
from publishers.mutations.mutation import Mutation
from publishers.store.log_entries import SYSTEM
from publishers.wal import Wal

__all__ = ["SystemLog"]

_NOTHING = Criterion(areas={Area.HOST})
"""What no stored change is."""


class SystemLog(ChangeLog):
    """A change log that its store writes. It is read and subscribed to like any other, with two differences.

    *Criteria.* None mean everything that is stored: of each transaction the TRANSACTION event, then its one change of
    area ENGINE. An empty list means nothing at all.

    *Events of this process* (area HOST, see ``publishers.log.process_events``) are not stored. They come, from the moment of the
    subscription on, to those who name the area: ``Criterion(areas={Area.ENGINE, Area.HOST})``.

    Attributes:
        board: Where events of this process are put up.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.name = SYSTEM
        self._pen = threading.local()  # held by the thread that records something for the store
        self.board = HostBoard(lambda: self.head.version - 1, SYSTEM_CLOCK.now_us)

    def _feed(self, wishes: Iterable[Wishes], *args: Any) -> ChangeFeed:
        listed = [tuple(wish) if _several(wish) else wish for wish in wishes]
        nothing = bool(listed) and not any(wish != () for wish in listed)
        given = [_NOTHING] if nothing else listed
        feed = super()._feed(given, *args)
        hosted = [one for one in _criterions(listed) if Area.HOST in one.areas]
        if hosted:
            feed.kind = partial(HostingSubscription, board=self.board, wanted=Predicate(Criteria.of(hosted)))
        return feed

    def history(self, wishes: Wishes = None, *args: Any, **named: Any) -> History:
        """What became of the logs of the store, as a bounded list; the arguments are those of ``ChangeLog.history``."""
        listed = tuple(wishes) if _several(wishes) else wishes
        return super().history(_NOTHING if listed == () else listed, *args, **named)

    def commit(self, *args: Any, **named: Any) -> Commit:
        """For the store; for anybody else it raises LogReadOnly."""
        self._writer()
        return super().commit(*args, **named)

    def record(self, mutation: Mutation) -> Commit:
        """Commits the one change of a transaction; for the store."""
        self._pen.held = True
        try:
            return self.commit([mutation], durable=True)
        finally:
            self._pen.held = False

    def _writer(self) -> tuple[Committer, Wal]:
        """What every way of writing asks for.

        Raises:
            LogReadOnly: Unless it is the store that writes.
        """
        if not getattr(self._pen, "held", False):
            raise LogReadOnly(self.path, "is the system log, which its store writes,")
        return super()._writer()


def _several(wish: Wishes) -> TypeGuard[Iterable[Criterion]]:
    """Whether it is a list, or the like, of wishes."""
    single = (str, bytes, Mapping, Criteria, Criterion, IterablePublisher)
    return isinstance(wish, Iterable) and not isinstance(wish, single)


def _criterions(wishes: Iterable[Wishes]) -> Iterator[Criterion]:
    """Every single wish, before they are made one: a wish for everything stored swallows none for area HOST."""
    for wish in wishes:
        if isinstance(wish, Criterion):
            yield wish
        elif isinstance(wish, Criteria):
            yield from wish.criterions
        elif wish is not None:
            yield from wish

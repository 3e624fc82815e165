"""What every opening of a log offers to readers: feeds, history, positions."""

from collections.abc import Iterable

from publishers.change import Content, Images, View
from publishers.criteria import Criteria, Criterion
from publishers.errors import InvalidOption, LogClosed, PublishingOff
from publishers.feed import ChangeFeed
from publishers.history import History, read_history
from publishers.lineage import Lineage
from publishers.matching import Predicate
from publishers.position import Position, PositionToken
from publishers.service import Service

__all__ = ["ReadableLog", "Wishes"]

Wishes = Criteria | Criterion | Iterable[Criterion] | None


class ReadableLog:
    """The reading half of a log, the same for its owner and for those who follow it.

    Attributes:
        name: What the log is called.
    """

    name: str

    def __init__(self, service: Service, lineage: Lineage) -> None:
        self._service = service
        self._lineage = lineage

    def changes(
        self,
        *wishes: Wishes,
        since: Position | str | PositionToken | None = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
    ) -> ChangeFeed:
        """The changes that fulfil any of the wishes, as a publisher.

        Args:
            wishes: ``Criterion`` objects or ``Criteria``; none, or None, for everything.
            since: The first position to deliver, as a ``Position`` or as the text that a client kept; None for the next
                version at the time of each subscribe.
            until: The last version to deliver, after which subscribers are completed; None for ever.
            content: Whether bodies are wanted.
            images: Which images are wanted with them.

        Raises:
            InvalidCriteria: If a wish is not one.
            InvalidOption: If ``until`` is no version.
            PositionError: If the text of ``since`` is not a position of this log.
        """
        if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
            raise InvalidOption("until", until, "a version, from 0, or None")
        if since is not None and not isinstance(since, Position):
            since = self.position_of(since)
        view = View(Content(content), Images(images))
        return ChangeFeed(
            self._service,
            Criteria.of(*wishes),
            since=since,
            until=until,
            view=view,
            check=self._check_published,
        )

    def unsubscribe(self, subscription_id: int) -> bool:
        """Cancels the subscription of an id (``ChangeSubscription.id``), which gets no further signal.

        Returns:
            Whether there was one.
        """
        found = self._service.registry.find(subscription_id)
        if found is None:
            return False
        found.cancel()
        return True

    def history(
        self,
        wishes: Wishes = None,
        since: Position | None = None,
        limit: int = 100,
        *,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
    ) -> History:
        """Past changes as a bounded list; reads the disk on the calling thread.

        Args:
            wishes: As for ``changes``.
            since: Where to begin; None for the oldest kept position.
            limit: Most changes to return, from 1 to 1,000,000.
            content: Whether bodies are wanted.
            images: Which images are wanted with them.

        Raises:
            HistoryPruned: If ``since`` is no longer kept.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1_000_000:
            raise InvalidOption("limit", limit, "a whole number from 1 to 1000000")
        self._check_open()
        start = self.oldest if since is None else since
        criteria = Criteria.of(wishes)
        return read_history(
            self._service, Predicate(criteria), start, limit, View(Content(content), Images(images))
        )

    # Positions.

    @property
    def oldest(self) -> Position:
        """The oldest position that is kept."""
        return self._service.oldest

    @property
    def head(self) -> Position:
        """The position after the newest visible version."""
        return self._service.head

    def token(self, position: Position) -> PositionToken:
        """A position with the history it belongs to; its text is what clients keep."""
        return self._lineage.token(position)

    def position_of(self, token: str | PositionToken) -> Position:
        """The position that a client kept.

        Raises:
            PositionMalformed: If the text is not a position.
            PositionForeign: If it belongs to another log.
            PositionForked: If it lies beyond what survived of its epoch.
            PositionAhead: If it lies beyond the end of the log.
            HistoryPruned: If it is older than what is kept.
        """
        kept = token if isinstance(token, PositionToken) else PositionToken.parse(token)
        return self._lineage.judge(kept, self.oldest, self.head)

    def _check_open(self) -> None:
        if self._service.closed:
            raise self._service.reason or LogClosed()

    def _check_published(self) -> None:
        self._check_open()
        if not self._service.options.publish:
            raise PublishingOff(self.name)

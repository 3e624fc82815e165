"""The reading face of every opening of a log: feeds, history, positions."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, TypedDict, Unpack, get_args, overload

from flow.misuse import names_arguments
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.errors import (
    HistoryPruned,
    InvalidOption,
    LogClosed,
    LogError,
    PublishingOff,
    SnapshotGone,
    StateOff,
)
from publishers.fanout.gap import OnGap
from publishers.log.feed import ChangeFeed, ModelFeed
from publishers.log.history import History, PageBounds, read_back, read_history
from publishers.log.operations import OperatedLog
from publishers.log.snapshot_feed import Holding, SnapshotFeed
from publishers.log.start import Since
from publishers.model.change import Change, Operation, row_id
from publishers.model.position import Position, PositionToken, Start, check_position
from publishers.options import check_switches, check_whole
from publishers.snapshots import SnapshotChange, SnapshotCursor, SnapshotMode, SnapshotSource
from publishers.snapshots.pages import KeyRange, Pages, SourcePages, SourceThreads, StatePages
from publishers.snapshots.source import checked_sources
from publishers.state import CompactedState
from publishers.views.entities import M, ModelChange, Models
from publishers.views.masking import Mask, Rule
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, View

__all__ = ["SOURCE_THREADS", "AnyCriteria", "ReadableLog"]

SOURCE_THREADS: Final = 4
"""Most threads that read pages of snapshot sources at a time: as many connections to the database of the sources. While all of them wait,
other subscribers wait for their rows, and for nothing else."""

AnyCriteria = Criteria | Criterion | Iterable[Criterion] | None
Source = SnapshotSource | Iterable[SnapshotSource] | None
Fields = Projection | Collection[str] | None
Masking = Mask | Mapping[str, Rule | str | Mapping[str, Any]] | None


class Reading(TypedDict, total=False):
    """Start, end and view of a feed; see ``ReadableLog.changes``."""

    since: Since
    until: int | None
    content: Content
    images: Images
    fields: Fields
    mask: Masking
    integers: Integers
    view: View | None
    whole: bool
    on_gap: OnGap
    snapshot: SnapshotMode | None
    source: Source


class ReadableLog(OperatedLog):
    """The reading half of a log, the same for its owner and its followers.

    Attributes:
        name: Name of the log.
        failure: Why a follower, and its subscribers with it, has ended: ``LogReplaced``, ``LogGone``, ``WalCorrupted`` or
            ``FormatTooNew``. None while it follows, and after an ordinary close.
    """

    name: str
    failure: Exception | None
    _state: CompactedState | None = None
    _snapshot_hold: Holding | None = None
    _sources: Sequence[SnapshotSource] = ()

    @overload
    def changes(self, *criteria: AnyCriteria, as_: None = None, **reading: Unpack[Reading]) -> ChangeFeed: ...

    @overload
    def changes(
        self, *criteria: AnyCriteria, as_: type[M], **reading: Unpack[Reading]
    ) -> ModelFeed[ModelChange[M]]: ...

    @overload
    def changes(
        self, *criteria: AnyCriteria, as_: Mapping[str, type[M]], **reading: Unpack[Reading]
    ) -> ModelFeed[ModelChange[M]]: ...

    @names_arguments(Criterion)
    def changes(
        self,
        *criteria: AnyCriteria,
        since: Since = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Fields = None,
        mask: Masking = None,
        integers: Integers = Integers.NUMBER,
        view: View | None = None,
        whole: bool = False,
        on_gap: OnGap = "fail",
        snapshot: SnapshotMode | None = None,
        source: Source = None,
        as_: type[Any] | Mapping[str, type[Any]] | None = None,
    ) -> ChangeFeed | ModelFeed[Any]:
        """Returns a publisher of the changes that match any of the criteria.

        Args:
            criteria: ``Criterion`` objects or ``Criteria``; without any, or with None, every change matches.
            since: The first change to deliver: a ``Position``, the text that a client kept, a version, a ``Commit``, the id
                of a transaction, a time (the first version committed then or later), or ``"earliest"``. None or
                ``"latest"``: the next version. ``"earliest"``, ``"latest"`` and None are resolved at each subscribe. ``"state"``:
                first the entities that exist, as rows of operation READ, then every change after them; a cursor kept before the
                rows had ended continues behind its row.
            until: The last version to deliver, after which subscribers are completed; None for no end.
            content: Whether changes have bodies.
            images: Which images changes with bodies have.
            fields: Paths of an entity to include, such as ``customer.name``; None for all.
            mask: Replacement for the value of each path: a text, or ``Redact``, ``Hash``, ``Partial``, ``Drop``.
            integers: Whether whole numbers beyond 2^53 are numbers, or text for readers that keep numbers in doubles.
            view: Replaces the last five arguments.
            on_gap: What to do if retention has deleted changes that were still to be read: ``"fail"`` ends the subscription with
                ``HistoryPruned``; ``"jump"`` continues at the oldest position, and calls the subscriber's ``on_gap(gap)``; a
                callable continues likewise, and is called itself.
            snapshot: With ``since="state"``: ``"initial_only"`` completes subscribers after the rows. With any ``since``:
                ``"on_gap"`` replaces deleted history by rows of the present, between ``SnapshotBegin`` and ``SnapshotEnd``;
                ``"initial"`` allows ``subscription.refresh`` to request rows; ``"never"`` delivers no rows. None means
                ``"initial"`` with ``since="state"`` or a source, else ``"never"``.
            source: Source of rows, such as a ``SqlSource``; several for several entity types. None means the sources of
                ``snapshots_from``, else the state that the log keeps. Pass the same source with a cursor that was kept before
                the rows had ended.
            whole: Whether a start inside a transaction delivers that transaction again from its beginning.
            as_: A dataclass, ``msgspec.Struct`` or pydantic model for ``body`` and ``before``, or a mapping from entity types to
                such classes. It implies ``Content.BODY``. A body that does not fit ends the subscription with
                ``BodyMismatch``.

        Raises:
            InvalidCriteria: If a criterion is invalid.
            InvalidOption: If an argument is invalid: ``until`` is not a version, ``since`` names no position, ``fields`` or
                ``mask`` contain something that is not a path, or ``as_`` is not such a class.
            PositionError: If ``since`` is not a position of this log, or cannot be read from.
            SnapshotGone: If the cursor of a snapshot can no longer be continued, unless ``snapshot`` is ``"on_gap"``.
            StateOff: If the state is requested, and the log does not keep it.
            LogForked: In a child of ``fork``, like every method except ``close``.
        """
        if until is not None:
            check_whole("until", until, "a version, from 0, or None")
        if on_gap not in ("fail", "jump") and not callable(on_gap):
            raise InvalidOption("on_gap", on_gap, "'fail', 'jump' or a callable")
        check_switches(whole=whole)
        self._service.check_here()
        rows_first = since == "state" or isinstance(since, SnapshotCursor) or SnapshotCursor.is_text(since)
        if rows_first or snapshot is not None or source is not None:
            if as_ is not None:
                raise InvalidOption(
                    "as_", as_, "None with the state; rows and changes have bodies to be parsed"
                )
            view = _view(view, content, images, fields, mask, integers)
            return self._snapshot_feed(criteria, since, until, view, on_gap, snapshot, source)
        start = self._places.find(since, pruned=on_gap != "fail")
        if whole and isinstance(start, Position):
            start = Position(start.version)
        models = None if as_ is None else Models(as_, ModelChange)
        view = _view(view, content if models is None else Content.BODY, images, fields, mask, integers)
        if models is not None and view.content is Content.HEADER:
            raise InvalidOption("view", view, "one with Content.BODY, as as_ is given")
        feed = self._feed(criteria, start, until, view, on_gap)
        return feed if models is None else ModelFeed(feed, models.change)

    def _feed(
        self,
        criteria: Iterable[AnyCriteria],
        since: Position | Start,
        until: int | None,
        view: View,
        on_gap: OnGap,
    ) -> ChangeFeed:
        wanted = Criteria.of(*criteria)
        return ChangeFeed(self._service, wanted, since, until, view, on_gap, self._check_published)

    def _snapshot_feed(
        self,
        criteria: Iterable[AnyCriteria],
        since: Since | SnapshotCursor,
        until: int | None,
        view: View,
        on_gap: OnGap,
        mode: SnapshotMode | None,
        source: Source,
    ) -> ChangeFeed:
        mode = "initial" if mode is None else mode
        if mode not in get_args(SnapshotMode):
            raise InvalidOption("snapshot", mode, f"one of {', '.join(map(repr, get_args(SnapshotMode)))}")
        begin: SnapshotCursor | None = None
        start: Position | Start = Position(1)
        rows_first = True
        if isinstance(since, SnapshotCursor) or SnapshotCursor.is_text(since):
            begin = since if isinstance(since, SnapshotCursor) else SnapshotCursor.parse(since)
            try:
                start = self._places.in_snapshot(begin)
            except SnapshotGone:
                if mode != "on_gap":
                    raise
                begin = None  # new rows replace those of the lost snapshot
        elif since != "state":
            rows_first = False
            start = self._places.find(since, pruned=mode == "on_gap" or on_gap != "fail")
        if not rows_first and mode == "never":
            return self._feed(criteria, start, until, view, on_gap)
        if mode == ("never" if rows_first else "initial_only"):
            raise InvalidOption("snapshot", mode, "'initial', 'initial_only' or 'on_gap' with since='state'")
        return SnapshotFeed(
            self._service,
            Criteria.of(*criteria),
            start,
            until,
            view,
            on_gap,
            self._check_published,
            pages=self._pages(source, asked=not rows_first and mode == "initial"),
            lineage=self._places.lineage,
            holding=self._snapshot_hold,
            start=begin,
            mode=mode,
            rows_first=rows_first,
        )

    def snapshots_from(self, *sources: SnapshotSource) -> None:
        """Sets the default sources of rows, for subscribers that pass no source, as no remote subscriber does.

        Subscribers of this opening use them that begin with ``"state"``, request rows ``again``, or lose history with
        ``snapshot="on_gap"``; running snapshots keep their sources. A cursor kept before the rows had ended continues with the
        sources set at that time, so set the same ones after a restart.

        Args:
            sources: Such as a ``SqlSource``, each of another entity type. None at all means the state that the log keeps, which
                is the initial setting.

        Raises:
            InvalidOption: If a source is invalid, or two sources are of one entity type.
        """
        self._sources = checked_sources(sources) if sources else ()

    @cached_property
    def _source_threads(self) -> SourceThreads:
        return SourceThreads(SOURCE_THREADS, f"penstock-{self.name}-rows")

    def _pages(self, source: Source, *, asked: bool) -> Callable[[KeyRange], Pages]:
        """Returns the maker of pages of rows; ``asked``: rows are read only on request, so the state may be missing until then."""
        if source is not None:
            return partial(SourcePages, self._service, self._source_threads, checked_sources(source))
        if self._sources:
            return partial(SourcePages, self._service, self._source_threads, self._sources)
        return (lambda keys: StatePages(self.state, keys)) if asked else partial(StatePages, self.state)

    @property
    def closed(self) -> bool:
        """Whether the log was closed, or was opened by the process from which this one was forked."""
        return self._service.closed

    @property
    def state(self) -> CompactedState:
        """The newest body of each entity, kept beside the log by its owner if opened with ``state=True``.

        Raises:
            StateOff: If the log keeps no state, or this opening follows the log.
            LogClosed: If the log was closed.
        """
        self._check_open()
        if self._state is None:
            raise StateOff(self.name)
        return self._state

    @names_arguments(Criterion)
    def history(
        self,
        criteria: AnyCriteria = None,
        since: Since = None,
        limit: int = 100,
        *,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Fields = None,
        mask: Masking = None,
        integers: Integers = Integers.NUMBER,
        view: View | None = None,
        reverse: bool = False,
        max_bytes: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> History:
        """Returns past changes as a bounded list; reads the disk on the calling thread.

        Args:
            criteria: As for ``changes``.
            since: The first change to return, as for ``changes``; None for the oldest, or with ``reverse`` for the newest.
            limit: Most changes to return, from 1 to 1,000,000.
            content: Whether changes have bodies.
            images: Which images changes with bodies have.
            fields: As for ``changes``.
            mask: As for ``changes``.
            integers: As for ``changes``.
            view: As for ``changes``.
            reverse: Versions from the newest to the oldest; in each the TRANSACTION event first, then the changes from the last
                to the first.
            max_bytes: Bytes of changes after which the page ends; each change counts its key and images and 1 KiB. A
                single larger record makes a page of its own. None for no bound.
            check: Called before each record of the log that is examined; its exceptions end the reading.

        Raises:
            HistoryPruned: If ``since`` is no longer kept.
            PositionAhead: If ``since`` lies beyond the end of the log; a reversed history begins at the newest change instead.
            LogReplaced, LogGone: If this opening follows a log that was replaced or removed.
        """
        check_whole("limit", limit, "a whole number from 1 to 1000000", 1, 1_000_000)
        if max_bytes is not None:
            check_whole("max_bytes", max_bytes, "a number of bytes, from 1, or None", 1)
        if check is not None and not callable(check):
            raise InvalidOption("check", check, "a callable without arguments, or None")
        bounds = PageBounds(limit, max_bytes, check or (lambda: None))
        check_switches(reverse=reverse)
        self._check_open()
        view = _view(view, content, images, fields, mask, integers)
        predicate = Predicate(Criteria.of(criteria))
        try:
            found = self._places.find(since, check=bounds.check)
            start = self.oldest if since is None and not reverse else self._resolved(found)
            read = read_back if reverse else read_history
            return read(self._service, predicate, start, bounds, view)
        except (LogError, HistoryPruned) as error:
            raise self._service.explain(error) from error.__cause__

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
        """Returns a position with the history it belongs to; clients keep its text."""
        check_position("position", position)
        self._service.check_here()
        return self._places.lineage.token(position)

    def cursor(self, change: Change) -> str:
        """Returns the text for ``changes(since=text)`` that continues behind a change; also behind a row of a snapshot."""
        if not isinstance(change, Change):
            raise InvalidOption("change", change, "a Change, as subscribers get it")
        return str(change.cursor if isinstance(change, SnapshotChange) else self.token(change.after))

    def idempotency_key(self, change: Change) -> str:
        """Returns a text that identifies this change: equal in every replay and over every transport, unique over all logs.

        For a row of a snapshot (operation READ, or without a transaction) it contains the entity as well, since all rows of a page have one position.
        """
        if not isinstance(change, Change):
            raise InvalidOption("change", change, "a Change, as subscribers get it")
        found = self._places.lineage.change_id(change.position)
        return row_id(found, change) if change.operation is Operation.READ or not change.count else found

    def position_of(self, token: str | PositionToken, *, ahead: bool = False) -> Position:
        """Returns the position of a token that a client kept.

        Args:
            token: The token.
            ahead: Whether to return also a position that the owner has made visible and this opening has not read yet.

        Raises:
            PositionMalformed: If the text is not a token.
            PositionForeign: If it belongs to another log.
            PositionForked: If it lies beyond the surviving part of its epoch.
            PositionAhead: If it lies beyond the end of the log.
            HistoryPruned: If it is no longer kept.
        """
        self._service.check_here()
        return self._places.kept(token, ahead=ahead)

    def position_at(self, moment: datetime) -> Position:
        """Returns the first position that was committed at or after a moment; the head if there is none yet.

        Commit times rise strictly with the versions, whatever the clock did, so only a few frames are read.

        Raises:
            InvalidOption: If ``moment`` has no time zone.
        """
        self._check_open()
        return self._places.at(moment)

    def time_of(self, position: Position | int) -> datetime:
        """Returns the commit time of a position or a version.

        Raises:
            PositionAhead: If it is not visible yet.
            HistoryPruned: If it is no longer kept.
        """
        self._check_open()
        return self._places.time(position)

    def _check_open(self) -> None:
        if self._service.closed:
            raise self._service.reason or LogClosed()

    def _check_published(self) -> None:
        self._check_open()
        if not self._service.options.publish:
            raise PublishingOff(self.name)


def _view(
    view: View | None, content: Content, images: Images, fields: Fields, mask: Masking, integers: Integers
) -> View:
    """Returns the view that was passed as a whole, or makes it from its parts."""
    if view is None:
        return View.of(content, images, fields=fields, mask=mask, integers=integers)
    if not isinstance(view, View):
        raise InvalidOption("view", view, "what View.of() returned, or None")
    return view

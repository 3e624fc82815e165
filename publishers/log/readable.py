"""What every opening of a log offers to readers: feeds, history, positions."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypedDict, Unpack, get_args, overload
from uuid import UUID

from publishers.commits.label import RemoteProducer, producer_id
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
from publishers.log.operations import OperatedLog, Tell
from publishers.log.snapshot_feed import Holding, SnapshotFeed
from publishers.log.start import Since
from publishers.model.change import Change, Operation, row_id
from publishers.model.position import Position, PositionToken, Start, check_position
from publishers.options import check_switches, check_whole
from publishers.snapshots import SnapshotChange, SnapshotCursor, SnapshotMode, SnapshotSource
from publishers.snapshots.pages import KeyRange, Pages, SourcePages, StatePages
from publishers.snapshots.source import checked_sources
from publishers.snapshots.source_threads import SourceThreads
from publishers.state import CompactedState
from publishers.views.entities import M, ModelChange, Models
from publishers.views.masking import Mask, Rule
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, View

__all__ = ["ReadableLog", "Tell", "Wishes"]

Wishes = Criteria | Criterion | Iterable[Criterion] | None
Source = SnapshotSource | Iterable[SnapshotSource] | None
Fields = Projection | Collection[str] | None
Masking = Mask | Mapping[str, Rule | str | Mapping[str, Any]] | None


class Reading(TypedDict, total=False):
    """From where, how far and how changes are read; see ``ReadableLog.changes``."""

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
    """The reading half of a log, the same for its owner and for those who follow it.

    Attributes:
        name: What the log is called.
        failure: Why a follower has ended, and its subscribers with it: ``LogReplaced``, ``LogGone``, ``WalCorrupted`` or
            ``FormatTooNew``. None as long as it goes on, and if it was closed.
    """

    name: str
    failure: Exception | None
    _state: CompactedState | None = None
    _snapshot_hold: Holding | None = None
    _sources: Sequence[SnapshotSource] = ()

    @overload
    def changes(self, *wishes: Wishes, as_: None = None, **reading: Unpack[Reading]) -> ChangeFeed: ...

    @overload
    def changes(
        self, *wishes: Wishes, as_: type[M], **reading: Unpack[Reading]
    ) -> ModelFeed[ModelChange[M]]: ...

    @overload
    def changes(
        self, *wishes: Wishes, as_: Mapping[str, type[M]], **reading: Unpack[Reading]
    ) -> ModelFeed[ModelChange[M]]: ...

    def changes(
        self,
        *wishes: Wishes,
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
        """The changes that fulfil any of the wishes, as a publisher.

        Args:
            wishes: ``Criterion`` objects or ``Criteria``; none, or None, for everything.
            since: The first change to deliver: a ``Position``, the text that a client kept, a version, a ``Commit``, the id
                of a transaction, a time (the first version committed then or later), or ``"earliest"``. None or
                ``"latest"``: the next version. The last three are resolved at the time of each subscribe. ``"state"``:
                first the entities that there are, as rows of operation READ, then every change after them; so does a
                cursor that was kept before the rows had ended, behind it.
            until: The last version to deliver, after which subscribers are completed; None for ever.
            content: Whether bodies are wanted.
            images: Which images are wanted with them.
            fields: Paths that are shown of an entity, such as ``customer.name``; None for all.
            mask: Of each path what is shown in place of its value: a text, or ``Redact``, ``Hash``, ``Partial``, ``Drop``.
            integers: Whether whole numbers beyond 2^53 are numbers, or text for readers that keep numbers in doubles.
            view: All of the last five at once, in place of them.
            on_gap: What happens where retention has deleted what was still to be read: ``"fail"`` ends the subscription with
                ``HistoryPruned``; ``"jump"`` goes on at the oldest position, and tells the subscriber's ``on_gap(gap)``; a
                callable is told likewise.
            snapshot: With ``since="state"``: ``"initial_only"`` completes subscribers after the rows. With any ``since``:
                ``"on_gap"`` gives rows of the present, between ``SnapshotBegin`` and ``SnapshotEnd``, where history is missing
                that was still to be read; ``"initial"`` lets ``subscription.again`` ask for rows; ``"never"`` gives no rows. None is
                ``"initial"`` with ``since="state"`` or a source, else ``"never"``.
            source: Where rows come from, such as a ``SqlSource``; several for several entity types. None for what
                ``snapshots_from`` names, else the state that the log keeps. Give the same one with a cursor that was kept before
                the rows had ended.
            whole: Whether a start inside a transaction sends that transaction again from its beginning.
            as_: A dataclass, ``msgspec.Struct`` or pydantic model of which ``body`` and ``before`` are to be, or such a class
                of each entity type. Bodies are wanted then, whatever ``content`` says. A body that does not fit ends the
                subscription with ``BodyMismatch``.

        Raises:
            InvalidCriteria: If a wish is not one.
            InvalidOption: If ``until`` is no version, ``since`` no place, or something in ``fields`` or ``mask`` no path,
                or ``as_`` no such class.
            PositionError: If ``since`` is not a position of this log, or cannot be read from.
            SnapshotGone: If it is a cursor of a snapshot that cannot be gone on with, unless ``snapshot`` is ``"on_gap"``.
            StateOff: If the state is asked for, and the log does not keep it.
            LogForked: In a child of ``fork``; as everything else here but ``close``.
        """
        if until is not None:
            check_whole("until", until, "a version, from 0, or None")
        if on_gap not in ("fail", "jump") and not callable(on_gap):
            raise InvalidOption("on_gap", on_gap, "'fail', 'jump' or a callable")
        check_switches(whole=whole)
        self.check_here()
        rows_first = since == "state" or isinstance(since, SnapshotCursor) or SnapshotCursor.is_text(since)
        if rows_first or snapshot is not None or source is not None:
            if as_ is not None:
                raise InvalidOption(
                    "as_", as_, "None with the state; rows and changes have bodies to be parsed"
                )
            view = _view(view, content, images, fields, mask, integers)
            return self._snapshot_feed(wishes, since, until, view, on_gap, snapshot, source)
        start = self._places.find(since, pruned=on_gap != "fail")
        if whole and isinstance(start, Position):
            start = Position(start.version)
        models = None if as_ is None else Models(as_, ModelChange)
        view = _view(view, content if models is None else Content.BODY, images, fields, mask, integers)
        if models is not None and view.content is Content.HEADER:
            raise InvalidOption("view", view, "one with Content.BODY, as as_ is given")
        feed = self._feed(wishes, start, until, view, on_gap)
        return feed if models is None else ModelFeed(feed, models.change)

    def _feed(
        self, wishes: Iterable[Wishes], since: Position | Start, until: int | None, view: View, on_gap: OnGap
    ) -> ChangeFeed:
        criteria = Criteria.of(*wishes)
        return ChangeFeed(self._service, criteria, since, until, view, on_gap, self._check_published)

    def _snapshot_feed(
        self,
        wishes: Iterable[Wishes],
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
                begin = None  # other rows come in place of those
        elif since != "state":
            rows_first = False
            start = self._places.find(since, pruned=mode == "on_gap" or on_gap != "fail")
        if not rows_first and mode == "never":
            return self._feed(wishes, start, until, view, on_gap)
        if mode == ("never" if rows_first else "initial_only"):
            raise InvalidOption("snapshot", mode, "'initial', 'initial_only' or 'on_gap' with since='state'")
        return SnapshotFeed(
            self._service,
            Criteria.of(*wishes),
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
        """Names where the rows of snapshots come from if a subscriber names nothing, as none does over the network.

        They are given to subscribers of this opening of the log that begin with ``"state"``, ask for rows ``again``, or miss
        history with ``snapshot="on_gap"``; what has begun goes on as it is. A cursor that was kept before rows had ended goes on with
        the sources of now, so name the same ones after a restart.

        Args:
            sources: Such as a ``SqlSource``, each of another entity type. None for the state that the log keeps, as at first.

        Raises:
            InvalidOption: If one is no source, or two are of one entity type.
        """
        self._sources = checked_sources(sources) if sources else ()

    @cached_property
    def _source_threads(self) -> SourceThreads:
        return SourceThreads(self._service.options.source_threads, f"penstock-{self.name}-rows")

    def _pages(self, source: Source, *, asked: bool) -> Callable[[KeyRange], Pages]:
        """Where rows come from; ``asked``: only if they are asked for, so that it may be that there are none."""
        if source is not None:
            return partial(SourcePages, self._service, self._source_threads, checked_sources(source))
        if self._sources:
            return partial(SourcePages, self._service, self._source_threads, self._sources)
        return (lambda keys: StatePages(self.state, keys)) if asked else partial(StatePages, self.state)

    def attend(self, tell: Tell, explain: Callable[[Exception], Exception]) -> None:
        """For the store of the log.

        Args:
            tell: Is told what happens to the log in this process: a word, and what is to be said of it.
            explain: Makes of an error of a read what the subscriber should know, such as that the log was dropped.
        """
        self._tell = tell
        first = self._service.explain
        self._service.explain = lambda error: explain(first(error))

    @property
    def closed(self) -> bool:
        """Whether the log was closed, or was opened in the process of which this one is a fork."""
        return self._service.closed

    @property
    def state(self) -> CompactedState:
        """The newest body of each entity, kept beside the log by its owner if it was opened with ``state=True``.

        Raises:
            StateOff: If it was not, or this opening follows the log.
            LogClosed: If the log was closed.
        """
        self._check_open()
        if self._state is None:
            raise StateOff(self.name)
        return self._state

    def history(
        self,
        wishes: Wishes = None,
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
        """Past changes as a bounded list; reads the disk on the calling thread.

        Args:
            wishes: As for ``changes``.
            since: The first change to return, as for ``changes``; None for the oldest, or with ``reverse`` for the newest.
            limit: Most changes to return, from 1 to 1,000,000.
            content: Whether bodies are wanted.
            images: Which images are wanted with them.
            fields: As for ``changes``.
            mask: As for ``changes``.
            integers: As for ``changes``.
            view: As for ``changes``.
            reverse: Versions from the newest to the oldest; in each the TRANSACTION event first, and then the changes from
                the last to the first.
            max_bytes: Bytes of changes after which the page ends, 1 KiB counted for each beside its key and images; a
                single larger record goes alone. None for no bound.
            check: Called before each record of the log that is looked at; what it raises ends the reading.

        Raises:
            HistoryPruned: If ``since`` is no longer kept.
            PositionAhead: If it lies beyond the end of the log; of a reversed history that is the newest.
            LogReplaced, LogGone: If this opening follows a log that is not there any more.
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
        predicate = Predicate(Criteria.of(wishes))
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
        """A position with the history it belongs to; its text is what clients keep."""
        check_position("position", position)
        self.check_here()
        return self._places.lineage.token(position)

    def cursor(self, change: Change) -> str:
        """The text that goes on behind a change, with ``changes(since=text)``: also behind one that a snapshot gave."""
        if not isinstance(change, Change):
            raise InvalidOption("change", change, "a Change, as subscribers get it")
        return str(change.cursor if isinstance(change, SnapshotChange) else self.token(change.after))

    def idempotency_key(self, change: Change) -> str:
        """A text that this change has in every replay and over every transport, and no other change of any log has.

        That of a row of a snapshot (operation READ) names the entity as well, since all rows of a page have one position.
        """
        if not isinstance(change, Change):
            raise InvalidOption("change", change, "a Change, as subscribers get it")
        found = self._places.lineage.change_id(change.position)
        return row_id(found, change) if change.operation is Operation.READ else found

    def position_of(self, token: str | PositionToken) -> Position:
        """The position that a client kept.

        Raises:
            PositionMalformed: If the text is not a position.
            PositionForeign: If it belongs to another log.
            PositionForked: If it lies beyond what survived of its epoch.
            PositionAhead: If it lies beyond the end of the log.
            HistoryPruned: If it is older than what is kept.
        """
        self.check_here()
        return self._places.kept(token)

    def position_at(self, moment: datetime) -> Position:
        """The first position that was committed at or after a moment; the head if there is none yet.

        Commit times rise strictly with the versions, whatever the clock did, so a few frames are read and not the log.

        Raises:
            InvalidOption: If ``moment`` does not know its time zone.
        """
        self._check_open()
        return self._places.at(moment)

    def time_of(self, place: Position | int) -> datetime:
        """When the transaction of a position, or of a version, was committed.

        Raises:
            PositionAhead: If it is not visible yet.
            HistoryPruned: If it is no longer kept.
        """
        self._check_open()
        return self._places.time(place)

    def versions_of(
        self, producer: str | UUID | RemoteProducer, since: int, *, most: int = 10_000
    ) -> dict[int, int]:
        """Which versions a producer has committed under its sequences from one on; reads the disk, back from the newest.

        A repetition of what is not the producer's last does not know its version; here it is found.

        Args:
            producer: Its name.
            since: The lowest sequence to look for.
            most: Most transactions to look at.

        Returns:
            Versions by sequences, as far as they were found.
        """
        wanted, found = producer_id(producer).bytes, {}
        for frame in islice(self._service.frames.backward(self._service.watermark.visible, 2**32), most):
            header = frame.header
            if header.producer == wanted:
                found[header.producer_sequence] = header.version
                if header.producer_sequence <= since:
                    break
        return {sequence: version for sequence, version in found.items() if sequence >= since}

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
    """The view that was given as a whole, or in its parts."""
    if view is None:
        return View.of(content, images, fields=fields, mask=mask, integers=integers)
    if not isinstance(view, View):
        raise InvalidOption("view", view, "what View.of() returned, or None")
    return view

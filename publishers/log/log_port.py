"""The log as its slots, groups and compacted state use it, and as our transports, the sink of Spark and the store do; programs do not."""

import functools
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Unpack
from uuid import UUID

from flow.clock import Clock
from publishers.commits.group_commit import Commit, Committer
from publishers.commits.label import RemoteProducer, producer_id
from publishers.criteria.criteria import Criteria
from publishers.criteria.predicate import Predicate
from publishers.errors import PenstockError, PositionAhead
from publishers.fanout.service import Service
from publishers.fanout.state import SubscriptionLag
from publishers.log.feed import ChangeFeed
from publishers.log.history import History, PageBounds, read_history
from publishers.log.notification import NotifyingSubscriber
from publishers.log.staging import Stage
from publishers.log.start import Places
from publishers.log.transaction_writer import Labelled, Tracer, TransactionWriter
from publishers.model.position import Position, Start
from publishers.views.view import Content, View
from publishers.wal import Hold, HoldStatistics, Reader, Wal

__all__ = ["LogPort", "PublishEvent", "ServingPort"]

PublishEvent = Callable[[str, Mapping[str, Any]], None]


class LogPort:
    """See `publishers.slots.ports.PlaceLog`, `publishers.groups.ports.GroupLog` and `publishers.state.ports.StatedLog`.

    Args:
        name: Name of the log.
        service: The watermark and the counters.
        places: Finds and judges positions.
        files: The log's files.
        committer: Syncs the log.
        hold: ``ChangeLog.hold``.
        check: Raises if the log is closed.
        check_published: Raises if the log accepts no subscribers.
        poke: Requests a step of housekeeping now.
        rouse: Requests steps of housekeeping from an idle log.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        places: Places,
        files: Wal,
        committer: Committer,
        *,
        hold: Callable[..., Hold],
        check: Callable[[], None],
        check_published: Callable[[], None],
        poke: Callable[[], None],
        rouse: Callable[[], None],
    ) -> None:
        self.name = name
        self.log_id: UUID = files.log_id
        self.reader: Reader = files.reader
        self._service = service
        self._places = places
        self._retention = files.retention
        self.hold = hold
        self.check = check
        self._check_published = check_published
        self.poke = poke
        self.rouse = rouse
        self.vouch: Callable[[int], None] = committer.vouch
        self.clock: Clock = service.clock
        self.monotonic: Callable[[], float] = service.clock.monotonic
        # Commit times of versions before the opening of the log: one for each slot and group that does not move. Fewer would
        # be evicted before the next call of statistics, which would read all of them again.
        self._committed_at = functools.lru_cache(2 * service.options.slots)(places.committed_at)

    def holds(self, name: str | None = None) -> tuple[HoldStatistics, ...]:
        """See `PlaceLog.holds`."""
        return self._retention.statistics(name)

    def judge(self, token: str) -> Position:
        """See `PlaceLog.judge`."""
        return self._places.kept(token)

    def find(self, since: Any) -> Position:
        """See `PlaceLog.find`."""
        found, head = self._places.find(since), self._service.head
        if found is Start.EARLIEST:
            return self._service.oldest
        if isinstance(found, Start):
            return head
        if found > head:
            raise PositionAhead(head)
        return found

    def token(self, position: Position) -> str:
        """See `PlaceLog.token` and `StatedLog.token`."""
        return str(self._places.lineage.token(position))

    def behind(self, position: Position) -> SubscriptionLag:
        """See `PlaceLog.behind`."""
        admission, visible = self._service.admission, self._service.watermark.visible
        lag = admission.behind(position, visible, 0)
        if lag.seconds is not None:
            return lag
        # Committed before the log was opened. Without its age, a consumer that has not come back since would raise no alarm.
        try:
            committed_at = self._committed_at(position.version)
        except (PenstockError, OSError):
            return lag  # no longer kept, or not readable now: statistics are due all the same
        return admission.behind(position, visible, committed_at)

    def feed(self, criteria: Criteria, since: Position, view: View, check: Callable[[], None]) -> ChangeFeed:
        """See `PlaceLog.feed`."""

        def admit() -> None:
            self._check_published()
            check()

        return ChangeFeed(self._service, criteria, since, None, view, "fail", admit)

    def page(self, predicate: Predicate, since: Position, limit: int, nbytes: int, view: View) -> History:
        """See `GroupLog.page`."""
        self.check()
        return read_history(self._service, predicate, since, PageBounds(limit, nbytes, self.check), view)

    def aside(self, task: Callable[[], None]) -> None:
        """See `GroupLog.aside`."""
        self._service.pool.submit(task)

    def listen(
        self, criteria: Criteria, since: Position, notify: Callable[[], object]
    ) -> Callable[[], object]:
        """See `GroupLog.listen`."""
        subscriber = NotifyingSubscriber(notify)
        view = View.of(Content.HEADER)
        ChangeFeed(self._service, criteria, since, None, view, "fail", self._check_published).subscribe(
            subscriber
        )
        return subscriber.end


class ServingPort:
    """``ChangeLog.serving``; it has no state of its own.

    Args:
        name: Name of the log.
        service: What its subscriptions share.
        files: Returns its files; raises if it cannot be written.
        transactions: Likewise its writer of transactions.
        tracer: The tracer of its commits.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        files: Callable[[], Wal],
        transactions: Callable[[], TransactionWriter],
        tracer: Tracer | None,
    ) -> None:
        self._name = name
        self._service = service
        self._files = files
        self._transactions = transactions
        self._tracer = tracer

    def check_here(self) -> None:
        """Checks that the log was opened by this process, and not by the one from which it was forked.

        Raises:
            LogForked: If it was opened before the fork.
        """
        self._service.check_here()

    def attend(self, publish: PublishEvent, explain: Callable[[Exception], Exception]) -> None:
        """Connects the log to its store.

        Args:
            publish: Called with each event of the log in this process: an upper-case word, and its details.
            explain: Maps the error of a read to the error for the subscriber, such as that the log was dropped.
        """
        self._service.publish_event = publish
        first = self._service.explain
        self._service.explain = lambda error: explain(first(error))

    def admit(self, stopped: threading.Event, stall_timeout: float) -> None:
        """Waits until no gating subscriber lags more than its ``max_lag``; for writers that can wait.

        Args:
            stopped: Ends the wait when it is set.
            stall_timeout: Seconds for which a gating subscriber may make no progress.

        Raises:
            SubscriberStalled: If a subscriber made no progress for that long; the error names it.
            AdmissionStopped: If ``stopped`` was set.
            LogClosed: If the log was closed.
        """
        self.check_here()
        self._service.admission.wait(stopped, stall_timeout)

    def producers_of(self, principal: str, since: datetime) -> int:
        """Returns the number of producers of a remote principal that have committed since a time."""
        owner = RemoteProducer(principal, "").id
        return self._files().producers_of(owner, int(since.timestamp() * 1e6))

    def versions_of(
        self, producer: str | UUID | RemoteProducer, since: int, *, most: int = 10_000
    ) -> dict[int, int]:
        """Returns the versions of a producer's sequences from a given one on; reads the disk, from the newest version back.

        A repeated commit gets the version of its first attempt only if that is the producer's last; here older ones are found.

        Args:
            producer: Its name.
            since: The lowest sequence to look for.
            most: Most transactions to examine.

        Returns:
            Versions by sequence, as far as they were found.
        """
        wanted, found = producer_id(producer).bytes, {}
        for frame in islice(self._service.frames.backward(self._service.watermark.visible, 2**32), most):
            header = frame.header
            if header.producer == wanted:
                found[header.producer_sequence] = header.version
                if header.producer_sequence <= since:
                    break
        return {sequence: version for sequence, version in found.items() if sequence >= since}

    def commit_staged(self, stage: Stage, **committing: Unpack[Labelled]) -> Commit:
        """``commit`` for changes that other processes seal on storage shared with this one; all parts become one version.

        The owner copies the sealed parts into the log without decoding them. Sealed parts that are not committed, such as
        those of failed attempts, are removed when this returns, or when the log is opened again; parts that are sealed even
        later are removed by the next staged commit.

        Args:
            stage: Called once: makes other processes call ``Staging.seal``, in any number of attempts, and returns the parts to
                commit with their schema versions. It may itself commit, even those schemas.
            committing: As for ``ChangeLog.commit``, without ``expect``.

        Returns:
            The outcome; version 0 without any change, because then nothing is committed.

        Raises:
            InvalidChange: If a schema version was never committed, or was truncated meanwhile.
            OSError: If a part is missing, or differs from the sealed one; nothing was written.
            TransactionTooLarge, LogClosed, LogReadOnly, LogFull, LogFailed, LogForked: As ``ChangeLog.commit``.
        """
        commit = self._transactions().commit_staged
        if self._tracer is not None:
            return self._tracer(self._name, lambda _, **given: commit(stage, **given), (), **committing)
        return commit(stage, **committing)

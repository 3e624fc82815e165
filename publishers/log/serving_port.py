"""The log as our transports, the sink of Spark and the store use it, and programs do not."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Unpack
from uuid import UUID

from publishers.commits.group_commit import Commit
from publishers.commits.label import RemoteProducer, producer_id
from publishers.fanout.service import Service
from publishers.log.staging import Stage
from publishers.log.transaction_writer import Labelled, Tracer, TransactionWriter
from publishers.wal import Wal

__all__ = ["PublishEvent", "ServingPort"]

PublishEvent = Callable[[str, Mapping[str, Any]], None]


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

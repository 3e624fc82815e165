"""All errors of change logs, in one tree.

::

    PenstockError
    |-- InvalidOption          an option of a log is out of its bounds          (parameter, value, right)
    |-- InvalidName            a log cannot have that name                      (name)
    |-- InvalidCriteria        a criterion is not understood                    (path, value)
    |-- TooCostly              a request costs more than an option allows       (option, cost, limit, cheaper)
    |-- InvalidChange          a change cannot be stored as it is               (parameter, value)
    |-- ValueRefused           its type cannot represent a stored value         (column, value, kind)
    |-- BodyMismatch           an image does not fit the class given as ``as_`` (entity_type, key, position)
    |-- InvalidTransactionState  a transaction is used outside of its block     (log, state)
    |-- LogError
    |   |-- NotALog            the directory holds no change log                (path)
    |   |-- NotAStore          the directory holds no store of logs             (path)
    |   |-- NoSuchLog          the store has no log of that name                (name, known)
    |   |-- LogExists          the store has a log of that name                 (name)
    |   |-- LogDropped         the log was dropped from its store               (name)
    |   |-- PublishingOff      the log was opened without publishing            (name)
    |   |-- LogBusy            another process writes to this log               (path, pid)
    |   |   `-- ConsumerBusy   another process reads as this consumer of links  (path, pid)
    |   |-- LogForked          the log was opened before a fork, by the parent  (path, pid)
    |   |-- LogReadOnly        this opening of the log cannot write
    |   |-- LogClosed          the log was closed                               (position)  retryable
    |   |-- LogUnreadable      a file of the log cannot be opened               (path, why)
    |   |-- LogReplaced        another log is now at the path of a follower     (old, new)
    |   |-- LogGone            no log is now at the path of a follower          (path)
    |   |-- LogFull            the disk has no room for the commit              (free, needed)  retryable
    |   |   `-- LogExhausted   the process lacks descriptors, memory or threads (resource)  retryable
    |   |-- LogFailed          the disk failed; only reopening recovers         (outcome)
    |   |-- AlreadyVisible     a visible version cannot be truncated            (version, visible)
    |   |-- NoSuchVersion      it was never committed, or was truncated         (version, newest)
    |   |-- ExpectationFailed  a commit came that the writer did not expect     (expected, found, at, key)
    |   |-- ProducerConflict   of ``publishers.commits``: a sequence came with other changes  (producer, sequence, version)
    |   |-- OutboxBehind       of ``publishers.commits``: the log is ahead of an outbox  (producer, batch, sequence)
    |   |-- PredecessorFailed  the transaction submitted before was refused                retryable
    |   |-- TransactionTooLarge  above ``max_transaction_bytes`` or ``_changes``  (option, value, limit)
    |   |   `-- KeyTooLong     a key is above ``max_key_bytes``                 (option, value, limit)
    |   |-- BackupRefused      a directory is unfit for a backup or a restore   (path, why, choice)
    |   |-- StateOff           the log was opened without its compacted state   (name)
    |   |-- StateIncomplete    the kept history is too short for the compacted state  (since)
    |   |-- StateUnusable      the file of the compacted state cannot be used   (path, why)  retryable
    |   |-- SourceFailed       the rows of a snapshot could not be read         (entity_type)  retryable
    |   |   `-- SourceRowRefused  a row has a null or repeated key              (key)
    |   |-- FormatTooNew       a newer version of penstock wrote the log        (found, known)
    |   `-- WalCorrupted       acknowledged data are damaged                    (segment, offset)
    |-- AdmissionStopped       the wait for gating subscribers was ended
    |-- SubscriberStalled      a gating subscriber made no progress for too long  (subscriber, lag)  retryable
    `-- PositionError
        |-- PositionMalformed  not the text of a position                       (text)
        |-- PositionForeign    a position of another log                        (log_id, expected)
        |-- PositionForked     of a history that this log does not hold, or not all of it  (epoch, end)
        |-- PositionAhead      beyond the end of the log                        (head)  retryable
        `-- HistoryPruned      older than the oldest kept segment               (oldest)
            `-- SnapshotGone   a snapshot can no longer be continued            (snapshot, oldest)

Errors carry data. Their text is made from it: what was wrong, its value, and what would be right.
``retryable`` says whether the same call may succeed later although the caller changes nothing.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from flow.errors import Forked
from publishers.model.errors import (
    InvalidOption,
    PenstockError,
    PositionError,
    PositionMalformed,
    ValueRefused,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum
    from pathlib import Path
    from uuid import UUID

    from publishers.model.position import LogIdentity, Position

__all__ = [
    "AdmissionStopped",
    "AlreadyVisible",
    "BackupRefused",
    "BodyMismatch",
    "ConsumerBusy",
    "ExpectationFailed",
    "FormatTooNew",
    "HistoryPruned",
    "InvalidChange",
    "InvalidCriteria",
    "InvalidName",
    "InvalidOption",
    "InvalidTransactionState",
    "KeyTooLong",
    "LogBusy",
    "LogClosed",
    "LogDropped",
    "LogError",
    "LogExhausted",
    "LogExists",
    "LogFailed",
    "LogForked",
    "LogFull",
    "LogGone",
    "LogReadOnly",
    "LogReplaced",
    "LogUnreadable",
    "NoSuchLog",
    "NoSuchVersion",
    "NotALog",
    "NotAStore",
    "NotThere",
    "PenstockError",
    "PositionAhead",
    "PositionError",
    "PositionForeign",
    "PositionForked",
    "PositionMalformed",
    "PredecessorFailed",
    "PublishingOff",
    "SnapshotGone",
    "SourceFailed",
    "SourceRowRefused",
    "StateIncomplete",
    "StateOff",
    "StateUnusable",
    "SubscriberStalled",
    "TooCostly",
    "TransactionTooLarge",
    "ValueRefused",
    "WalCorrupted",
]


class InvalidName(PenstockError, ValueError):
    """A log cannot have that name."""

    name: object
    right: str
    says = "a log cannot be called {name!r:.120}; its name must be {right}"


class InvalidCriteria(PenstockError, ValueError):
    """A criterion names an unknown field, or has a value that the field does not accept."""

    path: str
    value: object
    right: str

    def _text(self) -> str:
        return f"{self.path} is {shown(self.value)}, but must be {self.right}"

    def at(self, place: str) -> "InvalidCriteria":
        """Returns the same error with the path of the criterion prepended."""
        return InvalidCriteria(f"{place}.{self.path}" if self.path else place, self.value, self.right)


class TooCostly(PenstockError):
    """A request costs more than a bound allows; its cost was counted, and the request was not executed.

    It is ``retryable`` if the same request may succeed after others have ended.

    Args:
        option: The name of the bound.
        cost: The counted cost, in the unit of the bound (see ``publishers.criteria.cost`` for weights); counting may stop
            soon after the limit.
        limit: The bound.
        cheaper: What would cost less.
        what: What was counted.
        left: What other requests have left of the bound; None for a bound that is not shared.
    """

    def __init__(
        self,
        option: str,
        cost: int,
        limit: int,
        cheaper: str,
        *,
        what: str = "weight of the criteria",
        left: int | None = None,
    ) -> None:
        rest = "" if left is None else f", of which {left} are left"
        super().__init__(f"{what}: {cost}, but {option} is {limit}{rest}; cheaper would be: {cheaper}")
        self.option = option
        self.cost = cost
        self.limit = limit
        self.cheaper = cheaper
        self.retryable: bool = left is not None


class InvalidChange(PenstockError, ValueError):
    """A change cannot be stored as it is."""

    parameter: str
    value: object
    right: str

    def _text(self) -> str:
        return f"{self.parameter} is {shown(self.value)}, but must be {self.right}"

    def at(self, place: str) -> "InvalidChange":
        """Returns the same error with the path of the change prepended."""
        parameter = place if self.parameter == "change" else f"{place}.{self.parameter}"
        return InvalidChange(parameter, self.value, self.right)


class BodyMismatch(PenstockError, ValueError):
    """An image of a change does not fit the class that was passed as ``as_``.

    Attributes:
        image: ``"body"`` or ``"before"``.
        entity_type: Entity type of the change.
        key: Key of the change.
        position: Position of the change; subscribe there to read it with another class, or without one.
        after: The next position; subscribe there to skip the change.
        flaw: What did not fit.
    """

    image: str
    entity_type: str | None
    key: str | None
    position: "Position"
    after: "Position"
    model: str
    flaw: str
    says = "{image} of {entity_type} {key!r:.120} at {position} does not fit {model}: {flaw:.500}"


class InvalidTransactionState(PenstockError, RuntimeError):
    """A transaction is used before its block begins, or after its block has ended (SQLSTATE class 25)."""

    log: str
    state: "Enum"
    right: str
    says = "the transaction of log {log!r} {state.value}; {right}"


class LogError(PenstockError):
    """An error of the log itself, not of a position in it."""


class NotALog(LogError):
    """The directory holds no change log."""

    path: "Path"
    why: str
    says = "{path} is not a change log: {why}"


class NotAStore(LogError):
    """The directory holds no store of logs."""

    path: "Path"
    why: str
    says = "{path} is not a store of logs: {why}"


class NotThere(PenstockError, KeyError):
    """A named object does not exist (any more)."""

    what: ClassVar[str] = ""
    where: ClassVar[str] = ""

    def __init__(self, name: object, known: "Iterable[str]") -> None:
        self.name = name
        self.known: list[str] = sorted(known)
        listed = ", ".join(self.known[:20]) + (", ..." if len(self.known) > 20 else "")
        super().__init__(
            f"there is no {self.what} {name!r:.120} in the {self.where}; it has {listed or 'none yet'}"
        )

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would quote the text


class NoSuchLog(LogError, NotThere):
    """The store has no log of that name (any more)."""

    what: ClassVar[str] = "log"
    where: ClassVar[str] = "store"


class LogExists(LogError):
    """The store already has a log of that name, or of a name that differs in upper and lower case only."""

    name: str
    says = "the store has a log {name!r} already; choose another name, or drop it first"


class LogDropped(LogError):
    """The log was dropped from its store, with everything in it. No change will follow."""

    name: str
    says = "the log {name!r} was dropped"


class PublishingOff(LogError):
    """The log was opened with ``publish=False``: it can be written and read, but not subscribed to."""

    name: str
    says = "the log {name!r} was opened with publish=False; open it with publish=True to subscribe"


class LogBusy(LogError):
    """Another process, or another opening in this one, writes to the log."""

    path: "Path"
    pid: int | None
    right: str = "open it with read_only=True to follow it"
    says = "{path} is being written by {owner}; {right}"

    @property
    def owner(self) -> str:
        """The process that holds it, as far as it is known."""
        return f"process {self.pid}" if self.pid else "another process"


class ConsumerBusy(LogBusy):
    """Another process reads through the links of this consumer, and removes them as it proceeds."""

    says = "{path} is in use by {owner}"


class LogForked(LogError, Forked):
    """An object that was opened before a fork is used in the child, which can neither write, follow nor serve it.

    Attributes:
        path: What was opened: the directory of a log or of a store, or the URL of a server.
        pid: The process that opened it.
    """

    path: "Path | str"
    pid: int
    right: str = "open it here with read_only=True"
    says = "{path} was opened in process {pid}; {right}"


class LogReadOnly(LogError):
    """The log was opened for following and not for writing, or only its store may write it."""

    path: "Path | str"
    why: str = "was opened with read_only=True"
    says = "{path} {why} and cannot be written"


class LogClosed(LogError):
    """The log was closed before everything was delivered; resume from ``position``."""

    retryable = True
    position: "Position | None" = None

    def _text(self) -> str:
        return "the change log is closed" + (f"; resume from {self.position}" if self.position else "")


class LogUnreadable(LogError):
    """A file of the log exists but cannot be opened: it is not a regular file, or permission is missing. This is no damage."""

    path: "Path"
    why: str
    says = "{path} cannot be opened ({why}); a log needs regular files that this process may open"


class LogReplaced(LogError):
    """The path of a follower now holds another log, another copy, or another history of the log.

    Attributes:
        old: The log that was followed.
        new: The log at the path now. With the same log id it is a copy, or the log with a part of its history lost; once
            opened, it judges which kept positions are still valid.
    """

    old: "LogIdentity"
    new: "LogIdentity"

    def _text(self) -> str:
        right = (
            "open it again, and resume from the stored positions: the log refuses positions of history that it does not have"
            if self.old.log_id == self.new.log_id
            else "open it again, and choose a start position"
        )
        found = "an older copy of it" if self.old == self.new else self.new
        return f"the log was replaced: it was {self.old}, and now there is {found}; {right}"


class LogGone(LogError):
    """The log that was followed is no longer at its path: it was renamed or removed. No change will follow."""

    path: "Path"
    says = "there is no log at {path} any more; open the log at its new path"


class LogFull(LogError):
    """The disk has no room for the commit. Nothing of the commit was kept, and the log remains usable."""

    retryable = True
    free: int | None
    needed: int

    def _text(self) -> str:
        left = "an unknown number of" if self.free is None else str(self.free)
        return f"the disk has {left} bytes free, the commit needs {self.needed}; free some space and commit again"


class LogExhausted(LogFull):
    """Something that the process or the machine has a bounded number of has run out. Nothing was kept, and the log remains usable.

    Attributes:
        resource: What has run out: ``"descriptors"``, ``"memory"`` or ``"threads"``; ``"disk"`` if the disk is read-only.
    """

    free: int | None = None
    needed: int = 0

    def __init__(self, resource: Literal["descriptors", "memory", "threads", "disk"]) -> None:
        self.resource = resource
        Exception.__init__(self, f"{_LACKS[resource]}; nothing was kept, try again")


_LACKS: Final = {
    "descriptors": "the process has no free file descriptor ('ulimit -n' raises their number)",
    "memory": "the process has no free memory",
    "threads": "the process can start no more threads",
    "disk": "the disk is read-only",
}


class LogFailed(LogError):
    """The disk failed under the log, which accepts no more commits until it is opened again.

    ``outcome`` is ``"unknown"`` for the commits in progress: after reopening they may or may not exist (a retry
    with the same producer and sequence is safe). It is ``"refused"`` for later commits, of which nothing was written, and
    for an opening.
    """

    outcome: Literal["unknown", "refused"]
    why: str
    opening: bool = False

    def _text(self) -> str:
        return (
            f"the change log could not be opened, because the disk failed ({self.why}); repair the disk and open the log again"
            if self.opening
            else f"the change log has failed ({self.why}); this commit is {self.outcome}; open the log again to recover"
        )


class AlreadyVisible(LogError):
    """The versions to truncate may already have been delivered."""

    version: int
    visible: int
    says = "versions above {version} cannot be truncated: versions up to {visible} are visible"


class BackupRefused(LogError):
    """A directory is unfit as the source or the target of a backup or a restore. Nothing in it was changed.

    Attributes:
        path: The directory.
        why: What is wrong with it.
        choice: What can be done.
    """

    path: "Path"
    why: str
    choice: str
    says = "{path}: {why}; {choice}"


class NoSuchVersion(LogError):
    """A version was never committed, or was truncated."""

    version: int
    newest: int
    says = "there is no version {version}; the newest one is {newest}"


class ExpectationFailed(LogError):
    """The log contains commits that the writer's ``expect`` excludes. Nothing was written.

    Read from ``expected`` up to ``found``, decide again what to commit, and expect ``found``.

    Attributes:
        expected: The position from which on no commit was expected.
        found: The end of the log at the turn of the commit.
        at: For an expectation of keys, the position of the first change of one of them; None if it could not be determined.
        entity_type: Entity type of that change.
        key: Key of that change; None if the change concerns all keys, as a TRUNCATE does.
    """

    expected: "Position"
    found: "Position"
    at: "Position | None" = None
    entity_type: str | None = None
    key: str | None = None
    untold: str | None = None

    def _text(self) -> str:
        if self.untold is not None:
            what = f"whether the keys changed at {self.expected} or later is unknown: {self.untold}"
        elif self.at is not None:
            whose = "all keys" if self.key is None else f"key {self.key!r:.120}"
            what = (
                f"{whose} of {self.entity_type!r:.120} changed at {self.at}, "
                f"but the commit expected no change from {self.expected} on"
            )
        else:
            what = f"the log is at {self.found}, but the commit expected no change from {self.expected} on"
        return f"{what}; read from there up to {self.found}, decide again, and expect {self.found}"


class PredecessorFailed(LogError):
    """The predecessor of a submitted transaction was refused. Nothing was written, so both may be submitted again in order."""

    retryable = True
    says = (
        "the transaction submitted before this one was refused, so nothing of this one was written; "
        "submit both again in order"
    )


class TransactionTooLarge(LogError):
    """A transaction exceeds a bound of the log."""

    option: str
    value: int
    limit: int
    why: str | None = None

    def _text(self) -> str:
        return (
            self.why
            or f"the transaction has {self.value}, but {self.option} is {self.limit}; commit less at once or raise the option"
        )


class KeyTooLong(TransactionTooLarge):
    """A key of a change exceeds the bound. Keys stored under a larger bound can still be read."""

    def _text(self) -> str:
        return f"a key has {self.value} bytes, but {self.option} is {self.limit}; shorten the key or raise the option"


class WalCorrupted(LogError):
    """Acknowledged data are damaged. They are never skipped, truncated or delivered."""

    segment: int
    offset: int
    why: str
    says = (
        "segment {segment} is damaged at byte {offset}: {why}; "
        "'penstock verify DIR' shows all damage, 'penstock repair DIR' repairs it"
    )


class StateOff(LogError):
    """The log was opened without its compacted state."""

    name: str
    says = (
        "the log {name} keeps no state and names no source of rows; its owner has to open it with state=True, or give "
        "a source, as snapshots_from does"
    )


class StateIncomplete(LogError):
    """The compacted state cannot be built, because changes that belong to it are no longer kept. It is never partial."""

    since: "Position"
    says = (
        "the log begins at {since}, so the state would lack all earlier changes; open the log without state=True (serve "
        "it without --state), or restore its directory 'state' from a copy"
    )


class StateUnusable(LogError):
    """The file of the compacted state is not such a file, is damaged, or cannot be read or written at the moment."""

    retryable = True
    path: "Path"
    why: str
    says = "the state in {path} cannot be used: it is {why}"


class SourceFailed(LogError):
    """A source that the program has registered could not be read; ``__cause__`` is the source's own exception.

    Attributes:
        entity_type: Entity type of the rows.
        retryable: Whether the next attempt may succeed: False if the source returned bad rows.
    """

    entity_type: str
    why: str
    retryable: bool = True
    says = "the source of {entity_type!r:.120} {why}"


class SourceRowRefused(SourceFailed):
    """A source has a row without a key, or two rows with the same key: pages by key would omit rows of the snapshot.

    Attributes:
        key: Its key; None if that is null.
    """

    def __init__(self, entity_type: str, key: str | None) -> None:
        what = "a row whose key is null" if key is None else f"two rows of the key {key!r:.120}"
        self.key = key
        super().__init__(
            entity_type,
            f"has {what}, but each row of a snapshot needs a key of its own; leave such rows "
            "out by a condition, or name the columns that identify a row with key=",
            retryable=False,
        )


class FormatTooNew(LogError):
    """A newer version of penstock wrote the log, or a part of it. Nothing is damaged, and nothing was changed."""

    found: int
    known: int
    what: str = "format"
    says = (
        "the log has {what} {found}, and this version of penstock knows {what}s up to {known}; "
        "open it with a newer version"
    )


class SubscriberStalled(PenstockError):
    """A gating subscriber made no progress for too long while a writer waited for it."""

    retryable = True
    subscriber: str
    lag: int | None
    max_lag: int | timedelta
    timeout: float

    def _text(self) -> str:
        behind = "more changes than the log remembers" if self.lag is None else f"{self.lag} changes"
        return (
            f"subscriber {self.subscriber} lags {behind} (max_lag is {self.max_lag}) and made no progress for {self.timeout:g} s; "
            "have it request more, cancel it, or raise max_lag or stall_timeout"
        )


class AdmissionStopped(PenstockError):
    """The wait for admission was stopped by the caller."""

    says = "stopped while waiting for a gating subscriber; nothing was committed"


class PositionForeign(PositionError):
    """A position of another log."""

    log_id: "UUID"
    expected: "UUID"
    says = "the position belongs to log {log_id}, but this is log {expected}"


class PositionForked(PositionError):
    """A position of another history: this log does not hold, or not in full, what precedes the position.

    ``end`` is the end of the position's epoch in this log; everything before it is common to both histories. It is None if this
    log never had the epoch (it is a copy, or was restored from one); then the position cannot show where the histories part.
    """

    epoch: int
    end: "Position | None"

    def _text(self) -> str:
        return (
            f"epoch {self.epoch} of the position is not part of the history of this log, which is a copy or was restored from one; "
            "take a snapshot first, or choose a start position"
            if self.end is None
            else f"of epoch {self.epoch} the log kept only the changes before {self.end}; later changes that were read are lost"
        )


class PositionAhead(PositionError):
    """A position beyond the end of the log, as far as this opening knows it."""

    retryable = True
    head: "Position"
    says = "the position is beyond the end of the log, which is {head}"


class HistoryPruned(PositionError):
    """A position older than the oldest kept segment. Start at ``oldest`` and accept the gap, or take a snapshot."""

    oldest: "Position"
    says = "the history before {oldest} is no longer kept; start there, or take a snapshot first"


class SnapshotGone(HistoryPruned):
    """A snapshot cannot be continued: changes that follow its delivered rows are no longer kept, or it has taken too long."""

    snapshot: str
    why: str | None = None

    def _text(self) -> str:
        why = self.why or f"the history before {self.oldest} is no longer kept"
        return f"snapshot {self.snapshot} cannot be continued, because {why}; begin a new one"

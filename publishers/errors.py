"""Everything that a change log raises, in one tree.

::

    PenstockError
    |-- InvalidOption          an option of a log is out of its bounds          (parameter, value)
    |-- InvalidName            a log cannot be called that                      (name)
    |-- InvalidCriteria        a criterion cannot be understood                 (path, value)
    |-- TooCostly              a request costs more than an option allows       (option, cost, limit, cheaper)
    |-- InvalidChange          a change cannot be stored as it is               (parameter, value)
    |-- BodyMismatch           an image does not fit the class that was asked for (entity_type, key, position)
    |-- InvalidTransactionState  a transaction is used outside of its block     (log, state)
    |-- LogError
    |   |-- NotALog            the directory holds no change log                (path)
    |   |-- NotAStore          the directory holds no store of logs             (path)
    |   |-- NoSuchLog          the store has no log of that name                (name, known)
    |   |-- LogExists          the store has a log of that name                 (name)
    |   |-- LogDropped         the log was dropped from its store               (name)
    |   |-- PublishingOff      the log was opened without publishing            (name)
    |   |-- LogBusy            another process writes to this log               (path, pid)
    |   |   `-- ConsumerBusy   another process is this consumer of links      (path, pid)
    |   |-- LogForked          it belongs to the process of which this one is a fork  (path, pid)
    |   |-- LogReadOnly        this opening of the log cannot write
    |   |-- LogClosed          the log was closed                               (position)  retryable
    |   |-- LogUnreadable      a file of the log cannot be opened               (path, why)
    |   |-- LogReplaced        what is followed is not what its path names now  (old, new)
    |   |-- LogGone            what is followed is not at its path any more     (path)
    |   |-- LogFull            the disk has no room for the commit              (free, needed)  retryable
    |   |-- LogFailed          the disk failed; only reopening recovers         (outcome)
    |   |-- AlreadyVisible     what was shown cannot be forgotten               (version, visible)
    |   |-- NoSuchVersion      it was never committed, or was forgotten         (version, newest)
    |   |-- ExpectationFailed  something was committed that the writer did not know of (expected, found, at, key)
    |   |-- PredecessorFailed  what was submitted before it was refused                    retryable
    |   |-- TransactionTooLarge  above ``max_transaction_bytes`` or ``_changes``  (option, value, limit)
    |   |   `-- KeyTooLong     a key is above ``max_key_bytes``               (option, value, limit)
    |   |-- BackupRefused      a directory is not what a backup or a restore can go by  (path, why, choice)
    |   |-- StateOff           the log was opened without its compacted state  (name)
    |   |-- StateIncomplete    the compacted state cannot be made of what is kept  (since)
    |   |-- StateUnusable      the file of the compacted state cannot be used  (path, why)  retryable
    |   |-- SourceFailed       the rows of a snapshot could not be read          (entity_type)  retryable
    |   |   `-- SourceRowRefused  a row cannot be given: its key is null, or there twice  (key)
    |   |-- FormatTooNew       a newer version of penstock wrote the log        (found, known)
    |   `-- WalCorrupted       acknowledged data are damaged                    (segment, offset)
    |-- AdmissionStopped       the wait for gating subscribers was ended
    |-- SubscriberStalled      a gating subscriber took nothing for too long    (subscriber, lag)  retryable
    `-- PositionError
        |-- PositionMalformed  not the text of a position                       (text)
        |-- PositionForeign    a position of another log                        (log_id, expected)
        |-- PositionForked     of a history that is not, or not all, in this log  (epoch, end)
        |-- PositionAhead      beyond the end of the log                        (head)  retryable
        `-- HistoryPruned      older than the oldest kept segment               (oldest)
            `-- SnapshotGone   so is the place in a snapshot                    (snapshot, oldest)

Errors carry data; the text is made from it and says what was wrong, what value it had, and what would be right.
``retryable`` says whether the same call may succeed later without anything being changed by the caller.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from flow.errors import Forked
from publishers.model.errors import InvalidOption, PenstockError, PositionError, PositionMalformed, shown

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
    "WalCorrupted",
]


class InvalidName(PenstockError, ValueError):
    """A log cannot be called that."""

    def __init__(self, name: object, right: str) -> None:
        super().__init__(f"a log cannot be called {name!r:.120}; its name must be {right}")
        self.name = name


class InvalidCriteria(PenstockError, ValueError):
    """A criterion names an unknown field, or holds a value that the field does not take."""

    def __init__(self, path: str, value: object, right: str) -> None:
        super().__init__(f"{path} is {shown(value)}, but must be {right}")
        self.path = path
        self.value = value
        self.right = right

    def at(self, place: str) -> "InvalidCriteria":
        """The same error, seen from where the criterion stands."""
        return InvalidCriteria(f"{place}.{self.path}" if self.path else place, self.value, self.right)


class TooCostly(PenstockError):
    """What is asked for costs more than there is to spend; it was counted, and not done.

    It is ``retryable`` if the same may succeed once others have ended.

    Args:
        option: The name of the bound.
        cost: What was counted, in the unit of the bound (see ``publishers.criteria.cost`` for weights); counting may end
            soon after the limit.
        limit: The bound.
        cheaper: What would cost less.
        what: What was counted.
        left: What others have left of the bound; None for a bound that is not shared.
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
        self.retryable = left is not None


class InvalidChange(PenstockError, ValueError):
    """A change cannot be stored as it is given."""

    def __init__(self, parameter: str, value: object, right: str) -> None:
        super().__init__(f"{parameter} is {shown(value)}, but must be {right}")
        self.parameter = parameter
        self.value = value
        self.right = right

    def at(self, place: str) -> "InvalidChange":
        """The same error, seen from where the change stands."""
        parameter = place if self.parameter == "change" else f"{place}.{self.parameter}"
        return InvalidChange(parameter, self.value, self.right)


class BodyMismatch(PenstockError, ValueError):
    """An image of a change does not fit the class that was asked for with ``as_``.

    Attributes:
        image: ``"body"`` or ``"before"``.
        entity_type: Of the change.
        key: Of the change.
        position: Of the change; subscribe there to read it with another class, or as it is.
        after: The position behind it: subscribe there to go on without it.
        flaw: What did not fit.
    """

    def __init__(
        self,
        image: str,
        entity_type: str | None,
        key: str | None,
        position: "Position",
        after: "Position",
        model: str,
        flaw: str,
    ) -> None:
        super().__init__(
            f"{image} of {entity_type} {key!r:.120} at {position} does not fit {model}: {flaw:.500}"
        )
        self.image = image
        self.entity_type = entity_type
        self.key = key
        self.position = position
        self.after = after
        self.flaw = flaw


class InvalidTransactionState(PenstockError, RuntimeError):
    """A transaction is used before its block was entered, or after it was left (SQLSTATE class 25)."""

    def __init__(self, log: str, state: "Enum", right: str) -> None:
        super().__init__(f"the transaction of log {log!r} {state.value}; {right}")
        self.log = log
        self.state = state


class LogError(PenstockError):
    """Something about the log itself, not about a position in it."""


class NotALog(LogError):
    """The directory holds no change log."""

    def __init__(self, path: "Path", why: str) -> None:
        super().__init__(f"{path} is not a change log: {why}")
        self.path = path


class NotAStore(LogError):
    """The directory holds no store of logs."""

    def __init__(self, path: "Path", why: str) -> None:
        super().__init__(f"{path} is not a store of logs: {why}")
        self.path = path


class NotThere(PenstockError, KeyError):
    """Something that is asked for by its name is not there (any more)."""

    what, where = "", ""

    def __init__(self, name: object, known: "Iterable[str]") -> None:
        self.name = name
        self.known = sorted(known)
        listed = ", ".join(self.known[:20]) + (", ..." if len(self.known) > 20 else "")
        super().__init__(
            f"there is no {self.what} {name!r:.120} in the {self.where}; it has {listed or 'none yet'}"
        )

    __str__ = Exception.__str__  # that of KeyError would put it in quotes


class NoSuchLog(LogError, NotThere):
    """The store has no log of that name (any more)."""

    what, where = "log", "store"


class LogExists(LogError):
    """The store has a log of that name already, or of one that differs in upper and lower case only."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the store has a log {name!r} already; choose another name, or drop it first")
        self.name = name


class LogDropped(LogError):
    """The log was dropped from its store, with everything in it. Nothing will follow."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the log {name!r} was dropped")
        self.name = name


class PublishingOff(LogError):
    """The log was opened with ``publish=False``: it can be written and read, but not subscribed to."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the log {name!r} was opened with publish=False; open it with publish=True to subscribe"
        )
        self.name = name


class LogBusy(LogError):
    """Another process, or another opening in this one, writes to the log."""

    def __init__(self, path: "Path", pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{path} is being written by {owner}; open it with read_only=True to follow it")
        self.path = path
        self.pid = pid


class ConsumerBusy(LogBusy):
    """Another process reads the links of this consumer, and removes them as it goes on."""

    def __init__(self, path: "Path", pid: int | None) -> None:
        LogError.__init__(self, f"{path} is in use by {f'process {pid}' if pid else 'another process'}")
        self.path = path
        self.pid = pid


class LogForked(LogError, Forked):
    """What one process has opened is used in a fork of that, which can neither write, follow nor serve it.

    Attributes:
        path: What was opened: the directory of a log or of a store, or the URL of a server.
        pid: The process that opened it.
    """

    def __init__(self, path: "Path | str", pid: int, right: str = "open it here with read_only=True") -> None:
        LogError.__init__(self, f"{path} was opened in process {pid}; {right}")
        self.path = path
        self.pid = pid


class LogReadOnly(LogError):
    """The log was opened to be followed, not to be written, or is written by its store only."""

    def __init__(self, path: "Path", why: str = "was opened with read_only=True") -> None:
        super().__init__(f"{path} {why} and cannot be written")
        self.path = path


class LogClosed(LogError):
    """The log was closed before everything was delivered; resume from ``position``."""

    retryable = True

    def __init__(self, position: "Position | None" = None) -> None:
        super().__init__("the change log is closed" + (f"; resume from {position}" if position else ""))
        self.position = position


class LogUnreadable(LogError):
    """A file of the log is there and cannot be opened: it is no regular file, or this process may not. That is no damage."""

    def __init__(self, path: "Path", why: str) -> None:
        super().__init__(
            f"{path} cannot be opened ({why}); a log needs regular files that this process may open"
        )
        self.path = path
        self.why = why


class LogReplaced(LogError):
    """What a follower has open is not what its path names now: another log, another copy, or another history of the log.

    Attributes:
        old: What was followed.
        new: What is there now. With the same log id it is a copy, or the log with a part of its history lost; what of the
            places that were kept is good in it, it tells when it is opened.
    """

    def __init__(self, old: "LogIdentity", new: "LogIdentity") -> None:
        right = (
            "open it anew, and go on from the places that were kept: it refuses those of what it does not have"
            if old.log_id == new.log_id
            else "open it anew, and choose where to begin"
        )
        found = "an older copy of it" if old == new else new
        super().__init__(f"the log was replaced: it was {old}, and now there is {found}; {right}")
        self.old = old
        self.new = new


class LogGone(LogError):
    """The log that was followed is not at its path any more: it was renamed or removed. Nothing will follow."""

    def __init__(self, path: "Path") -> None:
        super().__init__(f"there is no log at {path} any more; open it anew where it is now")
        self.path = path


class LogFull(LogError):
    """The disk has no room for the commit. Nothing of it was kept, and the log stays good."""

    retryable = True

    def __init__(self, free: int | None, needed: int) -> None:
        left = "an unknown number of" if free is None else str(free)
        super().__init__(
            f"the disk has {left} bytes free, the commit needs {needed}; free some space and commit again"
        )
        self.free = free
        self.needed = needed


class LogFailed(LogError):
    """The disk failed under the log, which takes no more commits until it is opened again.

    ``outcome`` is ``"unknown"`` for the commits in progress: they may or may not be there after reopening (a retry
    with the same producer and sequence is safe), and ``"refused"`` for later ones, of which nothing was written, and for
    an opening.
    """

    def __init__(self, outcome: Literal["unknown", "refused"], why: str, *, opening: bool = False) -> None:
        super().__init__(
            f"the change log could not be opened, because the disk failed ({why}); open it again once that is mended"
            if opening
            else f"the change log has failed ({why}); this commit is {outcome}; open the log again to recover"
        )
        self.outcome = outcome


class AlreadyVisible(LogError):
    """Somebody may have been shown what is to be forgotten."""

    def __init__(self, version: int, visible: int) -> None:
        super().__init__(
            f"what is above version {version} cannot be forgotten: everything up to version {visible} is visible"
        )
        self.version = version
        self.visible = visible


class BackupRefused(LogError):
    """A directory holds what a backup, or a restore, must not go by or write over. Nothing in it was changed.

    Attributes:
        path: The directory.
        why: What is wrong with it.
        choice: What can be done.
    """

    def __init__(self, path: "Path", why: str, choice: str) -> None:
        super().__init__(f"{path}: {why}; {choice}")
        self.path = path
        self.why = why
        self.choice = choice


class NoSuchVersion(LogError):
    """A version that was never committed, or was forgotten."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"there is no version {version}; the newest one is {newest}")
        self.version = version
        self.newest = newest


class ExpectationFailed(LogError):
    """Something was committed that the writer, by its ``expect``, did not know of. Nothing was written.

    Read on from ``expected`` up to ``found``, and commit what is right then, expecting ``found``.

    Attributes:
        expected: From where on nothing was expected.
        found: The end of the log at the turn of the commit.
        at: Of an expectation of keys, the first change that concerns one of them; None if nobody could tell.
        entity_type: Of that change.
        key: Of that change; None if it concerns all keys, as a TRUNCATE does.
    """

    def __init__(
        self,
        expected: "Position",
        found: "Position",
        at: "Position | None" = None,
        entity_type: str | None = None,
        key: str | None = None,
        *,
        untold: str | None = None,
    ) -> None:
        if untold is not None:
            what = f"nobody can tell whether the keys were changed at {expected} or later: {untold}"
        elif at is not None:
            whose = "all keys" if key is None else f"key {key!r:.120}"
            what = f"{whose} of {entity_type!r:.120} changed at {at}, and nothing was expected from {expected} on"
        else:
            what = f"the log is at {found}, and nothing was expected from {expected} on"
        super().__init__(f"{what}; read on from there, and commit again, expecting what is found")
        self.expected = expected
        self.found = found
        self.at = at
        self.entity_type = entity_type
        self.key = key


class PredecessorFailed(LogError):
    """What was submitted before this was refused. Nothing of this was written, so that it may be submitted again behind that."""

    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "what was submitted before this was refused, and nothing of this was written; "
            "settle that, and submit this again behind it"
        )


class TransactionTooLarge(LogError):
    """A transaction is above one of the bounds of the log."""

    def __init__(self, option: str, value: int, limit: int, why: str | None = None) -> None:
        super().__init__(
            why
            or f"the transaction has {value}, but {option} is {limit}; commit less at once or raise the option"
        )
        self.option = option
        self.value = value
        self.limit = limit


class KeyTooLong(TransactionTooLarge):
    """A change has a key above the bound. Keys that were stored under another bound are read all the same."""

    def __init__(self, value: int, limit: int) -> None:
        why = f"a key has {value} bytes, but max_key_bytes is {limit}; shorten the key or raise the option"
        super().__init__("max_key_bytes", value, limit, why)


class WalCorrupted(LogError):
    """Acknowledged data are damaged. They are never skipped, cut or delivered."""

    def __init__(self, segment: int, offset: int, why: str) -> None:
        super().__init__(
            f"segment {segment} is damaged at byte {offset}: {why}; "
            "'penstock verify DIR' shows all damage, 'penstock repair DIR' mends it"
        )
        self.segment = segment
        self.offset = offset


class StateOff(LogError):
    """The log was opened without its compacted state."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the log {name} keeps no state; let its owner open it with state=True")
        self.name = name


class StateIncomplete(LogError):
    """The compacted state cannot be made, because changes that belong into it are no longer kept. There is never a part of it."""

    def __init__(self, since: "Position") -> None:
        super().__init__(
            f"the log begins at {since}, and the state would lack what is before; open it without state=True, or put the "
            "directory 'state' of the log back if there is a copy of it"
        )
        self.since = since


class StateUnusable(LogError):
    """The file of the compacted state is not one, is damaged, or cannot be read or written at the moment."""

    retryable = True

    def __init__(self, path: "Path", why: str) -> None:
        super().__init__(f"the state in {path} cannot be used: it is {why}")
        self.path = path
        self.why = why


class SourceFailed(LogError):
    """A source that the program has given could not be read; ``__cause__`` is what it raised.

    Attributes:
        entity_type: Of its rows.
        retryable: Whether the next attempt may succeed: it is not what the source gave that was wrong.
    """

    def __init__(self, entity_type: str, why: str, *, retryable: bool = True) -> None:
        super().__init__(f"the source of {entity_type!r:.120} {why}")
        self.entity_type = entity_type
        self.retryable = retryable


class SourceRowRefused(SourceFailed):
    """A source of rows has one without a key, or two of the same: the pages of a snapshot would leave rows out.

    Attributes:
        key: Its key; None if that is null.
    """

    def __init__(self, entity_type: str, key: str | None) -> None:
        what = "a row whose key is null" if key is None else f"two rows of the key {key!r:.120}"
        super().__init__(
            entity_type,
            f"has {what}, but each row of a snapshot needs a key of its own; leave such rows "
            "out by a condition, or name the columns that tell rows apart with key=",
            retryable=False,
        )
        self.key = key


class FormatTooNew(LogError):
    """A newer version of penstock wrote the log, or a part of it. Nothing is damaged, and nothing was changed."""

    def __init__(self, found: int, known: int, what: str = "format") -> None:
        super().__init__(
            f"the log has {what} {found}, and this version of penstock knows {what}s up to {known}; "
            "open it with a newer version"
        )
        self.found = found
        self.known = known


class SubscriberStalled(PenstockError):
    """A gating subscriber made no progress for too long while a writer waited for it."""

    retryable = True

    def __init__(self, subscriber: str, lag: int | None, max_lag: int | timedelta, timeout: float) -> None:
        behind = "further than this opening of the log remembers" if lag is None else f"{lag} changes"
        super().__init__(
            f"subscriber {subscriber} lags {behind} (max_lag is {max_lag}) and took nothing for {timeout:g} s; "
            "let it request more, cancel it, or raise max_lag or stall_timeout"
        )
        self.subscriber = subscriber
        self.lag = lag


class AdmissionStopped(PenstockError):
    """The wait for admission was ended from outside."""

    def __init__(self) -> None:
        super().__init__("stopped while waiting for a gating subscriber; nothing was committed")


class PositionForeign(PositionError):
    """A position of another log."""

    def __init__(self, log_id: "UUID", expected: "UUID") -> None:
        super().__init__(f"the position belongs to log {log_id}, but this is log {expected}")
        self.log_id = log_id
        self.expected = expected


class PositionForked(PositionError):
    """A position of another history: what was read before it is not, or not all, what this log holds.

    ``end`` is where its epoch ends here, so that everything before that is common; None if the log has never had this epoch
    (it is restored from a copy, or is one), and a position cannot tell where the histories part.
    """

    def __init__(self, epoch: int, end: "Position | None") -> None:
        super().__init__(
            f"epoch {epoch} of the position is not of the history of this log, which was restored from a copy, or is one; "
            "take a snapshot first, or choose where to begin"
            if end is None
            else f"of epoch {epoch} the log kept only what is before {end}; what was read beyond it is lost"
        )
        self.epoch = epoch
        self.end = end


class PositionAhead(PositionError):
    """A position beyond the end of the log, as far as this opening knows it."""

    retryable = True

    def __init__(self, head: "Position") -> None:
        super().__init__(f"the position is beyond the end of the log, which is {head}")
        self.head = head


class HistoryPruned(PositionError):
    """A position older than the oldest kept segment. Start at ``oldest``, knowing of the gap, or take a snapshot."""

    def __init__(self, oldest: "Position") -> None:
        super().__init__(
            f"the history before {oldest} is no longer kept; start there, or take a snapshot first"
        )
        self.oldest = oldest


class SnapshotGone(HistoryPruned):
    """A snapshot cannot be gone on with: changes that follow what was given of it are no longer kept, or it has taken too long."""

    def __init__(self, snapshot: str, oldest: "Position", why: str | None = None) -> None:
        why = why or f"the history before {oldest} is no longer kept"
        PositionError.__init__(self, f"snapshot {snapshot} cannot go on, as {why}; begin a new one")
        self.snapshot = snapshot
        self.oldest = oldest

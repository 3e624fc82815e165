"""Which logs a store has: their names, and what the system log tells of them.

The system log is the truth. Each of its transactions holds one change: ``entity_type`` is ``log``, ``key`` the name of
the log, ``body`` what is known of it from now on, ``before`` what was known, and ``meta`` has the word of what happened
(``CREATED``, ``RENAMED``, ``RETYPED``, ``DROPPED``), so that it can be told without bodies.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from publishers.errors import InvalidChange, InvalidName, LogExists, NoSuchLog, WalCorrupted
from publishers.model.change import Area, Change, Operation
from publishers.mutations.mutation import Mutation, remove, upsert

__all__ = [
    "ENTITY_TYPE",
    "SYSTEM",
    "LogEntries",
    "LogEntry",
    "LogStep",
    "check_name",
    "created",
    "dropped",
    "replaced",
]

ENTITY_TYPE: Final = "log"
SYSTEM: Final = "$system"
"""Under this name transports address the system log; no log can be called that."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_RIGHT: Final = (
    "1 to 128 characters of A-Z a-z 0-9 . _ -, begin with a letter or a digit, not end with a dot or .tmp, and be no name "
    "that an operating system or the files of a log use, such as CON, HEAD or LOCK"
)
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
)
_FILES: Final = frozenset(
    {"head", "tail", "lock", "bell", "held", "readers", "slots", "groups", "snapshots", "store"}
)
_TEXT_MAX: Final = 256
_LABELS_MAX: Final = 64


def check_name(name: object) -> str:
    """The name, if a log may be called that on every file system.

    Raises:
        InvalidName: If it may not.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or name.endswith((".", ".tmp")):
        raise InvalidName(name, _RIGHT)
    plain = name.casefold()
    if plain.split(".")[0] in _DEVICES or plain in _FILES or plain.startswith("wal-"):
        raise InvalidName(name, _RIGHT)
    return name


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one log of a store.

    Attributes:
        name: What it is called.
        log_id: What tells it from every other log, also from a later one of the same name.
        directory: Where it lies in the store: the name that it was made with, if that was free.
        type: What kind of log it is, in words of the application.
        labels: What else the application says of it.
        options: Options that it was made with, beside those of the store.
    """

    name: str
    log_id: str
    directory: str
    type: str | None = None
    labels: dict[str, str] = {}
    options: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """As it travels, and as it is stored."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def check_labels(kind: object, labels: object) -> dict[str, str]:
    """Labels, and a type, that can be stored.

    Raises:
        InvalidChange: If they cannot.
    """
    if kind is not None and (not isinstance(kind, str) or not 0 < len(kind) <= _TEXT_MAX):
        raise InvalidChange("type", kind, f"a text of 1 to {_TEXT_MAX} characters, or None")
    if labels is None:
        return {}
    right = f"a mapping of at most {_LABELS_MAX} texts to texts of at most {_TEXT_MAX} characters"
    if not isinstance(labels, Mapping) or len(labels) > _LABELS_MAX:
        raise InvalidChange("labels", labels, right)
    for one in (*labels, *labels.values()):
        if not isinstance(one, str) or len(one) > _TEXT_MAX:
            raise InvalidChange("labels", labels, right)
    return dict(labels)


def created(entry: LogEntry) -> Mutation:
    """A log was made."""
    return _engine(upsert(ENTITY_TYPE, entry.name, entry.body(), meta={"event": "CREATED"}))


def dropped(entry: LogEntry) -> Mutation:
    """A log is no more."""
    return _engine(remove(ENTITY_TYPE, entry.name, before=entry.body(), meta={"event": "DROPPED"}))


def replaced(before: LogEntry, after: LogEntry) -> Mutation:
    """A log has another name, or another type or other labels."""
    what = {"event": "RETYPED"} if before.name == after.name else {"event": "RENAMED", "from": before.name}
    return _engine(upsert(ENTITY_TYPE, after.name, after.body(), before=before.body(), meta=what))


def _engine(row: Mutation) -> Mutation:
    return replace(row, area=int(Area.ENGINE))


class LogStep(NamedTuple):
    """What one change of the system log did: a log before it, and after it."""

    before: LogEntry | None
    after: LogEntry | None


class LogEntries(Mapping[str, LogEntry]):
    """The logs that there are, by name; changed by what the system log tells, and by nothing else."""

    def __init__(self) -> None:
        self._entries: dict[str, LogEntry] = {}
        self._plain: dict[str, str] = {}

    def apply(self, change: Change) -> LogStep | None:
        """Takes one change of the system log.

        Raises:
            WalCorrupted: If it does not follow from what was told before.
        """
        if change.area is not Area.ENGINE or change.entity_type != ENTITY_TYPE:
            return None  # a later release may tell more
        try:
            before = _entry(change.before_bytes)
            after = None if change.operation is Operation.REMOVE else _entry(change.body_bytes)
            if before is not None:
                self._entries.pop(before.name)
                self._plain.pop(before.name.casefold())
        except (msgspec.MsgspecError, KeyError) as error:
            raise WalCorrupted(
                0, 0, f"the system log does not fit together at {change.position} ({error})"
            ) from error
        if after is not None:
            self._entries[after.name] = after
            self._plain[after.name.casefold()] = after.name
        return LogStep(before, after)

    def find(self, name: object) -> LogEntry:
        """The log of a name.

        Raises:
            NoSuchLog: If there is none.
        """
        found = self._entries.get(name) if isinstance(name, str) else None
        if found is None:
            raise NoSuchLog(name, self._entries)
        return found

    def check_free(self, name: object, *, but: str | None = None) -> str:
        """The name, if a new log may have it.

        Raises:
            InvalidName: If no log can be called that.
            LogExists: If one is, perhaps in other case.
        """
        name = check_name(name)
        taken = self._plain.get(name.casefold())
        if taken is not None and taken != but:
            raise LogExists(taken)
        return name

    def directories(self) -> frozenset[str]:
        """Where they lie."""
        return frozenset(entry.directory for entry in self._entries.values())

    @staticmethod
    def free_directory(name: str, taken: Collection[str]) -> str:
        """A directory for a new log: its name, or its name and a number."""
        plain = {one.casefold() for one in taken}
        found, number = name, 1
        while found.casefold() in plain:
            number += 1
            found = f"{name}-{number}"
        return found

    def __getitem__(self, name: str) -> LogEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def _entry(stored: bytes | None) -> LogEntry | None:
    return None if stored is None else msgspec.json.decode(stored, type=LogEntry)

"""The list of the logs of a store, read from its system log.

The system log is the source of truth. Each of its transactions holds one change: ``entity_type`` is ``log``, ``key`` the name
of the log, ``body`` its entry after the change, ``before`` its entry before it. ``meta`` names the event (``CREATED``,
``RENAMED``, ``RETYPED``, ``DROPPED``), so that subscriptions without bodies can tell them apart.
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
"""The name by which transports address the system log; ``check_name`` refuses it."""

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
    """The name, if it is valid for a log, and so for a directory on every file system.

    Raises:
        InvalidName: If it is not.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or name.endswith((".", ".tmp")):
        raise InvalidName(name, _RIGHT)
    plain = name.casefold()
    if plain.split(".")[0] in _DEVICES or plain in _FILES or plain.startswith("wal-"):
        raise InvalidName(name, _RIGHT)
    return name


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry of one log of a store.

    Attributes:
        name: The name of the log.
        log_id: Its unique id; a later log of the same name has another one.
        directory: Its directory in the store: its first name, or that name and a number if such a directory existed.
        type: The kind of log, chosen by the application.
        labels: Further texts by name, chosen by the application.
        options: The options given at its creation, or set since, where they differ from the store's.
    """

    name: str
    log_id: str
    directory: str
    type: str | None = None
    labels: dict[str, str] = {}
    options: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """The entry as a JSON object: the form in which it is stored and delivered."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def check_labels(kind: object, labels: object) -> dict[str, str]:
    """The labels, if they and the type can be stored.

    Raises:
        InvalidChange: If the type is not None or a text of 1 to 256 characters, or the labels are not a mapping of at most 64
            texts to texts of at most 256 characters.
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
    """The change that creates a log."""
    return _engine(upsert(ENTITY_TYPE, entry.name, entry.body(), meta={"event": "CREATED"}))


def dropped(entry: LogEntry) -> Mutation:
    """The change that drops a log."""
    return _engine(remove(ENTITY_TYPE, entry.name, before=entry.body(), meta={"event": "DROPPED"}))


def replaced(before: LogEntry, after: LogEntry) -> Mutation:
    """The change that renames a log, or replaces its type, labels or options."""
    what = {"event": "RETYPED"} if before.name == after.name else {"event": "RENAMED", "from": before.name}
    return _engine(upsert(ENTITY_TYPE, after.name, after.body(), before=before.body(), meta=what))


def _engine(row: Mutation) -> Mutation:
    return replace(row, area=int(Area.ENGINE))


class LogStep(NamedTuple):
    """The effect of one change of the system log: the entry before it and after it; None where the log did not exist."""

    before: LogEntry | None
    after: LogEntry | None


class LogEntries(Mapping[str, LogEntry]):
    """The existing logs by name. Only changes of the system log modify it."""

    def __init__(self) -> None:
        self._entries: dict[str, LogEntry] = {}
        self._plain: dict[str, str] = {}

    def apply(self, change: Change) -> LogStep | None:
        """Applies one change of the system log; None if the change is about no log.

        Raises:
            WalCorrupted: If it contradicts the changes before it.
        """
        if change.area is not Area.ENGINE or change.entity_type != ENTITY_TYPE:
            return None  # a later release may record other changes
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
        """The entry of the log of a name.

        Raises:
            NoSuchLog: If there is none.
        """
        found = self._entries.get(name) if isinstance(name, str) else None
        if found is None:
            raise NoSuchLog(name, self._entries)
        return found

    def check_free(self, name: object, *, but: str | None = None) -> str:
        """The name, if it is valid and free.

        Args:
            name: The name to check.
            but: A log that may have the name in other case: the log that is renamed.

        Raises:
            InvalidName: If the name is not valid for a log.
            LogExists: If a log has the name, perhaps in other case.
        """
        name = check_name(name)
        taken = self._plain.get(name.casefold())
        if taken is not None and taken != but:
            raise LogExists(taken)
        return name

    def directories(self) -> frozenset[str]:
        """The directories of the logs."""
        return frozenset(entry.directory for entry in self._entries.values())

    @staticmethod
    def free_directory(name: str, taken: Collection[str]) -> str:
        """A free directory for a new log: its name, or its name and a number if that is taken in any case."""
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

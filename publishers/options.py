"""The options of a change log, and the table of the options of any class.

A class declares each option once: its name, type, default and bounds as a field, and what it means in its docstring, under ``Attributes``. What its
constructor checks, files and commands read, and documentation shows is made of that.
"""

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from inspect import cleandoc
from math import inf, ulp
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from publishers.errors import InvalidOption

__all__ = [
    "KEEP_HISTORY",
    "KEPT",
    "KIB",
    "MIB",
    "POSITIVE",
    "LogOptions",
    "Option",
    "Readers",
    "SyncPolicy",
    "check_directory",
    "check_kept",
    "check_label",
    "check_options",
    "check_switches",
    "check_wait",
    "check_whole",
    "options_of",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB

SyncPolicy = Literal["always", "interval", "os"]
Readers = Literal["owner", "group", "all"]

KEPT: Final = (
    "retain_bytes",
    "retain_age",
    "slot_keep_bytes",
    "slot_keep_age",
    "held_max_bytes",
    "producers",
    "producer_ttl",
    "sync",
    "sync_interval",
    "ack_sync",
    "segment_bytes",
    "segment_age",
    "frame_bytes",
    "compress",
    "origin",
)
"""The options that the log itself keeps: they decide what of it stays, how it is synced, and what is written into it. All others are
of the process that opens it. See ``publishers.wal.files.own_options``."""

KEEP_HISTORY: Final[Mapping[str, Any]] = {
    "retain_bytes": None,
    "retain_age": None,
    "slot_keep_bytes": None,
    "slot_keep_age": None,
    "held_max_bytes": 2**62,
}
"""Options with which an opening deletes nothing."""

POSITIVE: Final = ulp(0.0)
"""The lower bound of a number that is above 0."""

_WHOLE: Final = (1, 2**62)  # the bounds of a whole number that names none
_UNITS: Final = {
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "s": 1, "m": 60, "h": 3600, "d": 86400
}  # fmt: skip
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", re.ASCII)
_ENTRY: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: Its name; that of a size ends with ``bytes``.
        kind: ``bool``, ``int``, ``float`` or ``str``; None for an object that the class itself checks.
        default: Its default.
        low: The least value, or the least length of a text.
        high: The greatest value, or the greatest length of a text.
        choices: The only values; empty if there are others.
        optional: Whether it may be None.
        says: What it means.
    """

    name: str
    kind: type | None
    default: Any
    low: float
    high: float
    choices: tuple[str, ...]
    optional: bool
    says: str

    @property
    def unit(self) -> str:
        """``bytes`` or ``s``; empty for a number without a unit, and for what is no number."""
        if self.kind is int and self.name.endswith("bytes"):
            return "bytes"
        return "s" if self.kind is float and not self.name.endswith("share") else ""

    @property
    def right(self) -> str:
        """Describes its values, for errors."""
        if self.choices:
            *others, last = map(repr, self.choices)
            said = f"{', '.join(others)} or {last}"
        elif self.kind is bool:
            said = "True or False"
        elif self.kind is str:
            said = f"a text of {self.low} to {self.high} characters"
        else:
            said = "a whole number" if self.kind is int else "seconds" if self.unit else "a number"
            plain = (self.low, self.high) in (_WHOLE, (POSITIVE, inf))
            said += " above 0" if plain else f" from {_shown(self.low)} to {_shown(self.high)}"
        return f"{said}, or None" if self.optional else said

    def check(self, value: object) -> None:
        """Checks a value; an object that the class checks is not looked at.

        Raises:
            InvalidOption: If it is of another type, or out of its bounds.
        """
        if self.kind is None or (value is None and self.optional):
            return
        if not self._allows(value):
            raise InvalidOption(self.name, value, self.right)

    def _allows(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if self.kind is str:
            whole = isinstance(value, str) and value.encode("utf-8", "replace").decode() == value
            return whole and self.low <= len(value) <= self.high
        return isinstance(value, int if self.kind is int else (int, float)) and self.low <= value <= self.high

    def read(self, text: str) -> Any:
        """Reads a value as people write it: a number may have a unit, and ``none``, ``true`` and ``false`` are what they say.

        The value is not checked, since a text that is none is refused by `check`, with what would be right.

        Raises:
            InvalidOption: If a number has an unknown unit.
        """
        number = _NUMBER.fullmatch(text) if self.kind in (int, float) else None
        if number is None:
            return {"none": None, "true": True, "false": False}.get(text.lower(), text)
        if number[2] and number[2] not in _UNITS:
            raise InvalidOption(self.name, text, "a number, alone or with " + ", ".join(_UNITS))
        found = float(number[1]) if "." in number[1] else int(number[1])
        return found * _UNITS.get(number[2], 1)


@cache
def options_of(cls: Hashable) -> tuple[Option, ...]:
    """The options of a dataclass or a struct, in the order of their fields."""
    said = {name: " ".join(text.split()) for name, text in _ENTRY.findall(cleandoc(cls.__doc__ or ""))}
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_option(name, hints[name], default, said.get(name, "")) for name, default in _defaults(cls))


def check_options(given: Any) -> None:
    """Checks every option of an object by the table of its class.

    Raises:
        InvalidOption: If one is of another type, or out of its bounds.
    """
    for option in options_of(given.__class__):
        option.check(getattr(given, option.name))


def _shown(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _defaults(cls: Any) -> list[tuple[str, Any]]:
    if is_dataclass(cls):
        return [
            (one.name, one.default if one.default_factory is MISSING else one.default_factory())
            for one in fields(cls)
        ]
    return list(zip(cls.__struct_fields__, cls.__struct_defaults__, strict=True))


def _option(name: str, hint: Any, default: Any, says: str) -> Option:
    bounds: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *bounds = get_args(hint)
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    optional = type(None) in parts
    parts = tuple(part for part in parts if part is not type(None))
    part = parts[0] if len(parts) == 1 else None
    choices = get_args(part) if get_origin(part) is Literal else ()
    kind = str if choices else part if part in (bool, int, float, str) else None
    low, high = bounds or (_WHOLE if kind is int else (POSITIVE, inf))
    return Option(name, kind, default, low, high, choices, optional, says)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Bounds and policies of one change log; sizes in bytes, times in seconds.

    Attributes:
        sync: When a commit returns: ``always`` after its sync, ``interval`` after the write (synced, and only then
            delivered, each ``sync_interval``), ``os`` after the write, which the operating system writes back at a time of
            its own.
        readers: Which users may read a new log: its ``owner`` alone (0700, and 0600 of files), its ``group`` (0750 and 0640), or
            ``all`` (0755 and 0644). A log that exists keeps its modes.
        sync_interval: Longest time between two syncs under ``sync="interval"``.
        segment_bytes: Size at which a segment is closed and the next one begun, at least 64 KiB.
        segment_age: Age at which a segment is closed, or None.
        frame_bytes: Payload above which a transaction continues in a further frame.
        max_change_bytes: Largest single change.
        max_key_bytes: Longest key of a committed change; stored keys may be longer. Matching a key against patterns takes
            time proportional to its length.
        spool_bytes: Size above which a transaction is spooled to a file before its commit, and read from the log instead
            of being held in rings.
        fill_step: Most zeros that are preallocated behind the end of the log, so that a commit does not change the file's size: as
            many as the log has, from 64 KiB.
        reserve_bytes: Most disk space that is reserved for small writes that must succeed on a full disk: opening and closing the log,
            publishing or truncating withheld commits, and positions of consumers. As much is reserved as the log has, from 64 KiB, and
            at most a sixteenth of ``segment_bytes``.
        queue_bytes: Bytes of queued commits above which callers wait.
        expect_bytes: Most bytes of the log to scan for a commit that expects keys to be unchanged; if more was committed
            since its position, the commit is refused.
        withheld_bytes: Most bytes of withheld transactions to keep in memory; beyond it, subscribers read them from the
            log once they are published.
        head_sync: Longest time after a commit until HEAD records it.
        compress: Whether payloads from 4 KiB are compressed.
        retain_bytes: Size of the log above which old segments may be deleted, or None.
        retain_age: Age above which old segments may be deleted, or None.
        slot_keep_bytes: Most bytes of the log that one hold may keep from retention, or None; above it the hold is lost.
        slot_keep_age: Longest time for which one hold may keep a closed segment, or None; above it the hold is lost.
        slots: Most slots of the log; each makes opening the log a little slower.
        ack_sync: Longest time until an acknowledgement to a slot is durable; after a crash, changes whose acknowledgement
            was not durable are delivered again.
        held_max_bytes: Bytes of deleted segments that one consumer's hard links may keep on the disk.
        state: Whether the owner keeps the compacted state: the newest body of each entity, in an SQLite file beside the log.
        snapshot_bytes: Bytes of pages of rows that snapshots keep in memory for their subscribers; beyond it the pages that were
            used longest ago are given up, and read again when their subscribers can take them.
        snapshot_max_duration: Time in which a subscriber must receive all rows of a snapshot, and longest time for which a
            closed segment is kept for it; then the snapshot ends with ``SnapshotGone``.
        producers: Most producers whose last sequence is remembered: local ones, those of clients, and those of single
            connections of clients, each.
        producer_ttl: How long an idle producer is remembered.
        ring_events: Most changes in one ring.
        ring_bytes: Most bytes in one ring. A block counts in full, with its objects, however few of its changes match. In
            addition the ring caches the last 8 batches taken from it, each of up to ``batch_bytes``, and what was rendered from
            them, until it evicts one of their chunks.
        replay_bytes: Bytes of verified frames, and what was rendered from them, cached for subscribers that read from the
            WAL; a quarter of it is for what several subscribers with equal criteria read together.
        match_weight: Questions of all publishers, detached ones included; beyond it, subscribing fails with ``TooCostly``.
        dispatch_threads: Threads that deliver to subscribers without an executor or an event loop.
        batch_events: Most changes that one poll pulls for a subscriber.
        batch_bytes: Most bytes that one poll pulls for a subscriber; a larger change makes a batch of its own.
        publish: Whether the log accepts subscribers. Without, subscribing fails with ``PublishingOff`` and commits are
            not matched.
        origin: Name of the place where the changes of this log are first made, such as a cluster. It is written into each
            change without an origin; None for none.
        tail_poll: Poll interval of a read-only opening that receives no notifications of commits.
    """

    # After the type of a number come its bounds, or those of the length of a text; if it has none, it is a whole number above 0.
    sync: SyncPolicy = "always"
    readers: Readers = "owner"
    sync_interval: Annotated[float, 0.001, 60.0] = 0.05
    segment_bytes: Annotated[int, 64 * KIB, 2**40] = 64 * MIB
    segment_age: Annotated[float | None, 0.001, 2**40] = None
    frame_bytes: Annotated[int, KIB, 256 * MIB] = MIB
    max_change_bytes: Annotated[int, KIB, 1024 * MIB] = 16 * MIB
    max_key_bytes: Annotated[int, 16, 1024 * MIB] = KIB
    spool_bytes: int = 32 * MIB
    fill_step: Annotated[int, 0, 1024 * MIB] = 8 * MIB
    reserve_bytes: Annotated[int, 0, 2**40] = MIB
    queue_bytes: int = 64 * MIB
    expect_bytes: Annotated[int, 0, 2**62] = 16 * MIB
    withheld_bytes: Annotated[int, 0, 2**62] = 32 * MIB
    head_sync: Annotated[float, 0.0, 3600.0] = 1.0
    compress: bool = False
    retain_bytes: Annotated[int | None, 0, 2**62] = 1024 * MIB
    retain_age: Annotated[float | None, 0.0, 2**40] = 7 * 86400.0
    slot_keep_bytes: Annotated[int | None, 0, 2**62] = 4096 * MIB
    slot_keep_age: Annotated[float | None, 0.0, 2**40] = None
    slots: Annotated[int, 0, 100_000] = 1_000
    ack_sync: Annotated[float, 0.001, 3600.0] = 0.2
    held_max_bytes: Annotated[int, 0, 2**62] = 4096 * MIB
    state: bool = False
    snapshot_bytes: Annotated[int, 0, 2**62] = 64 * MIB
    snapshot_max_duration: Annotated[float, 0.0, 2**40] = 86400.0
    producers: int = 10_000
    producer_ttl: Annotated[float, 0.0, 2**40] = 30 * 86400.0
    ring_events: int = 131_072
    ring_bytes: int = 32 * MIB
    replay_bytes: int = 64 * MIB
    match_weight: Annotated[int, 0, 2**31] = 65_536
    dispatch_threads: Annotated[int, 1, 256] = 4
    batch_events: int = 1024
    batch_bytes: int = 256 * KIB
    publish: bool = True
    origin: Annotated[str | None, 1, 256] = None
    tail_poll: Annotated[float, 0.0005, 60.0] = 0.02

    @classmethod
    def chosen(cls, options: "LogOptions | None", overrides: Mapping[str, Any]) -> "LogOptions":
        """Returns the options, or the defaults, with single values replaced.

        Raises:
            InvalidOption: If ``options`` is not a `LogOptions`, or an option is unknown or out of its bounds.
        """
        if options is not None and not isinstance(options, LogOptions):
            raise InvalidOption("options", options, "LogOptions(...), or None")
        for name, value in overrides.items():
            if name not in cls.__dataclass_fields__:
                raise InvalidOption(name, value, _nearest(name, cls.__dataclass_fields__))
        return replace(options or cls(), **overrides)

    def __post_init__(self) -> None:
        check_options(self)


def check_label(parameter: str, value: object) -> None:
    """Checks a name that clients choose for themselves and that people are shown, on terminals too.

    Raises:
        InvalidOption: If it is not a text of 1 to 256 printable characters.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
        raise InvalidOption(parameter, value, "a text of 1 to 256 printable characters")


def check_switches(**given: object) -> None:
    """Checks switches strictly: any other value, such as the text "no", would count as on.

    Raises:
        InvalidOption: If a value is neither True nor False.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise InvalidOption(name, value, "True or False")


def check_whole(parameter: str, value: object, right: str, least: int = 0, most: float = inf) -> None:
    """Checks a whole number.

    Args:
        parameter: Name of the parameter.
        value: Its value.
        right: Describes correct values, for the error.
        least: The smallest allowed value.
        most: The greatest allowed value.

    Raises:
        InvalidOption: If the value is not a whole number, or out of its bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(parameter, value, right)


def check_kept(options: Mapping[str, Any]) -> None:
    """Checks options that a log is to keep.

    Raises:
        InvalidOption: If a log does not keep an option of that name, or a value is out of its bounds.
    """
    for name, value in options.items():
        if name not in KEPT:
            raise InvalidOption(name, value, _nearest(name, KEPT))
    LogOptions.chosen(None, options)


def check_wait(value: object) -> None:
    """Checks the time to wait for another writer.

    Raises:
        InvalidOption: If it is no number of seconds from 0 to a day.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 86400:
        raise InvalidOption("wait", value, "seconds, from 0 to 86400")


def check_directory(path: object) -> Path:
    """Checks the directory of a log or a store.

    Raises:
        InvalidOption: If it is not a path.
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in str(path) or not str(path):
        raise InvalidOption("path", path, "the path of a directory")
    try:
        os.fsencode(path)
        return Path(path)
    except (TypeError, UnicodeError):
        raise InvalidOption("path", path, "the path of a directory, as text") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    """Suggests the option with the most similar name, or lists all."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    return f"left out, or named {near[0]}" if near else "one of " + ", ".join(names)

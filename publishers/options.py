"""The options of a change log: every bound has a name, a default and a check."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from publishers.errors import InvalidOption
from publishers.option_table import check_options

__all__ = [
    "KEEP_HISTORY",
    "KEPT",
    "KIB",
    "MIB",
    "LogOptions",
    "Readers",
    "SyncPolicy",
    "check_directory",
    "check_kept",
    "check_label",
    "check_switches",
    "check_wait",
    "check_whole",
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
        fill_step: Zeros preallocated behind the end of the log, so that a commit does not change the file's size.
        reserve_bytes: Disk space reserved for small writes that must succeed on a full disk: opening and closing the log, publishing or
            truncating withheld commits, and positions of consumers. At most a sixteenth of ``segment_bytes`` is reserved.
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

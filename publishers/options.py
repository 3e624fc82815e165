"""The options of a change log: every bound has a name, a default and a check."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from publishers.errors import InvalidOption

__all__ = ["KIB", "MIB", "LogOptions", "SyncPolicy", "check_directory", "check_switches", "check_whole"]

KIB: Final = 1024
MIB: Final = 1024 * KIB

SyncPolicy = Literal["always", "interval", "os"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Bounds and policies of one change log; sizes in bytes, times in seconds.

    Attributes:
        sync: When a commit returns: ``always`` after its sync, ``interval`` after the write (synced, and only then
            delivered, each ``sync_interval``), ``os`` after the write, which the operating system writes back when it
            likes.
        sync_interval: Longest time between two syncs under ``sync="interval"``.
        segment_bytes: Size at which a segment is closed and the next one begun, at least 64 KiB.
        segment_age: Age at which a segment is closed, or None.
        frame_bytes: Payload above which a transaction continues in a further frame.
        max_change_bytes: Largest single change.
        max_key_bytes: Longest key of a change that is committed; what is stored may be longer. Matching a key against patterns
            takes time of its length.
        max_transaction_bytes: Largest transaction.
        max_transaction_changes: Most changes of a transaction.
        spool_bytes: A transaction above it is spooled to a file before it is committed, and resynced from the log
            instead of being held in rings.
        fill_step: Zeros written ahead of the end of the log, so that a commit does not change the file's size.
        reserve_bytes: Room on the disk that is kept back for what must be written although it is full: what ends, shows or
            forgets commits, and positions of consumers. At most a sixteenth of ``segment_bytes`` is.
        group_bytes: Most bytes that one group commit writes.
        group_transactions: Most transactions in one group commit.
        queue_bytes: Bytes of commits that may wait for their turn; then callers wait.
        expect_bytes: Most bytes of the log that are looked through for a commit that expects keys to be unchanged; where
            more was committed since, it is refused.
        deferred_bytes: Most bytes of withheld transactions that are kept in memory; beyond it, subscribers read them from
            the log when they are shown.
        head_sync: Longest time after a commit until HEAD tells of it.
        compress: Whether payloads from 4 KiB are compressed.
        retain_bytes: Size above which old segments may go, or None.
        retain_age: Age above which old segments may go, or None.
        slot_keep_bytes: Most bytes of the log that one hold may keep from retention, or None; beyond it the hold is lost.
        slot_keep_age: Longest time for which one hold may keep a closed segment, or None; likewise.
        slots: Most slots of the log; opening it takes a little for each.
        slot_journal_bytes: Most bytes of what is kept of all slots, with their criteria. Their journal lies there twice, and grows to
            four times of it, or 64 KiB, before it is written anew.
        ack_sync: Longest time from an acknowledgement to a slot until it is durable; a crash takes what is not, so that it comes again.
        ack_every: Acknowledgements to slots after which they are made durable without waiting for that.
        held_max_bytes: Bytes of deleted segments that one consumer's hard links may keep on the disk.
        state: Whether the owner keeps the compacted state: the newest body of each entity, in an SQLite file beside the log.
        state_interval: Shortest time between two looks of the compacted state for what is new, unless it is waited for.
        state_share: The share of one thread's time in which the compacted state follows while commits come; without a bound where it is
            waited for, read, or made anew, and while no commits come.
        state_behind_bytes: Bytes of the log that the compacted state is behind, roughly, from which on it follows without that bound; at
            most half of ``slot_keep_bytes``.
        snapshot_max_duration: Seconds within which a subscriber has to take all rows of a snapshot, and for which a closed segment is
            kept for it at most; then it ends with ``SnapshotGone``.
        producers: Most producers whose last sequence is remembered.
        producer_ttl: How long an idle producer is remembered.
        ring_events: Most changes in one ring.
        ring_bytes: Most bytes in one ring, blocks with their objects, and as a whole however few of their changes match. The last
            8 batches that were taken from it, each of ``batch_bytes``, are kept with what was made of them until one of its chunks goes.
        replay_bytes: Bytes of verified frames, with what was made of them, kept for subscribers that read from the WAL; a
            quarter of it for what several with equal criteria read together.
        replay_slice_bytes: What the replayer reads for one subscriber in its turn, or one frame if larger.
        replay_threads: Threads that serve subscribers from the WAL.
        source_threads: Most threads that read pages of the sources of snapshots at a time; while all of them wait for a source, other
            subscribers wait for their rows, and for nothing else.
        detach_weight: Questions that one publisher may have for each change, such as patterns without a literal part and
            conditions without an equality; one with more is detached: its subscriptions read from the log, behind all others.
        attached_weight: Questions that all publishers may have for each change; those that come beyond it are detached until
            there is room.
        match_weight: Questions of all publishers, detached ones too; beyond it, subscribing fails with ``TooCostly``.
        detached_share: The share of one thread's time that the subscriptions of all detached publishers are served in.
        dispatch_threads: Threads that deliver to subscribers which named no executor and run on no event loop.
        dispatch_threads_max: How many there may be where subscribers block them; below ``dispatch_threads`` there are so many.
        batch_events: Most changes that one poll pulls for a subscriber.
        batch_bytes: Most bytes that one poll pulls for a subscriber; a larger change goes alone.
        counted_types: Most entity types whose deliveries statistics count one by one; the others are counted together.
        publish: Whether the log takes subscribers; without, subscribing fails with ``PublishingOff`` and commits are
            not matched.
        origin: Where changes are first made that are written here and tell no other origin: the name of this cluster,
            say; None for none.
        tail_poll: How often a read-only opening looks for new commits if it cannot be told of them.
        tail_idle: How often it looks if it can.
    """

    # Behind the type of a number stand its bounds, unless it goes from 1 to 2**62.
    sync: SyncPolicy = "always"
    sync_interval: Annotated[float, 0.001, 60.0] = 0.05
    segment_bytes: Annotated[int, 64 * KIB, 2**40] = 64 * MIB
    segment_age: Annotated[float | None, 0.001, 2**40] = None
    frame_bytes: Annotated[int, KIB, 256 * MIB] = MIB
    max_change_bytes: Annotated[int, KIB, 1024 * MIB] = 16 * MIB
    max_key_bytes: Annotated[int, 16, 1024 * MIB] = KIB
    max_transaction_bytes: Annotated[int, KIB, 4 * 1024 * MIB - 1] = 1024 * MIB
    max_transaction_changes: Annotated[int, 1, 2**31 - 1] = 2**31 - 1
    spool_bytes: int = 32 * MIB
    fill_step: Annotated[int, 0, 1024 * MIB] = 8 * MIB
    reserve_bytes: Annotated[int, 0, 2**40] = MIB
    group_bytes: int = 8 * MIB
    group_transactions: int = 1024
    queue_bytes: int = 64 * MIB
    expect_bytes: Annotated[int, 0, 2**62] = 16 * MIB
    deferred_bytes: Annotated[int, 0, 2**62] = 32 * MIB
    head_sync: Annotated[float, 0.0, 3600.0] = 1.0
    compress: bool = False
    retain_bytes: Annotated[int | None, 0, 2**62] = 1024 * MIB
    retain_age: Annotated[float | None, 0.0, 2**40] = 7 * 86400.0
    slot_keep_bytes: Annotated[int | None, 0, 2**62] = 4096 * MIB
    slot_keep_age: Annotated[float | None, 0.0, 2**40] = None
    slots: Annotated[int, 0, 100_000] = 1_000
    slot_journal_bytes: Annotated[int, KIB, 1024 * MIB] = 16 * MIB
    ack_sync: Annotated[float, 0.001, 3600.0] = 0.2
    ack_every: int = 1_000
    held_max_bytes: Annotated[int, 0, 2**62] = 4096 * MIB
    state: bool = False
    state_interval: Annotated[float, 0.0, 3600.0] = 0.05
    state_share: Annotated[float, 0.001, 1.0] = 0.025
    state_behind_bytes: Annotated[int, 0, 2**62] = 256 * MIB
    snapshot_max_duration: Annotated[float, 0.0, 2**40] = 86400.0
    producers: int = 10_000
    producer_ttl: Annotated[float, 0.0, 2**40] = 30 * 86400.0
    ring_events: int = 131_072
    ring_bytes: int = 32 * MIB
    replay_bytes: int = 64 * MIB
    replay_slice_bytes: int = 64 * KIB
    replay_threads: Annotated[int, 1, 64] = 2
    source_threads: Annotated[int, 1, 64] = 4
    detach_weight: Annotated[int, 0, 2**31] = 128
    attached_weight: Annotated[int, 0, 2**31] = 2_048
    match_weight: Annotated[int, 0, 2**31] = 65_536
    detached_share: Annotated[float, 0.001, 1.0] = 0.1
    dispatch_threads: Annotated[int, 1, 256] = 4
    dispatch_threads_max: Annotated[int, 1, 1024] = 64
    batch_events: int = 1024
    batch_bytes: int = 256 * KIB
    counted_types: Annotated[int, 0, 1_000_000] = 1_000
    publish: bool = True
    origin: str | None = None
    tail_poll: Annotated[float, 0.0005, 60.0] = 0.02
    tail_idle: Annotated[float, 0.0005, 3600.0] = 1.0

    @classmethod
    def chosen(cls, options: "LogOptions | None", overrides: Mapping[str, Any]) -> "LogOptions":
        """Some options, or the defaults, with single ones in place of theirs.

        Raises:
            InvalidOption: If something is no options, or an option is unknown or out of its bounds.
        """
        if options is not None and not isinstance(options, LogOptions):
            raise InvalidOption("options", options, "LogOptions(...), or None")
        for name, value in overrides.items():
            if name not in cls.__dataclass_fields__:
                raise InvalidOption(name, value, _nearest(name, cls.__dataclass_fields__))
        return replace(options or cls(), **overrides)

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "os"):
            raise InvalidOption("sync", self.sync, "'always', 'interval' or 'os'")
        check_switches(**{name: getattr(self, name) for name in sorted(_SWITCHES)})
        if self.origin is not None and not _is_text(self.origin):
            raise InvalidOption("origin", self.origin, "a text of 1 to 256 characters, or None")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _SWITCHES | {"sync", "origin"}:
                continue
            low, high = getattr(field.type, "__metadata__", (1, 2**62))
            if value is None and "None" in str(field.type):
                continue
            whole = "float" not in str(field.type)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise InvalidOption(field.name, value, "a whole number" if whole else "a number")
            if not low <= value <= high:
                raise InvalidOption(field.name, value, f"between {low} and {high}")


def check_switches(**given: object) -> None:
    """Checks what is on or off: anything else, such as the text "no", would count as on.

    Raises:
        InvalidOption: If something is neither True nor False.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise InvalidOption(name, value, "True or False")


def check_whole(parameter: str, value: object, right: str, least: int = 0, most: float = inf) -> None:
    """Checks a whole number.

    Args:
        parameter: What it is given as.
        value: What was given.
        right: What would be right, for the error.
        least: The least that it may be.
        most: The greatest.

    Raises:
        InvalidOption: If it is none, or out of its bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(parameter, value, right)


def check_directory(path: object) -> Path:
    """The directory of a log or a store.

    Raises:
        InvalidOption: If it is no path.
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in str(path) or not str(path):
        raise InvalidOption("path", path, "the path of a directory")
    try:
        os.fsencode(path)
        return Path(path)
    except (TypeError, UnicodeError):
        raise InvalidOption("path", path, "the path of a directory, as text") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant, or everything that there is."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    return f"left out, or named {near[0]}" if near else "one of " + ", ".join(names)


def _is_text(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= 256
        and value.encode("utf-8", "replace").decode() == value
    )


_SWITCHES: Final = frozenset({"compress", "publish", "state"})

"""A line of log for each change that is lost or ignored: what became of it, where, and a digest of its key.

The lines are those of the logger ``penstock.losses``: what is ignored because the log has it already at INFO, what is lost at
WARNING. No line holds a key or a value. Whoever looks for a key makes its digest with `key_digest`, and the id of the log.
"""

import logging
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final
from uuid import UUID

__all__ = ["LINES_MAX", "key_digest", "tell_changes", "tell_history"]

LINES_MAX: Final = 16
"""Changes of one transaction, or bad rows of one batch, that get lines of their own; the rest is counted in one more."""

_LOG: Final = logging.getLogger("penstock.losses")


def key_digest(key: str | bytes | None, log_id: UUID) -> str:
    """What stands in a line for a key: 16 hexadecimal digits, of this log only.

    Args:
        key: The key; None for a change that has none, which is told as ``-``.
        log_id: Of the log, which who reads the lines need not know: without it a key cannot be found by trying.
    """
    if key is None:
        return "-"
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return blake2b(data, digest_size=8, key=log_id.bytes).hexdigest()


def tell_changes(
    level: int,
    why: str,
    log_id: UUID,
    count: int,
    changes: Callable[[], Iterable[tuple[str | None, str | bytes | None]]],
) -> None:
    """Writes a line for each of some changes.

    Args:
        level: INFO for what is ignored, WARNING for what is lost.
        why: What became of them, and why; without keys and values.
        log_id: Of the log.
        count: How many they are.
        changes: Gives entity types and keys, if somebody listens.
    """
    if not _LOG.isEnabledFor(level):
        return
    told = 0
    for kind, key in changes():
        if told == LINES_MAX:
            break
        told += 1
        _LOG.log(level, "%s: %s, key #%s", why, kind or "change", key_digest(key, log_id))
    if count > told:
        _LOG.log(level, "%s: %d more changes", why, count - told)


def tell_history(log: str, subscription: str, first: int, end: int) -> None:
    """Writes that a subscription has lost history, whose keys are gone with it.

    Args:
        log: Name of the log.
        subscription: What statistics call it.
        first: The first version that is lost to it.
        end: The version behind the last one.
    """
    _LOG.warning(
        "subscription %s of %s lost versions %d to %d, which retention deleted before it read them",
        subscription,
        log,
        first,
        end - 1,
    )

"""Log lines for changes that are lost or ignored: what happened, where, and a digest of the key.

They go to the logger ``penstock.losses``: changes ignored because the log already has them at INFO, lost changes at
WARNING. No line contains a key or a value. To search for a key, compute `key_digest` of it and the id of the log.
"""

import logging
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final
from uuid import UUID

__all__ = ["LINES_MAX", "key_digest", "log_changes", "log_lost_history"]

LINES_MAX: Final = 16
"""Most changes of one transaction, or bad rows of one batch, that get lines of their own; one more line counts the rest."""

_LOG: Final = logging.getLogger("penstock.losses")


def key_digest(key: str | bytes | None, log_id: UUID) -> str:
    """Returns the digest that stands for a key in log lines: 16 hexadecimal digits, different in every log.

    Args:
        key: The key; ``-`` stands for None, a change without a key.
        log_id: Id of the log. A reader of the lines who does not know it cannot find a key by trying.
    """
    if key is None:
        return "-"
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return blake2b(data, digest_size=8, key=log_id.bytes).hexdigest()


def log_changes(
    level: int,
    why: str,
    log_id: UUID,
    count: int,
    changes: Callable[[], Iterable[tuple[str | None, str | bytes | None]]],
) -> None:
    """Writes a line for each change, up to ``LINES_MAX``.

    Args:
        level: INFO for ignored changes, WARNING for lost ones.
        why: What happened, and why; without keys and values.
        log_id: Id of the log.
        count: Number of the changes.
        changes: Returns entity types and keys; called only if the level is enabled.
    """
    if not _LOG.isEnabledFor(level):
        return
    written = 0
    for kind, key in changes():
        if written == LINES_MAX:
            break
        written += 1
        _LOG.log(level, "%s: %s, key #%s", why, kind or "change", key_digest(key, log_id))
    if count > written:
        _LOG.log(level, "%s: %d more changes", why, count - written)


def log_lost_history(log: str, subscription: str, first: int, end: int) -> None:
    """Writes that a subscription has lost history; the keys are unknown, because they were deleted with it.

    Args:
        log: Name of the log.
        subscription: Name of the subscription in statistics.
        first: The first lost version.
        end: The version behind the last lost one.
    """
    _LOG.warning(
        "subscription %s of %s lost versions %d to %d, which retention deleted before it read them",
        subscription,
        log,
        first,
        end - 1,
    )

"""Errors as replies of the Redis protocol: with the code of Redis if it has one, otherwise with the code of our protocol."""

from typing import Final

from publishers.errors import HistoryPruned, InvalidCriteria, InvalidOption, LogReadOnly, PositionAhead
from publishers.groups.errors import (
    ConsumerFenced,
    GroupCorrupted,
    GroupExists,
    GroupForked,
    GroupLost,
    GroupPaused,
    GroupUnwritten,
    NoSuchGroup,
)
from transports.errors import Forbidden, LogNotFound, NotAuthenticated, Unauthenticated, shortened
from transports.problems import describe
from transports.resp.replies import RespError
from transports.resp.sequence import sequence_of

__all__ = ["NO_AUTH", "reply_of"]

NO_AUTH: Final = "NOAUTH"

_WORDS: Final = {
    Forbidden: "NOPERM",
    InvalidCriteria: "ERR",
    InvalidOption: "ERR",
    LogNotFound: "NOLOG",
    LogReadOnly: "READONLY",
    NotAuthenticated: "TRYAGAIN",
}


_GROUPS: Final[tuple[tuple[type[Exception], str, str | None], ...]] = (
    (NoSuchGroup, "NOGROUP", "the log has no such group; CDC.GROUP CREATE makes one"),
    (GroupExists, "BUSYGROUP", "Consumer Group name already exists"),
    (ConsumerFenced, "FENCED", None),
    (GroupPaused, "PAUSED", None),
    (GroupForked, "GROUP_FORKED", None),
    (
        GroupUnwritten,
        "TRYAGAIN",
        "the progress of the group cannot be written at the moment; the write is retried",
    ),
    (
        GroupCorrupted,
        "GROUP_DAMAGED",
        "the journal of the group is damaged; the server has logged the file",
    ),
)
"""Codes, and texts that replace an error's text with details of the server."""


def reply_of(error: Exception) -> RespError:
    """Returns the reply for an error. An unexpected error is logged with an id, and the client gets only the id."""
    if isinstance(error, RespError):
        return error
    if isinstance(error, Unauthenticated):
        return RespError(NO_AUTH, "Authentication required.")
    if isinstance(error, GroupLost):
        oldest = sequence_of(error.oldest)
        return RespError(
            "GROUP_LOST",
            f"the history of group {error.name!r} was above its cap, and changes before sequence {oldest} are gone; the group needs a reset by the "
            "owner of the log",
        )
    for kind, word, message in _GROUPS:
        if isinstance(error, kind):
            return RespError(word, shortened(message or str(error)))
    if isinstance(error, HistoryPruned):
        oldest = sequence_of(error.oldest)
        return RespError(
            "HISTORY_PRUNED",
            f"changes before sequence {oldest} are no longer kept; go on there, knowing that some are missing",
        )
    if isinstance(error, PositionAhead):
        head = sequence_of(error.head)
        return RespError(
            "CURSOR_AHEAD", f"the sequence is beyond the end of the log, at which the next is {head}"
        )
    problem = describe(error)
    word = next((word for kind, word in _WORDS.items() if isinstance(error, kind)), problem.code)
    return RespError(word, shortened(problem.message))

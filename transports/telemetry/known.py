"""Values of labels that are known before anything happens.

A counter has a sample of 0 for each from the start: Prometheus sees no increase in a series that begins at 1.
"""

from typing import Final

from transports.errors import CloseCode
from transports.problems import ERROR_CODES

__all__ = ["APPEND_OUTCOMES", "ENDINGS", "RESP_COMMANDS", "RESP_ENDINGS", "RESP_ERRORS"]

ENDINGS: Final = (
    *(code.name for code in CloseCode),
    "STALLED",
    "HTTP_STALLED",
    "HTTP_REFUSED",
    "CROWDED",
    "TLS_REFUSED",
)
"""Why the server closes connections."""

APPEND_OUTCOMES: Final = ("WRITTEN", "DUPLICATE", *ERROR_CODES)

RESP_ENDINGS: Final = (
    "CROWDED",
    "GOING_AWAY",
    "INTERNAL",
    "OVERLOAD",
    "PROTOCOL_ERROR",
    "STALLED",
    "TLS_REFUSED",
    "UNAUTHORIZED",
)
"""Why the server closes connections of the Redis protocol."""

RESP_COMMANDS: Final = (
    *("AUTH", "CDCPOLL", "CDC.POLL", "CDC.GROUP", "CDC.ACK", "CDC.NACK", "CDC.PENDING", "CDC.CLAIM", "CLIENT", "COMMAND"),
    *("DISCARD", "ECHO", "EXEC", "HELLO", "INFO", "MULTI", "PING", "QUIT", "SELECT", "UNKNOWN"),
)  # fmt: skip
"""The commands of the Redis protocol, and ``UNKNOWN`` for others."""

_WORDS: Final = (
    *("BUSYGROUP", "ERR", "EXECABORT", "GROUP_DAMAGED", "NOAUTH", "NOGROUP", "NOLOG", "NOPERM"),
    *("NOPROTO", "NOSEQUENCE", "PAUSED", "READONLY", "TRYAGAIN", "WRONGPASS"),
)  # fmt: skip
RESP_ERRORS: Final = tuple(sorted({*_WORDS, *ERROR_CODES}))
"""First words of errors of the Redis protocol: those of Redis, and codes."""

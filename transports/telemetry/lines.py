"""Log lines as text or JSON, and a filter that limits floods of similar lines."""

import json
import logging
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from flow.clock import SYSTEM_CLOCK, Clock

__all__ = ["ACCESS", "ACCESS_A_MINUTE", "REPEATS_A_MINUTE", "JsonLines", "Repeats", "TextLines"]

ACCESS: Final = "penstock.access"
"""The logger with one line per request and connection."""

REPEATS_A_MINUTE: Final = 60
"""Lines of one kind in a minute; further ones are counted, and the next minute's first line reports the count."""

ACCESS_A_MINUTE: Final = 12_000
"""The same for the access log."""

_KINDS_MAX: Final = 1_024
_MINUTE: Final = 60.0
# Characters that would begin a new line or control a terminal; tracebacks are appended afterwards.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class TextLines(logging.Formatter):
    """One line of text: time, level, logger and message; a traceback, if any, follows."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats the line."""
        line = f"{_time(record)} {record.levelname} {record.name} {_escaped(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``message``, the fields of ``data``, and ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats the line."""
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data = getattr(record, "data", None)
        if isinstance(data, dict):
            fields |= data
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class Repeats(logging.Filter):
    """Limits the lines of a kind per minute; a kind is a logger, a level and the message before its values are filled in.

    Args:
        most: The most lines of a kind in a minute.
        access: The same for the access log.
        clock: The clock.
    """

    def __init__(
        self, most: int = REPEATS_A_MINUTE, access: int = ACCESS_A_MINUTE, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__()
        self._most = most
        self._access = access
        self._now: Callable[[], float] = clock.monotonic
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}  # start of the minute, and count

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; the first line after a suppression reports how many lines were left out."""
        # The access log is one kind, because clients influence its text.
        access = record.name == ACCESS
        kind = (record.name, record.levelno, "" if access else str(record.msg)[:200])
        most, now = self._access if access else self._most, self._now()
        with self._lock:
            since, count = self._kinds.get(kind, (now, 0))
            left_out = 0
            if now - since >= _MINUTE:
                left_out, since, count = max(0, count - most), now, 0
            self._kinds.pop(kind, None)  # moved to the end: the dict is in order of use
            self._kinds[kind] = since, count + 1
            if len(self._kinds) > _KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
        if count >= most:
            return False
        if left_out:
            record.msg = f"({left_out} lines like this were left out) {record.getMessage()}".replace(
                "%", "%%"
            )
            record.msg, record.args = record.msg % (), None
        return True

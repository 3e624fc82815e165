"""Lines of log, as text or JSON, of which a flood of equal ones is cut short."""

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
"""The logger with a line for each request and connection."""

REPEATS_A_MINUTE: Final = 60
"""Lines of one kind in a minute; those beyond are counted, and told in one line when the minute is over."""

ACCESS_A_MINUTE: Final = 12_000
"""The same for the access log."""

_KINDS_MAX: Final = 1_024
_MINUTE: Final = 60.0
# What would begin a new line, or speak to a terminal; tracebacks are added behind it.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class TextLines(logging.Formatter):
    """One line for people: time, level, logger, message; and below it the traceback, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = f"{_time(record)} {record.levelname} {record.name} {_escaped(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, the fields of ``data``, and ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data = getattr(record, "data", None)
        if isinstance(data, dict):
            told |= data
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class Repeats(logging.Filter):
    """Lets so many lines of a kind through in a minute; a kind is a logger, a level and the text before its values.

    Args:
        most: Lines of a kind in a minute.
        access: The same for the access log.
        clock: Tells the time.
    """

    def __init__(
        self, most: int = REPEATS_A_MINUTE, access: int = ACCESS_A_MINUTE, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__()
        self._most = most
        self._access = access
        self._now: Callable[[], float] = clock.monotonic
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}  # since when, and how many

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; one that follows others that were not tells how many these were."""
        # All of the access log is one kind, whatever clients make of its text.
        access = record.name == ACCESS
        kind = (record.name, record.levelno, "" if access else str(record.msg)[:200])
        most, now = self._access if access else self._most, self._now()
        with self._lock:
            since, count = self._kinds.get(kind, (now, 0))
            left_out = 0
            if now - since >= _MINUTE:
                left_out, since, count = max(0, count - most), now, 0
            self._kinds.pop(kind, None)  # the latest is last
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

"""Commits further flights to a second log after the million changes, so that the board keeps moving.

The year begins again, moved to today, and one minute of it takes a second. The flights of that log are **synthetic**: real
flights with other dates; each body says so. The log of the million changes stays as Spark wrote it. The ring of the second log
is small: a viewer that pauses is overtaken within about a quarter of a minute, and can watch the resync.
"""

import json
import shutil
import threading
from collections.abc import Iterator, MutableMapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from penstock_cdc import ChangeLog, Mutation, upsert
from penstock_flights.airports import NEW_YORK
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.plan import FLIGHTS

__all__ = ["NAME", "Afterwards", "flight_change", "moved_minutes"]

NAME: Final = "today"
"""The name of the second log."""

_MINUTE: Final = timedelta(minutes=1)
_PACE: Final = 1.0  # seconds for a minute of the flights' time
_BEGIN: Final = time(7, 0)  # in New York, when a day is busy
_ROWS: Final = 1000
_OPTIONS: Final[dict[str, Any]] = {
    "ring_events": 32,
    "segment_bytes": 1 << 20,
    "retain_bytes": 16 << 20,
    "retain_age": None,
}
_PATIENCE: Final = 10.0  # seconds for a commit to end


class Afterwards:
    """Commits the flights of a new day, until ``stop``.

    Args:
        directory: The directory of the second log; a log of an earlier run is deleted.
        events: The directory of the prepared files.
        logs: The served logs, to which the second log is added.
        pace: Seconds for a minute of the flights' time.
        today: The date to which the flights are moved; by default that of New York.
    """

    def __init__(
        self,
        directory: Path,
        events: Path,
        logs: MutableMapping[str, ChangeLog],
        *,
        pace: float = _PACE,
        today: date | None = None,
    ) -> None:
        if directory.exists():
            shutil.rmtree(directory)
        self._log = ChangeLog.open(directory, **_OPTIONS)
        self._logs = logs
        self._minutes = moved_minutes(events, today or datetime.now(ZoneInfo(NEW_YORK)).date())
        self._pace = pace
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-afterwards", daemon=True)
        logs[NAME] = self._log
        self._thread.start()

    def wait(self) -> None:
        """Waits until ``stop`` is called.

        Raises:
            Exception: The error that ended the commits, such as a full disk.
        """
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the commits, and closes the log. Idempotent."""
        self._stopped.set()
        self._thread.join(_PATIENCE)
        self._logs.pop(NAME, None)
        self._log.close()

    def _run(self) -> None:
        try:
            for flights in self._minutes:
                if self._stopped.is_set():
                    break
                if flights:
                    self._log.commit(flights, meta={"synthetic": True})
                self._stopped.wait(self._pace)
        except Exception as error:  # noqa: BLE001 - ``wait`` raises it
            self._error = error
        finally:
            self._ended.set()


def moved_minutes(events: Path, today: date) -> Iterator[list[Mutation]]:
    """The changes of each minute, without end; the first list is the state at seven in the morning.

    The second day of the events becomes ``today``; after their last day the first one follows again.

    Args:
        events: The directory of the prepared files.
        today: The date in New York on which it begins.
    """
    zone = ZoneInfo(NEW_YORK)
    first = next(_rows(events))
    second = first["date"] + timedelta(days=1)
    begin = datetime.combine(today, _BEGIN, zone).astimezone(UTC)
    days = today - second
    shift = begin - datetime.combine(second, _BEGIN, zone).astimezone(UTC)
    minute = begin
    known: dict[str, Mutation] | None = {}
    gathered: list[Mutation] = []
    while True:
        row = first
        for row in _rows(events):
            at = row["time"] + shift
            key, body = flight_change(row, shift=shift, days=days)
            change = upsert(FLIGHTS, key, body)
            if known is not None and at < minute:
                known.pop(key, None)
                if row["status"] in ("scheduled", "departed"):
                    known[key] = change
                continue
            if known is not None:
                yield list(known.values())
                known = None
            while at >= minute + _MINUTE:
                yield gathered
                gathered, minute = [], minute + _MINUTE
            gathered.append(change)
        again = row["date"] - first["date"] + timedelta(days=1)
        days, shift = days + again, shift + again


def flight_change(
    row: dict[str, Any], *, shift: timedelta | None = None, days: timedelta = timedelta()
) -> tuple[str, bytes]:
    """Key and body of a flight event, just as Spark makes them.

    Args:
        row: A row of ``EVENT_SCHEMA``.
        shift: Added to its times; the body then says that it is synthetic.
        days: Added to its date.
    """
    body: dict[str, Any] = {}
    for name, value in row.items():
        match value:
            case datetime():
                moment = (value + (shift or timedelta())).astimezone(UTC).replace(tzinfo=None)
                body[name] = moment.isoformat(timespec="microseconds") + "Z"
            case date():
                body[name] = (value + days).isoformat()
            case _ if name != ORDER_COLUMN:
                body[name] = value
    if shift is not None:
        body["synthetic"] = True
    return "/".join(str(body[name]) for name in KEY_COLUMNS), json.dumps(body, separators=(",", ":")).encode()


def _rows(events: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(events.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()

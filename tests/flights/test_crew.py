import time
from contextlib import contextmanager

import pytest

from penstock_flights.crew import Remote
from penstock_flights.digest import StreamDigest
from penstock_flights.plan import SLOW, WEBSOCKET
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from transports.server.uvicorn import serve

DEADLINE = 120.0
ORIGINS = ("JFK", "EWR", "LGA")


def rows(first, last):
    return [
        (f"AA/{number}/2013-01-01/{ORIGINS[number % 3]}", b'{"number": %d}' % number)
        for number in range(first, last)
    ]


def commit(log, first, last):
    log.commit([upsert("flight", key, body) for key, body in rows(first, last)])


def digest_of(wanted, first, last):
    digest = StreamDigest()
    chosen = (row for row in rows(first, last) if wanted.key_glob is None or row[0].endswith("/JFK"))
    digest.add_many((key.encode(), body) for key, body in chosen)
    return digest


def wait(condition):
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "it did not come to pass in time"
        _pause()


def _pause(seconds=0.02):
    import threading

    threading.Event().wait(seconds)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "flights", ring_events=200) as opened:
        yield opened


@contextmanager
def started(wanted, log, path, *, step=10):
    with serve(log) as server:
        remote = Remote(wanted, path, step=step)
        remote.start(server.url)
        try:
            yield remote
        finally:
            remote.leave()


def test_a_client_gets_what_its_criteria_select_and_ends_when_told(log, tmp_path):
    commit(log, 0, 90)
    with started(WEBSOCKET, log, tmp_path / "place.json") as remote:
        commit(log, 90, 120)
        wait(lambda: remote.place.count == 40 or remote.error)
        remote.tell("finish")
        remote.leave()
        assert remote.finished
        assert remote.error is None
    assert remote.place.digest == digest_of(WEBSOCKET, 0, 120)
    assert remote.place.misplaced == 0


def test_a_client_that_was_stopped_goes_on_where_it_was(log, tmp_path):
    for first in (0, 60):
        commit(log, first, first + 60)
        with started(WEBSOCKET, log, tmp_path / "place.json") as remote:
            wait(lambda: log.head.version <= _version(log, remote) or remote.error)
            remote.tell("finish")
    assert remote.place.digest == digest_of(WEBSOCKET, 0, 120)


def _version(log, remote):
    return 0 if remote.place.cursor is None else log.position_of(remote.place.cursor).version


def test_a_client_that_dawdles_is_overtaken_and_catches_up_when_told_to_hurry(log, tmp_path):
    with started(SLOW, log, tmp_path / "place.json") as remote:
        wait(lambda: remote.place.cursor or remote.error)
        for first in range(0, 600, 60):
            commit(log, first, first + 60)
        wait(lambda: remote.state == "RESYNC" or remote.error)
        assert remote.place.count < 300
        remote.tell("hurry")
        wait(lambda: (remote.place.count == 600 and remote.state == "LIVE") or remote.error)
        remote.tell("finish")
        remote.leave()
    assert remote.place.digest == digest_of(SLOW, 0, 600)
    assert (remote.place.resyncs, remote.place.returns) == (1, 1)


def test_a_client_that_cannot_connect_says_so_in_one_line(log, tmp_path):
    with serve(log) as server:
        url = server.url
    remote = Remote(WEBSOCKET, tmp_path / "place.json", step=1)
    remote.start(url)
    wait(lambda: remote.error)
    remote.leave()
    assert not remote.finished
    assert "\n" not in remote.error


def test_an_orphan_ends_by_itself_and_writes_nothing(log, tmp_path):
    commit(log, 0, 30)
    path = tmp_path / "place.json"
    with started(SLOW, log, path, step=1) as remote:
        wait(lambda: remote.place.count or remote.error)
        stopped = remote._process
        stopped.stdin.close()  # as when the demo is killed
        assert stopped.wait(DEADLINE) == 1
        remote.leave()
        assert not remote.finished
    assert remote.error is not None


def test_nobody_has_to_be_started_to_leave(tmp_path):
    remote = Remote(WEBSOCKET, tmp_path / "place.json", step=1)
    remote.tell("finish")
    remote.leave()
    assert not remote.finished

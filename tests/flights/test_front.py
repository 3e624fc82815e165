import json
import socket
import urllib.request

import pytest

from penstock_flights import front as module
from penstock_flights.front import STAGE, Front
from publishers import ChangeLog, Content
from tests.harness.constants import set_constant


@pytest.fixture
def front(tmp_path):
    front = Front(tmp_path / "stage", 0)
    yield front
    front.close()


def test_what_the_demo_does_is_said_once(front):
    for text in ("Spark is starting.", "Spark is starting.", "Spark streams."):
        front.say(text)
    changes = front.logs[STAGE].history(content=Content.BODY).changes
    assert [one.body["text"] for one in changes if one.index] == ["Spark is starting.", "Spark streams."]


def test_the_board_is_served_before_any_log_of_flights_and_those_that_join_are_served(front, tmp_path):
    with urllib.request.urlopen(front.server.home_url) as answer:
        assert b"Departures" in answer.read()
    with ChangeLog.open(tmp_path / "flights") as log:
        front.logs[log.name] = log
        with urllib.request.urlopen(front.server.health_url) as answer:
            assert list(json.load(answer)["logs"]) == [STAGE, "flights"]
        front.server.stop()


def test_another_start_says_nothing_of_the_one_before(front, tmp_path):
    front.say("Spark is starting.")
    front.close()
    front.close()
    again = Front(tmp_path / "stage", 0)
    left = again.logs[STAGE].history().changes
    again.close()
    assert not left


def test_where_the_usual_port_is_taken_any_other_is_used_but_not_for_one_that_was_asked_for(
    tmp_path, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        set_constant(monkeypatch, module, "_PORT", port)
        front = Front(tmp_path / "any", None)
        assert front.server.port != port
        front.close()
        with pytest.raises(OSError, match=rf"{port}.*; choose another --port"):
            Front(tmp_path / "asked", port)
    Front(tmp_path / "asked", 0).close()

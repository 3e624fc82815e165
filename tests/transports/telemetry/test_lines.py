"""Lines of log."""

import json
import logging
import sys

import pytest

from tests.harness.constants import set_constant
from transports.telemetry.lines import ACCESS, JsonLines, Repeats, TextLines


class Hands:
    """A clock whose hand is moved by the test."""

    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now_us(self) -> int:
        return int(self.time * 1e6)


def record(text, *values, name="penstock.x", level=logging.WARNING, **more):
    made = logging.LogRecord(name, level, "file", 1, text, values, None)
    made.created = 0.25
    for key, value in more.items():
        setattr(made, key, value)
    return made


def failing():
    try:
        raise ValueError("no")
    except ValueError:
        return sys.exc_info()


def test_text_is_one_line_whatever_is_in_it():
    """A client that asks for a path with a line break in it makes no line of its own, and moves no cursor."""
    line = TextLines().format(record("%s", "a\nERROR \x1b[2J\u2028ü"))
    assert line == "1970-01-01T00:00:00.250Z WARNING penstock.x a\\x0aERROR \\x1b[2J\\x2028ü"
    assert "ValueError: no" in TextLines().format(record("x", exc_info=failing())).splitlines()[-1]


def test_json_is_one_object_a_line_with_the_fields_of_the_record():
    line = JsonLines().format(record("a\n%d", 7, data={"path": "/x\n"}, exc_info=failing()))
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("exception").endswith("ValueError: no")
    assert told == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "penstock.x",
        "message": "a\n7",
        "path": "/x\n",
    }
    assert "data" not in json.loads(JsonLines().format(record("x", data="text")))


def test_lines_of_one_kind_are_bounded_and_the_rest_is_counted():
    """Lines that differ in their values only are of one kind; other kinds are not concerned."""
    hands = Hands()
    repeats = Repeats(3, clock=hands)
    assert [repeats.filter(record("stalled %d", n)) for n in range(5)] == [True] * 3 + [False] * 2
    assert repeats.filter(record("flood %d", 1))
    hands.time += 60.0
    late = record("stalled %d%%", 7)
    assert repeats.filter(late)
    same = record("stalled %d", 7)
    assert repeats.filter(same)
    assert same.getMessage() == "(2 lines like this were left out) stalled 7"
    assert repeats.filter(again := record("stalled %d", 8))
    assert again.getMessage() == "stalled 8"


def test_what_is_left_out_is_told_as_it_is_written():
    hands = Hands()
    repeats = Repeats(1, clock=hands)
    for _ in range(2):
        repeats.filter(record("%s", "50 %d"))
    hands.time += 60.0
    assert repeats.filter(told := record("%s", "50 %d"))
    assert told.getMessage() == "(1 lines like this were left out) 50 %d"


def test_the_access_log_has_a_bound_of_its_own_for_all_its_lines():
    repeats = Repeats(1, 4, clock=Hands())
    assert sum(repeats.filter(record(f"GET /{n}", name=ACCESS)) for n in range(9)) == 4


def test_kinds_are_remembered_up_to_a_bound(monkeypatch):
    set_constant(monkeypatch, "transports.telemetry.lines._KINDS_MAX", 3)
    repeats = Repeats(1, clock=Hands())
    for n in range(9):
        assert repeats.filter(record(f"kind {n}"))
    assert len(repeats._kinds) == 3
    assert not repeats.filter(record("kind 8"))
    assert repeats.filter(record("kind 0"))


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_levels_are_kinds_of_their_own(level):
    repeats = Repeats(1, clock=Hands())
    assert repeats.filter(record("x"))
    assert repeats.filter(record("x", level=level))

"""Everything that a writer can say, as JSON lines."""

import io
import json
import sys

import pytest

from publishers import Area, ChangeLog, Content
from tests.transports.test_event_model import write
from transports.cli import main

LINES = [
    {"area": "SCHEMA", "entity_type": "order", "body": {"type": "struct", "fields": []}, "changed": ["a"]},
    {"entity_type": "order", "key": "1", "body": {"a": 1, "b": 2}, "before": {"a": 1}, "changed": "auto"},
    {"entity_type": "order", "key": "1", "field": "b", "action": "SET", "body": {"b": 2}, "changed": ["b"]},
    {"entity_type": "order", "key": "1", "field": "c", "action": "REMOVE", "operation": "REMOVE"},
    {
        "operation": "REKEY",
        "entity_type": "order",
        "key": "1",
        "new_key": "2",
        "body": {"a": 1},
        "origin": "x",
    },
    {"operation": "EXPIRE", "entity_type": "order", "key": "3", "expires_at": "2026-01-01T00:00:00Z"},
    {"operation": "TRUNCATE", "entity_type": "order", "meta": {"why": "test"}},
]


@pytest.fixture
def append(tmp_path, monkeypatch, capsysbinary):
    """Runs the command on lines; answers its exit code and what it printed."""

    class Stdin:
        def __init__(self, data):
            self.buffer = io.BytesIO(data)

    def run(data, name="shop"):
        monkeypatch.setattr(sys, "stdin", Stdin(data))
        code = main(["append", str(tmp_path / name)])
        return code, b"".join(capsysbinary.readouterr()).decode()

    return run


def lines(*objects):
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def test_every_operation_can_be_appended(tmp_path, append):
    """F1, F2, F3, F4, F9, F11, F20, F23, F53."""
    code, said = append(lines(*LINES))
    assert code == 0, said
    assert said.startswith("8 changes committed")
    with ChangeLog.open(tmp_path / "shop") as log:
        told, entity, part, gone, was, now, expired, cleared = log.history(content=Content.BODY).changes[1:]
    assert (told.area, told.key, told.schema_version) == (Area.SCHEMA, "entity", 1)
    assert (entity.changed, entity.schema_version) == (("b",), 1)
    assert (part.field, part.action.name, part.body) == ("b", "SET", {"b": 2})
    assert (gone.field, gone.operation.name, gone.body) == ("c", "REMOVE", None)
    assert (was.key, was.linked, now.key, now.linked, now.origin) == ("1", "2", "2", "1", "x")
    assert (expired.operation.name, expired.expires_at.year) == ("EXPIRE", 2026)
    assert (cleared.operation.name, cleared.key, cleared.meta) == ("TRUNCATE", None, {"why": "test"})


def test_what_tail_prints_can_be_appended_to_another_log(tmp_path, append, capsysbinary):
    """F1, F2, F3, F4, F20, F23: a copy made of lines is equal."""
    with ChangeLog.open(tmp_path / "one") as log:
        write(log, key=b"\xc3\xbc")
        wanted = log.history(content=Content.BODY).changes[1:]
    assert main(["tail", str(tmp_path / "one"), "--since", "earliest", "--limit", str(len(wanted) + 1)]) == 0
    printed = capsysbinary.readouterr().out
    assert append(printed, "two")[0] == 0
    with ChangeLog.open(tmp_path / "two") as log:
        assert log.history(content=Content.BODY).changes[1:] == wanted


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"operation": "REKEY", "entity_type": "a", "key": "1", "body": {}}, "new_key is None"),
        ({"operation": "REKEY", "entity_type": "a", "key": "1", "new_key": "1", "body": {}}, "another key"),
        ({"operation": "EXPIRE", "entity_type": "a", "key": "1", "body": {}}, "left out with EXPIRE"),
        (
            {"operation": "EXPIRE", "entity_type": "a", "key": "1", "expires_at": "2026-01-01T00:00:00"},
            "time zone",
        ),
        ({"entity_type": "a", "key": "1", "field": "a..b", "action": "SET", "body": {}}, "path is"),
        ({"entity_type": "a", "key": "1", "field": "a", "body": {}}, "action is None"),
        (
            {"entity_type": "a", "key": "1", "field": "a", "action": "SET"},
            "body is None, but must be given with",
        ),
        ({"entity_type": "a", "key": "1", "field": "a", "action": "PUSH", "body": None}, "the action PUSH"),
        ({"entity_type": "a", "key": "1", "body": {}, "version": -1}, "version"),
        ({"entity_type": "a", "key": "1", "field": "a", "action": "HIDE", "body": {}}, "HIDE"),
        ({"area": "SCHEMA", "entity_type": "a"}, "body is None"),
        ({"entity_type": "a", "key": "1", "body": {}, "changed": "some"}, "some"),
    ],
)
def test_a_line_that_contradicts_itself_is_named(append, line, says):
    code, said = append(lines(line))
    assert code == 2
    assert said.startswith("penstock: line 1: ")
    assert says in said

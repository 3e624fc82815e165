"""Everything that a writer can say, as JSON lines."""

import io
import json
import sys

import pytest

from publishers import Area, ChangeLog, Content
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS
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


@pytest.fixture
def server(serving):
    """A server that everybody may append to."""
    return serving(authorise=WRITERS)


def run(capsys, *arguments):
    code = main(["append", *map(str, arguments)])
    return code, "".join(capsys.readouterr())


def test_lines_can_be_appended_at_a_server(server, log, tmp_path, capsys):
    """F145: as one transaction, with what a directory takes too."""
    file = tmp_path / "lines"
    file.write_bytes(lines(*LINES))
    code, said = run(capsys, server.url, file)
    assert code == 0, said
    assert said == f"8 changes committed to {server.url} as version 1, cursor {log.token(log.head)}\n"
    place = log.token(log.head)
    arguments = (server.url, file, "--log", "shop", "--expect", place, "--producer", "etl", "--sequence", 3)
    assert run(capsys, *arguments)[0] == 0
    code, said = run(capsys, *arguments)
    assert code == 0
    assert (
        said == f"committed to shop before, as version 2, cursor {log.token(log.head)}: nothing was written\n"
    )
    code, said = run(capsys, server.url, file, "--expect", place)
    assert code == 1
    assert said.startswith("penstock: EXPECTATION_FAILED: the log is at 3:0")
    assert log.visible == 2


def test_what_a_server_refuses_is_said_in_one_line(server, log, tmp_path, capsys, serving):
    """F145: a wrong line with its number, a token that is missing, a server that is not writable or not there."""
    file = tmp_path / "lines"
    file.write_bytes(lines(LINES[-1], {"entity_type": "order"}))
    code, said = run(capsys, server.url, file)
    assert (code, said) == (2, "penstock: line 2: key is None, but must be given\n")
    file.write_bytes(lines(LINES[-1]))
    code, said = run(capsys, serving().url, file)
    assert code == 1
    assert "FORBIDDEN" in said
    guarded = serving(authorise=WRITERS, authenticate=knowing("secret"))
    assert "UNAUTHENTICATED" in run(capsys, guarded.url, file)[1]
    assert run(capsys, guarded.url, file, "--token", "secret")[0] == 0
    code, said = run(capsys, "ws://127.0.0.1:9/ws", file, "--retry", 1)
    assert code == 1
    assert said.count("\n") == 2
    assert "trying again" in said
    assert "the outcome is refused" in said
    (tmp_path / "empty").write_bytes(b"")
    assert run(capsys, server.url, tmp_path / "empty") == (0, "0 changes: nothing was committed\n")
    code, said = run(capsys, server.url, file, "--sequence", 1)
    assert code == 2
    assert "--producer" in said


def test_a_repetition_in_a_directory_writes_nothing(tmp_path, capsys):
    """F145: by producer and sequence."""
    file = tmp_path / "lines"
    file.write_bytes(lines(LINES[-1]))
    arguments = (tmp_path / "shop", file, "--producer", "etl", "--sequence", 3)
    assert "1 change committed to shop as version 1" in run(capsys, *arguments)[1]
    assert "committed to shop before, as version 1" in run(capsys, *arguments)[1]

"""``penstock state``: the state beside a log, looked at and made anew."""

import json
import sqlite3
from contextlib import closing

import pytest

from penstock_cdc.errors import StateIncomplete
from publishers import ChangeLog, ChangeStore, upsert
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, fill
from tests.transports.cli.test_program import one_line
from transports.cli import main


@pytest.fixture
def path(tmp_path):
    """A log that keeps its state, of version 2."""
    with ChangeLog.open(tmp_path / "orders", **QUICK, state=True) as log:
        log.commit([upsert("order", "41", {"n": 1}), upsert("order", "42", {"n": 2}, meta={"by": "ann"})])
        log.commit([upsert("visit", "1", b"null")])
        log.state.wait(2)
    return tmp_path / "orders"


def told(capsys, *arguments):
    assert main(["state", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_says_how_far_the_state_is(path, capsys):
    """F146: beside the owner, too."""
    found = told(capsys, "info", path, "--json")
    assert (found["version"], found["rows"], found["owner"]) == (2, 3, False)
    assert found["position"].endswith(":3:0")
    assert main(["state", "info", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("log id: ")
    assert {"rows: 3", "open for writing: no"} <= set(shown)
    with ChangeLog.open(path, **QUICK, state=True) as log:
        fill(log, 1, 5)
        log.state.wait(3)
        found = told(capsys, "info", path, "--json")
        assert (found["version"], found["rows"], found["owner"]) == (3, 8, True)
        assert found["logId"] == log.log_id.hex


def test_an_entity_is_printed_as_it_is(path, capsys):
    """F146."""
    assert told(capsys, "get", path, "order", "42") == {"n": 2}
    found = told(capsys, "get", path, "order", "42", "--json")
    assert (found["version"], found["index"], found["entry_version"], found["meta"]) == (
        1,
        2,
        1,
        {"by": "ann"},
    )
    assert told(capsys, "get", path, "visit", "1") is None
    assert main(["state", "get", str(path), "order", "43"]) == 1
    assert "has no order '43'" in capsys.readouterr().err


def test_it_is_made_anew(path, capsys):
    """F146: whatever was in the file."""
    with closing(sqlite3.connect(path / "state" / "rows.sqlite")) as database:
        database.execute("UPDATE rows SET body = '{}'")
        database.commit()
    assert main(["state", "get", str(path), "order", "42"]) != 0
    assert "not as it was written" in capsys.readouterr().err
    assert told(capsys, "rebuild", path, "--json")["rows"] == 3
    assert told(capsys, "get", path, "order", "42") == {"n": 2}


def test_the_state_of_a_log_of_a_store_is_found_by_its_name(tmp_path, capsys):
    """F146."""
    with ChangeStore.open(tmp_path / "store", **QUICK) as store:
        for name in "ab":
            store.create(name).commit([upsert("order", name, {"of": name})])
    told(capsys, "rebuild", tmp_path / "store", "--log", "b", "--json")
    assert told(capsys, "get", tmp_path / "store", "order", "b", "--log", "b") == {"of": "b"}
    assert main(["state", "info", str(tmp_path / "store")]) == 2
    assert "one of: a, b" in capsys.readouterr().err
    assert main(["state", "info", str(tmp_path / "store"), "--log", "c"]) == 1
    assert "has a, b" in capsys.readouterr().err


def test_a_state_that_the_kept_history_is_too_short_for_says_so_and_what_to_do(path, tmp_path, capsys):
    """F146, F92: whether its owner has tried to make it, or retention has passed its place."""
    with ChangeLog.open(tmp_path / "late", **QUICK, **RETAIN) as log:
        while log.oldest.version == 1:
            fill(log, 10, 20)
    with ChangeLog.open(path, **QUICK, **RETAIN) as log:
        while log.oldest.version <= 3:
            fill(log, 10, 20)

    def refused(directory):
        assert main(["state", "info", str(directory)]) == 1
        return one_line(capsys)

    untried = refused(tmp_path / "late")
    with pytest.raises(StateIncomplete):
        ChangeLog.open(tmp_path / "late", **QUICK, state=True)
    assert refused(tmp_path / "late") == untried
    with pytest.raises(StateIncomplete):
        ChangeLog.open(path, **QUICK, state=True)
    for said in (untried, refused(path)):
        assert "so the state would lack all earlier changes" in said
        assert "(serve it without --state), or restore its directory 'state' from a copy" in said


def test_what_cannot_be_done_is_said_in_a_line(path, tmp_path, capsys):
    """F92."""

    def refused(*arguments):
        assert main(["state", *map(str, arguments)]) != 0
        error = capsys.readouterr().err
        assert "Traceback" not in error
        return error

    with ChangeLog.open(tmp_path / "plain", **QUICK, **RETAIN) as log:
        assert "state=True" in refused("info", log.path)
        assert "is being written" in refused("rebuild", log.path)
        while log.oldest.version == 1:
            fill(log, 10, 20)
    assert "begins at" in refused("rebuild", tmp_path / "plain")
    refused("rebuild", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    for command in (("info",), ("get", "order", "1"), ("rebuild",)):
        assert "is not a change log" in refused(command[0], tmp_path / "nothing", *command[1:])
    assert "is not a change log" in refused("info", tmp_path)
    assert "single log" in refused("info", path, "--log", "other")
    refused("info", "http://127.0.0.1:1/")
    with ChangeLog.open(tmp_path / "new", **QUICK, state=True) as log:
        assert "empty" in refused("info", log.path)
    (path / "state" / "rows.sqlite").write_text("no database")
    assert "not to be read" in refused("info", path)

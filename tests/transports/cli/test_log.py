"""The logs of a store on the command line: exit codes, one line for each mistake, and what DIR may be."""

import io
import json
import re
import sys
import threading
import types

import pytest

from publishers import ChangeLog, ChangeStore, upsert
from tests.transports.cli.test_program import LINES, one_line
from transports import serve
from transports.cli import main


@pytest.fixture
def shop(tmp_path):
    """A store of two logs, in which something has happened."""
    path = tmp_path / "shop"
    with ChangeStore.open(path, sync="os", fill_step=0) as store:
        store.create("orders", type="journal", labels={"team": "shop"}).commit(
            [upsert("order", "1", {"a": 1})]
        )
        store.create("users")
    return path


def run(capsys, *arguments):
    """The exit code, and what was said."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(LINES.encode())))


def test_logs_are_made_listed_renamed_and_dropped(tmp_path, capsys):
    shop = tmp_path / "shop"
    code, said = run(
        capsys, "log", "create", shop, "orders", "--type", "journal", "--label", "team=a", "--label", "x="
    )
    assert code == 0
    assert said == f"log orders is there, in {shop / 'orders'}\n"
    assert run(capsys, "log", "create", shop, "users")[0] == 0
    assert run(capsys, "log", "rename", shop, "users", "people") == (0, "log users is people now\n")
    code, said = run(capsys, "log", "list", shop)
    assert said.splitlines() == [
        "NAME    TYPE     OLDEST  NEWEST  LABELS     DIRECTORY",
        "orders  journal  0       0       team=a,x=  orders",
        "people  -        0       0       -          users",
    ]
    assert run(capsys, "log", "drop", shop, "people", "--yes") == (0, "log people is dropped\n")
    code, said = run(capsys, "log", "list", shop, "--json")
    assert code == 0
    (log,) = json.loads(said)["logs"]
    assert re.fullmatch("[0-9a-f]{32}", log.pop("logId"))
    assert log == {
        "name": "orders",
        "type": "journal",
        "labels": {"team": "a", "x": ""},
        "directory": "orders",
        "oldest": 0,
        "newest": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["create", "SHOP", "orders"], 1, "has a log 'orders' already"),
        (["create", "SHOP", "../x"], 2, "begin with a letter or a digit"),
        (["create", "SHOP", "x", "--label", "novalue"], 2, "KEY=VALUE"),
        (
            ["drop", "SHOP", "nothing", "--yes"],
            1,
            "there is no log 'nothing' in the store; it has orders, users",
        ),
        (["drop", "SHOP", "orders"], 2, "--yes is None, but must be given"),
        (["rename", "SHOP", "orders", "users"], 1, "has a log 'users' already"),
        (["rename", "SHOP", "orders", "CON"], 2, "cannot be called 'CON'"),
        (["list", "LOG"], 1, "it is a single log"),
        (["create", "LOG", "x"], 1, "it is a single log"),
        (["list", "NOTHING"], 1, "is not a store of logs"),
        (["list", "ws://127.0.0.1:1/ws"], 2, "DIR is 'ws://127.0.0.1:1/ws', but must be a directory"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(shop, tmp_path, capsys, monkeypatch, arguments, code, says):
    with ChangeLog.open(tmp_path / "log", sync="os", fill_step=0):
        pass
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    places = {"SHOP": str(shop), "LOG": str(tmp_path / "log"), "NOTHING": str(tmp_path / "nothing")}
    assert main(["log", *(places.get(argument, argument) for argument in arguments)]) == code
    assert says in one_line(capsys)
    assert not (tmp_path / "nothing").exists()


def test_a_drop_asks_whoever_sits_there(shop, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert main(["log", "drop", str(shop), "orders"]) == 1
    assert capsys.readouterr().err.endswith("nothing was dropped\n")
    monkeypatch.setattr(sys, "stdin", Terminal("orders\n"))
    assert main(["log", "drop", str(shop), "orders"]) == 0
    assert capsys.readouterr().out == "log orders is dropped\n"


def test_a_store_that_is_owned_by_another_process_says_by_whom(shop, capsys):
    with ChangeStore.open(shop):
        assert main(["log", "create", str(shop), "more"]) == 1
        assert re.search(r"is being written by process \d+; stop it first\n$", one_line(capsys))
        assert run(capsys, "log", "list", shop)[0] == 0


def test_a_damaged_log_is_listed_as_such(shop, capsys):
    for path in (shop / "orders").iterdir():
        if path.is_file():
            path.write_bytes(b"")
    code, said = run(capsys, "log", "list", shop)
    assert code == 0
    assert "damaged" in said.splitlines()[1]
    assert "error" in json.loads(run(capsys, "log", "list", shop, "--json")[1])["logs"][0]


def test_append_and_tail_take_a_log_of_a_store(shop, lines, capsysbinary):
    assert main(["append", str(shop), "--log", "users"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"2 changes committed to users as version 1")
    assert main(["tail", str(shop), "--log", "users", "--since", "earliest", "--limit", "3"]) == 0
    events = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [event.get("key") for event in events] == [None, "1", "2"]
    assert main(["tail", str(shop), "--log", "$system", "--since", "earliest", "--until", "2"]) == 0
    events = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [event.get("key") for event in events] == [None, "orders", None, "users"]


def test_the_name_may_be_left_out_where_there_is_one_log(shop, lines, capsysbinary):
    assert main(["log", "drop", str(shop), "orders", "--yes"]) == 0
    assert main(["append", str(shop)]) == 0
    assert b"committed to users" in capsysbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tail", "SHOP"], 2, "--log is None, but must be one of: orders, users"),
        (["tail", "SHOP", "--log", "x"], 1, "there is no log 'x'"),
        (["append", "SHOP"], 2, "--log is None, but must be one of: orders, users"),
        (["append", "SHOP", "--log", "x"], 1, "there is no log 'x'"),
        (["append", "SHOP", "--log", "$system"], 2, "written by the store alone"),
        (["tail", "LOG", "--log", "x"], 2, "is a single log, and not a store"),
        (["append", "LOG", "--log", "x"], 2, "is a single log, and not a store"),
        (["append", "NOTHING", "--log", "x"], 1, "penstock log create"),
        (["serve", "ws://127.0.0.1:1/"], 2, "'penstock tail' and 'penstock append' reach servers"),
        (["tail", "ftp://127.0.0.1/"], 2, "such as ws://"),
        (["tail", "http://127.0.0.1:1/"], 1, "the connection to ws://127.0.0.1:1/ws is lost"),
    ],
)
def test_what_dir_is_and_what_it_is_not_is_said(shop, tmp_path, lines, capsys, arguments, code, says):
    with ChangeLog.open(tmp_path / "log", sync="os", fill_step=0):
        pass
    places = {"SHOP": str(shop), "LOG": str(tmp_path / "log"), "NOTHING": str(tmp_path / "nothing")}
    assert main([places.get(argument, argument) for argument in arguments]) == code
    assert says in one_line(capsys)
    assert not (tmp_path / "nothing").exists()


def test_tail_takes_the_address_that_a_browser_shows(shop, capsysbinary):
    with ChangeStore.open(shop, read_only=True) as store, serve(store) as server:
        for address in (server.home_url, server.home_url.replace("http:", "ws:"), server.url):
            code = main(["tail", address, "--log", "orders", "--since", "earliest", "--limit", "2"])
            assert code == 0
            events = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
            assert [event.get("key") for event in events] == [None, "1"]


def test_a_served_store_follows_logs_that_come_and_go(start, shop, capsysbinary):
    """F50, E45: the owner is this process, the server another one."""
    with (
        ChangeStore.open(shop, sync="os", fill_step=0) as store,
        start("serve", shop, "--port", "0") as process,
    ):
        said = process.stdout.readline()
        url = re.fullmatch(r"serving the store shop \(orders, users\) read-only at (\S+), .*\n", said)[1]
        store.create("more").commit([upsert("order", "9", {})])
        ended = threading.Event()
        for _ in range(2000):  # until the server has seen it
            if main(["tail", url, "--log", "more", "--since", "earliest", "--limit", "2"]) == 0:
                break
            ended.wait(0.01)
        events = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        assert [event.get("key") for event in events] == [None, "9"]
        with start("tail", url, "--log", "more", "--since", "earliest") as tail:
            assert json.loads(tail.stdout.readline())["operation"] == "TRANSACTION"
            store.drop("more")
            assert tail.wait(60) == 1
            assert "LOG_DROPPED: the log 'more' was dropped" in tail.stderr.read()


def test_every_command_tells_what_it_did_as_json(tmp_path, capsys):
    shop = tmp_path / "shop"
    code, said = run(capsys, "log", "create", shop, "orders", "--type", "journal", "--json")
    created = json.loads(said)["created"]
    assert (code, created["name"], created["type"], created["newest"]) == (0, "orders", "journal", 0)
    code, said = run(capsys, "log", "rename", shop, "orders", "old", "--json")
    assert (code, json.loads(said)) == (0, {"renamed": {"old": "orders", "new": "old"}})
    code, said = run(capsys, "log", "list", shop, "--json")
    assert json.loads(said)["logs"][0]["logId"] == created["logId"]
    code, said = run(capsys, "log", "drop", shop, "old", "--yes", "--json")
    assert (code, json.loads(said)) == (0, {"dropped": "old"})


@pytest.mark.parametrize("origin", ["garbage", "example.org", "https://example.org/page", ""])
def test_an_origin_that_no_page_has_is_refused_before_anything_is_opened(tmp_path, capsys, origin):
    assert main(["serve", str(tmp_path / "log"), "--own", "--origin", origin]) == 2
    assert one_line(capsys).startswith(
        f"penstock: origin is {origin!r}, but must be the origin of a web page"
    )
    assert not (tmp_path / "log").exists()

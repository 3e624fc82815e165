"""Sources of rows that a command line names."""

import contextlib
import json
import sqlite3
import sys

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.types import PageRequest
from publishers import ChangeLog, ChangeStore
from tests.transports.cli.test_program import one_line
from transports import ExtraMissing
from transports.cli import main
from transports.cli.serve import sources_of

MODULE = """
from publishers import PageSource

def source(kind):
    return PageSource(entity_type=kind, pages=lambda request: [("1", {"kind": kind})] if request.after is None else [])

item = source("item")

def made():
    return [item, source("shop")]

def failing():
    raise KeyError("no such thing")

wrong = 3
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A working directory with a module and a database; the file of that."""
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total TEXT)")
        db.execute("CREATE TABLE notes (text TEXT)")
        db.executemany("INSERT INTO orders VALUES (?, ?)", [(9, "9.00"), (10, "10.00")])
        db.commit()
    (tmp_path / "rows_of_shop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "shop.db"
    sys.modules.pop("rows_of_shop", None)


def rows(source):
    return list(source.read(PageRequest(None, None, 10, None)))


def test_a_server_gives_rows_of_the_table_and_of_the_module_that_its_command_line_names(start, shop, capsys):
    """F88, F90: also one that follows the log of another process."""
    with ChangeLog.open(shop.parent / "log", sync="os") as log:
        named = ["--source", f"order=sqlite:///{shop}#orders", "--source", "rows_of_shop:item"]
        with start("serve", log.path, "--port", "0", *named) as server:
            url = server.stdout.readline().split(" at ")[1].split(",")[0]
            assert main(["tail", url, "--since", "state", "--content", "body", "--limit", "3"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["operation"], one["entity_type"], one["key"], one["body"]) for one in told] == [
        ("READ", "order", "9", {"id": 9, "total": "9.00"}),
        ("READ", "order", "10", {"id": 10, "total": "10.00"}),
        ("READ", "item", "1", {"kind": "item"}),
    ]


def test_a_name_in_python_is_a_source_or_several_or_what_makes_them(shop):
    assert [one.entity_type for one in sources_of(["rows_of_shop:item"])] == ["item"]
    assert [one.entity_type for one in sources_of(["rows_of_shop:made"])] == ["item", "shop"]
    with pytest.raises(InvalidOption, match="another entity type"):
        sources_of(["rows_of_shop:item", "rows_of_shop:made"])


def test_a_table_is_named_by_a_url_or_by_where_that_is_kept(shop, monkeypatch):
    monkeypatch.setenv("SHOP_URL", f"sqlite:///{shop}")
    for url in (f"sqlite:///{shop}", "env:SHOP_URL"):
        (source,) = sources_of([f"order={url}#main.orders"])
        assert [key for key, _ in rows(source)] == ["9", "10"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rows_of_shop:none", "has no attribute 'none'"),
        ("no_such_module:x", "No module named"),
        ("rows_of_shop:failing", "no such thing"),
        ("rows_of_shop:wrong", "a SnapshotSource"),
        ("junk", "TYPE=URL#TABLE"),
        ("=sqlite://#t", "TYPE=URL#TABLE"),
        ("order=sqlite:///shop.db#none", "a table that the database has"),
        ("order=sqlite:///shop.db#notes", "a table with a primary key"),
        ("order=env:NOT_THERE#orders", "env:NOT_THERE is not set"),
        ("order=sqlite:////no/such/place#orders", "unable to open"),
        ("order=nothing://ann:s3cr3t@host/x#orders", "a URL of SQLAlchemy"),
        ("order=s3cr3t#orders", "a URL of SQLAlchemy"),
    ],
)
def test_what_names_no_source_is_told_in_one_line_without_the_url(shop, capsys, text, told):
    ChangeLog.open(shop.parent / "log").close()
    assert main(["serve", str(shop.parent / "log"), "--port", "0", "--source", text]) == 2
    line = one_line(capsys)
    assert told in line
    assert "s3cr3t" not in line


def test_sources_are_of_one_log(shop, capsys):
    ChangeStore.open(shop.parent / "store").close()
    ChangeLog.open(shop.parent / "log").close()
    for directory, *more in (["store"], ["log", "--follow-name"]):
        assert main(["serve", str(shop.parent / directory), "--source", "rows_of_shop:item", *more]) == 2
        assert "--source" in one_line(capsys)


def test_a_table_needs_sqlalchemy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ExtraMissing, match=r"penstock-cdc\[sql\]"):
        sources_of(["order=sqlite:///shop.db#orders"])

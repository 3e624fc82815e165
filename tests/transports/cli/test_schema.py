"""``penstock schema``: the same by directory and by server."""

import json

import pytest

from penstock_cdc.mutations import schema
from publishers import ChangeStore
from transports import serve
from transports.cli import main


@pytest.fixture
def sources(log, serving):
    """A directory and an address with the same log."""
    log.commit([schema("order", {"x": 1}), schema("item", {"y": 1})])
    log.commit([schema("order", {"x": 2})])
    return [str(log.path), serving().home_url]


def test_a_schema_is_printed_by_version_and_the_newest_without(sources, log, capsys):
    """F10."""
    for source in sources:
        assert main(["schema", source, "order"]) == 0
        newest = json.loads(capsys.readouterr().out)
        assert (newest["log"], newest["version"], newest["parts"]) == ("shop", 2, {"entity": {"x": 2}})
        assert newest["told"] == str(log.token(log.schema("order").position))
        assert main(["schema", source, "order", "--version", "1", "--log", "shop"]) == 0
        assert json.loads(capsys.readouterr().out)["parts"] == {"entity": {"x": 1}}


def test_without_a_type_all_of_them_are_listed(sources, capsys):
    """F10."""
    for source in sources:
        assert main(["schema", source]) == 0
        assert capsys.readouterr().out == "item 1\norder 1 2\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none"], 1, "no schema of 'none' is registered"),
        (["order", "--version", "9"], 1, "no schema of version 9 of 'order' is registered"),
        (["order", "--version", "0"], 2, "--version is 0, but must be a whole number from 1"),
        ([""], 2, "TYPE is '', but must be the name of an entity type"),
        (["--version", "1"], 2, "--version is 1, but must be left out without TYPE"),
        (["order", "--version", "x"], 2, "invalid int value"),
    ],
)
def test_what_is_not_there_or_wrong_is_told_in_one_line(sources, capsys, arguments, code, says):
    """F10."""
    for source in sources:
        assert main(["schema", source, *arguments]) == code
        told = capsys.readouterr()
        assert told.out == ""
        assert says in told.err
        assert "Traceback" not in told.err


def test_a_log_that_is_none_is_named(tmp_path, capsys):
    """F10: of a store, one of several must be chosen."""
    with ChangeStore.open(tmp_path / "shop", sync="os", fill_step=65_536) as store:
        store.create("orders").commit([schema("order", {})])
        store.create("users")
        with serve(store) as server:
            for source in (str(tmp_path / "shop"), server.home_url):
                assert main(["schema", source, "--log", "orders"]) == 0
                assert capsys.readouterr().out == "order 1\n"
                assert main(["schema", source, "--log", "users"]) == 0
                assert "no schemas yet" in capsys.readouterr().err
                for arguments in ([], ["order"], ["order", "--log", "none"]):
                    assert main(["schema", source, *arguments]) in (1, 2)
                    assert "orders, users" in capsys.readouterr().err

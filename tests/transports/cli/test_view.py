"""``--images``, ``--field`` and ``--mask`` of ``tail`` and ``serve``."""

import argparse
import json

import pytest

from publishers import Drop, Hash, Partial, Redact, View, upsert
from publishers.errors import InvalidOption
from transports import serve as start
from transports.cli import main
from transports.cli.view import mask_of, view_of

KEY = "sixteen bytes or more"


@pytest.fixture
def filled(log):
    old, new = {"card": "3000123400009876", "n": 0}, {"card": "4111111111111234", "n": 1, "s": "same"}
    log.commit([upsert("order", "42", new, before={**old, "s": "same"})])
    return log


def test_a_mask_is_a_path_and_what_is_shown():
    """F59."""
    assert mask_of([]) is None
    given = ["a", "b=DROP", "c.d=PARTIAL", f"e=HASH:{KEY}", "f=hidden here"]
    assert mask_of(given) == {
        "a": Redact(),
        "b": Drop(),
        "c.d": Partial(),
        "e": Hash(KEY),
        "f": Redact("hidden here"),
    }


@pytest.mark.parametrize("remote", [False, True], ids=["directory", "server"])
def test_tail_shows_what_was_asked_for_from_a_directory_and_from_a_server(
    filled, serving, remote, capsysbinary
):
    """F7, F59: the same lines either way."""
    source = serving().url if remote else str(filled.path)
    options = ["--since", "1", "--until", "1", "--entity-type", "order"]
    options += ["--images", "changed_with_old", "--mask", "card=PARTIAL", "--field", "card", "--field", "s"]
    assert main(["tail", source, *options]) == 0
    (line,) = capsysbinary.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["body"], event["before"]) == ({"card": "***1234"}, {"card": "***9876"})
    assert event["changed"] == ["card"]


@pytest.mark.parametrize("options", [["--field", "a."], ["--mask", "=x"], ["--mask", "a=HASH:short"]])
def test_what_is_no_path_or_no_rule_is_told_in_one_line(filled, capsys, options):
    assert main(["tail", str(filled.path), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_serve_narrows_what_every_client_sees(filled, monkeypatch, capsysbinary):
    """F59: a mask of the server is not the client's to switch off."""
    monkeypatch.setattr("transports.cli.serve.wait_for", lambda _: None)
    given = {}

    def spy(log, *arguments, **named):
        given.update(named)
        return start(log, *arguments, **named)

    monkeypatch.setattr("transports.cli.serve.start", spy)
    assert main(["serve", str(filled.path), "--port", "0", "--mask", "card"]) == 0
    assert given["authorise"].view == view_of(argparse.Namespace(field=[], mask=["card"]))
    capsysbinary.readouterr()
    with start(filled, authorise=given["authorise"]) as server:
        options = ["--since", "1", "--until", "1", "--entity-type", "order", "--mask", "card=PARTIAL"]
        assert main(["tail", server.url, *options]) == 0
    assert json.loads(capsysbinary.readouterr().out)["body"]["card"] == "***"


def test_no_view_is_the_plain_one():
    assert view_of(argparse.Namespace(field=[], mask=[], content="HEADER", images="WRITTEN")) == View()
    with pytest.raises(InvalidOption):
        view_of(argparse.Namespace(field=["$key"], mask=[]))

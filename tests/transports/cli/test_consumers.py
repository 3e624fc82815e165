"""``penstock top`` and ``penstock stats`` show sinks, slots and groups, wherever they are asked."""

import contextlib
import json

import pytest

from publishers import ChangeLog, upsert
from tests.transports.sinks.targets import Target
from transports import serve
from transports.cli import main
from transports.sinks import LogSinks, SinkOptions


@pytest.fixture
def orders(tmp_path):
    """A log with a slot and a group, each with one of three versions done, and a lost group."""
    with ChangeLog.open(tmp_path / "orders", sync="os", fill_step=0) as log:
        log.commit([upsert("order", "a", {})])
        log.slots.create("stock", since=2)
        log.slots.create("halted", since=2, paused=True)
        log.groups.create("pickers", since=2)
        for key in "bc":
            log.commit([upsert("order", key, {})])
    return tmp_path / "orders"


@contextlib.contextmanager
def asked(how, path):
    """Where the commands ask: the server of the owner, that of a follower, or the directory."""
    if how == "directory":
        yield str(path)
        return
    with ChangeLog.open(path, read_only=how == "follower") as log, serve(log) as server:
        if how == "follower":
            yield server.home_url
            return
        with LogSinks(log) as sinks:
            sinks.add("archive", Target(), SinkOptions(since="earliest", linger=0.0))
            server.application.sinks = lambda: {log.name: sinks.told()}
            yield server.home_url


@pytest.mark.parametrize("how", ["owner", "follower", "directory"])
def test_each_consumer_of_a_log_is_a_line_of_top_and_of_stats(orders, capsys, how):
    """F109, F76: with its state and how far it is behind."""
    with asked(how, orders) as source:
        assert main(["stats", source]) == 0
        told = capsys.readouterr().out
        assert main(["top", source, "--once", "--interval", "0.1"]) == 0
        shown = capsys.readouterr().out
        assert main(["top", source, "--once", "--interval", "0.1", "--json"]) == 0
        consumers = json.loads(capsys.readouterr().out)["logs"]["orders"]["consumers"]
    stored = "" if how == "owner" else "; as stored by the owner of the log"
    lines = [line.strip() for line in told.splitlines()]
    for beginning, then in (
        ("slot stock: ", "2 versions behind"),
        ("slot halted: ", ", paused, 2 versions behind"),
        ("group pickers: ", "2 versions behind"),
    ):
        (line,) = [one for one in lines if one.startswith(beginning)]
        assert then in line
        assert line.endswith(stored)
    kinds = {"slot stock", "slot halted", "group pickers"} | ({"sink archive"} if how == "owner" else set())
    assert {f"{one['kind']} {one['name']}" for one in consumers} == kinds
    assert {one["versions"] for one in consumers if one["kind"] != "sink"} == {2}
    assert {one["state"] for one in consumers if one["name"] == "halted"} == {"paused"}
    for kind in kinds:
        (line,) = [one for one in shown.splitlines() if one.startswith(f"orders: {kind} ")]
        assert kind.startswith("sink") or " 2 " in line
    assert ("sink archive: S" in told) == (how == "owner")

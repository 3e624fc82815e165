"""``penstock slot``: places that a log keeps for consumers, from the command line."""

import errno
import json
import os
import shutil
import sys

import pytest

from publishers import ChangeLog, ChangeStore, Criterion, Position, upsert
from tests.harness.inside import publication_of
from tests.publishers.support import wait_until
from tests.transports.cli.test_program import one_line
from transports import Grant, LogAction, serve
from transports.cli import main
from transports.codec.stored import stored_groups_json, stored_slots_json


@pytest.fixture
def orders(tmp_path):
    """A log of three versions."""
    path = tmp_path / "orders"
    with ChangeLog.open(path, sync="os", fill_step=0) as log:
        for number in range(3):
            log.commit([upsert("order", str(number), {"n": number})])
    return path


def run(capsys, *arguments):
    """What was printed as JSON."""
    assert main(["slot", *map(str, arguments), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_slots_are_made_listed_moved_and_dropped(orders, capsys):
    """F74, F86."""
    assert run(capsys, "list", orders) == {"slots": []}
    made = run(capsys, "create", orders, "stock", "--since", "earliest", "--entity-type", "order")
    assert made == {"created": "stock", "position": "1:0"}
    run(capsys, "create", orders, "audit", "--granularity", "change", "--paused")
    audit, stock = run(capsys, "list", orders)["slots"]
    assert (audit["name"], audit["place"], audit["granularity"]) == ("audit", "4:0", "change")
    assert audit["paused"]
    assert audit["lag"] == {"versions": 0, "seconds": 0.0}
    again = run(capsys, "info", orders, "stock")
    assert {**again, "lag": None} == {**stock, "lag": None}
    assert stock["criteria"] == [{"entity_types": ["order"]}]
    assert stock["lag"]["versions"] == 3
    assert 0 <= stock["lag"]["seconds"] < 600
    assert (stock["state"], stock["generation"], stock["paused"]) == ("good", 0, False)
    assert run(capsys, "seek", orders, "stock", "2") == {"moved": "stock", "position": "2:0", "generation": 1}
    assert run(capsys, "seek", orders, "audit", stock["cursor"])["position"] == "1:0"
    assert run(capsys, "drop", orders, "audit") == {"dropped": "audit"}
    assert [slot["name"] for slot in run(capsys, "list", orders)["slots"]] == ["stock"]


def test_slots_are_told_in_words_beside_the_owner(orders, capsys):
    """F86: and only the owner moves them."""
    with ChangeLog.open(orders) as log:
        log.slots.create("stock", Criterion(entity_types={"order"}), since=2)
        log.slots.pause("stock")
        assert main(["slot", "list", str(orders)]) == 0
        head, row = capsys.readouterr().out.splitlines()
        assert head.split() == ["NAME", "PLACE", "BEHIND", "GENERATION", "STATE"]
        assert row.split()[:4] == ["stock", "2:0", "2", "versions,"]
        assert row.endswith("0           good (paused)")
        assert main(["slot", "info", str(orders), "stock"]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[3:5] == ["state: good", "paused: yes"]
        assert 'criteria: [{"entity_types":["order"]}]' in shown
        assert shown[-1].startswith("lag: 2 versions, ")
        assert main(["slot", "drop", str(orders), "stock"]) == 1
        assert "is being written by process" in one_line(capsys)
    assert main(["slot", "create", str(orders), "other"]) == 0
    assert main(["slot", "seek", str(orders), "other", "earliest"]) == 0
    assert main(["slot", "drop", str(orders), "other"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["slot other is created at 4:0", "slot other is at 1:0 now", "slot other is dropped"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["info", "DIR", "stack"], 1, "there is no slot 'stack' in the log; it has stock"),
        (["seek", "DIR", "stack", "1"], 1, "there is no slot"),
        (["seek", "DIR", "stock", "99"], 1, "beyond the end"),
        (["seek", "DIR", "stock", "never"], 2, "PLACE"),
        (["drop", "DIR", "stack"], 1, "there is no slot"),
        (["create", "DIR", "stock"], 1, "has a slot 'stock' already"),
        (["create", "DIR", "Stock"], 2, "small letters"),
        (["create", "DIR", "other", "--since", "never"], 2, "--since"),
        (["create", "DIR", "other", "--where", "total >"], 2, "where"),
        (["create", "DIR/nothing", "other"], 1, "there is none"),
        (["list", "DIR/nothing"], 1, "not a change log"),
    ],
)
def test_mistakes_are_told_in_one_line(orders, capsys, arguments, code, words):
    main(["slot", "create", str(orders), "stock"])
    capsys.readouterr()
    assert main(["slot", *(one.replace("DIR", str(orders)) for one in arguments)]) == code
    assert words in one_line(capsys)
    assert not (orders / "nothing").exists()


def test_a_stored_place_that_a_follower_has_not_reached_is_no_other_history(orders):
    """F86, F92: also of a group; the owner stores what is visible, and a follower reads the log a little later."""
    with ChangeLog.open(orders) as log, ChangeLog.open(orders, read_only=True) as reader:
        with publication_of(reader).gate:  # the follower publishes nothing more
            log.commit([upsert("order", "9", {})])
            log.slots.create("stock")
            log.groups.create("pickers")
            (slot,), (group,) = stored_slots_json(reader), stored_groups_json(reader)
        assert (slot["place"], slot["state"], slot["lag"]) == ("5:0", "good", {"versions": 0, "seconds": 0.0})
        assert (group["floor"], group["state"], group["lag"]) == ("5:0", "serving", slot["lag"])


def test_a_damaged_journal_is_told(orders, capsys):
    main(["slot", "create", str(orders), "stock"])
    for name in ("JOURNAL", "JOURNAL.copy"):
        (orders / "slots" / name).write_bytes(b"")
    capsys.readouterr()
    assert main(["slot", "list", str(orders)]) == 1
    assert "restore it from a copy" in one_line(capsys)


def test_a_slot_that_is_not_good_is_told(orders, tmp_path, capsys):
    """F92: its place is of another history, as the directory was put together from two copies; an operator moves it."""
    with ChangeLog.open(orders) as log:
        log.slots.create("stock")
    copy = tmp_path / "copy"
    shutil.copytree(orders, copy)
    with ChangeLog.open(orders) as log:
        log.commit([upsert("order", "9", {})])
        log.slots.seek("stock")
    shutil.rmtree(copy / "slots")
    shutil.copytree(orders / "slots", copy / "slots")
    told = run(capsys, "info", copy, "stock")
    assert (told["state"], told["place"], told["lag"]["seconds"]) == ("forked", "5:0", None)
    run(capsys, "seek", copy, "stock", "latest")
    assert run(capsys, "info", copy, "stock")["state"] == "good"


def test_a_log_of_a_store_is_chosen_by_its_name(tmp_path, capsys):
    with ChangeStore.open(tmp_path / "shop", sync="os", fill_step=0) as store:
        store.create("orders").commit([upsert("order", "1", {})])
        store.create("users")
    made = run(capsys, "create", tmp_path / "shop", "stock", "--log", "orders", "--since", "earliest")
    assert made["position"] == "1:0"
    assert [one["name"] for one in run(capsys, "list", tmp_path / "shop", "--log", "orders")["slots"]] == [
        "stock"
    ]
    assert main(["slot", "list", str(tmp_path / "shop")]) == 2
    assert "--log" in one_line(capsys)


CONSUMER = Grant({LogAction.READ, LogAction.CONSUME}, slots=["stock*"])


@pytest.fixture
def served(orders):
    """The owner of the log, with its server."""
    with ChangeLog.open(orders) as log, serve(log, authorise=CONSUMER) as server:
        yield log, server.url


def test_slots_of_a_server_are_made_listed_moved_paused_and_dropped(served, capsys):
    """F74, F86, F88: as beside the log, and by those whom the server lets."""
    log, url = served
    assert run(capsys, "list", url) == {"slots": []}
    made = run(capsys, "create", url, "stock", "--since", "earliest", "--entity-type", "order")
    assert made == {"created": "stock", "position": "1:0"}
    assert run(capsys, "pause", url, "stock") == {"paused": "stock"}
    told = run(capsys, "info", url, "stock", "--log", log.name)
    assert (told["place"], told["state"], told["paused"], told["lag"]["versions"]) == ("1:0", "free", True, 3)
    assert run(capsys, "resume", url, "stock") == {"resumed": "stock"}
    assert run(capsys, "seek", url, "stock", "2") == {"moved": "stock", "position": "2:0", "generation": 1}
    assert main(["slot", "list", url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["stock", "2:0"]
    assert run(capsys, "drop", url, "stock") == {"dropped": "stock"}
    assert list(log.slots) == []
    assert main(["slot", "info", url, "bills"]) == 1
    assert "FORBIDDEN" in one_line(capsys)


def test_slots_are_shown_by_a_server_that_follows_the_log(orders, capsys):
    """F74, F86: as their owner has stored them, and it says so; they are managed by the server that owns the log."""
    with ChangeLog.open(orders) as log:
        log.slots.create("stock", since="earliest")
        log.slots.create("audit", paused=True)
        with ChangeLog.open(orders, read_only=True) as reader, serve(reader) as server:
            audit, stock = run(capsys, "list", server.url)["slots"]
            kept = run(capsys, "list", orders)["slots"][1]
            for field in ("name", "place", "state", "cursor", "generation", "paused"):
                assert stock[field] == kept[field]
            assert (audit["stored"], stock["stored"], stock["state"]) == (True, True, "good")
            assert stock["lag"]["versions"] == 3
            assert [stock[unknown] for unknown in ("owner", "history", "heldBytes", "bytesLeft")] == [
                None
            ] * 4
            assert run(capsys, "info", server.url, "stock", "--log", log.name)["cursor"] == stock["cursor"]
            assert main(["slot", "list", server.url]) == 0
            first, second = capsys.readouterr().out.splitlines()[1:]
            assert first.endswith("good (paused, stored)")
            assert second.endswith("good (stored)")
            assert main(["slot", "info", server.url, "stock"]) == 0
            assert "stored: yes" in capsys.readouterr().out
            assert main(["slot", "info", server.url, "stack"]) == 1
            assert "SLOT_NOT_FOUND" in one_line(capsys)
            for arguments in (["pause"], ["resume"], ["drop"], ["create"], ["seek", "2"]):
                assert main(["slot", arguments[0], server.url, "stock", *arguments[1:]]) == 1
                line = one_line(capsys)
                assert "LOG_READ_ONLY" in line
                assert "the server that owns it" in line
        assert {one.paused for one in map(log.slots.info, log.slots)} == {False, True}


def test_a_damaged_journal_of_slots_is_told_by_a_server_that_follows_the_log(orders, capsys, caplog):
    """F86: also to the operator, who learns the file."""
    main(["slot", "create", str(orders), "stock"])
    for name in ("JOURNAL", "JOURNAL.copy"):
        (orders / "slots" / name).write_bytes(b"x" * 300)
    capsys.readouterr()
    with ChangeLog.open(orders, read_only=True) as reader, serve(reader) as server:
        assert main(["slot", "list", server.url]) == 1
        assert "SLOTS_UNUSABLE" in one_line(capsys)
    assert str(orders / "slots" / "JOURNAL") in caplog.text


def test_pausing_beside_the_log_lasts(orders, capsys):
    run(capsys, "create", orders, "stock")
    assert run(capsys, "pause", orders, "stock") == {"paused": "stock"}
    assert run(capsys, "info", orders, "stock")["paused"]
    assert run(capsys, "resume", orders, "stock") == {"resumed": "stock"}
    assert not run(capsys, "info", orders, "stock")["paused"]


def test_tail_goes_on_at_the_place_of_a_slot_and_acknowledges_what_it_printed(served, capfdbinary):
    """F74, F86: so the next one begins behind it."""
    log, url = served
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    assert main(["tail", url, "--slot", "stock", "--limit", "2"]) == 0
    keys = [json.loads(line)["key"] for line in capfdbinary.readouterr().out.splitlines()]
    assert keys == ["0", "1"]
    wait_until(lambda: log.slots.info("stock").owner is None)
    assert log.slots.info("stock").position == Position(3)
    assert main(["tail", url, "--slot", "stock", "--limit", "1"]) == 0
    (line,) = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line)["key"] == "2"


def test_tail_acknowledges_nothing_that_is_not_printed(served, monkeypatch, capsys):
    """F101: what a buffer of the process holds has not left it."""

    class Full:
        def __init__(self):
            self.buffer, self.waiting, self.refused = self, False, 0

        def write(self, text):
            self.waiting = True

        def flush(self):
            if self.waiting:
                self.waiting = False
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log, url = served
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    monkeypatch.setattr(sys, "stdout", full := Full())
    assert main(["tail", url, "--slot", "stock", "--limit", "2"]) != 0
    assert full.refused == 1
    wait_until(lambda: log.slots.info("stock").owner is None)
    assert log.slots.info("stock").position == Position(1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--since", "earliest"], "--since"),
        (["--until", "2"], "--until"),
        (["--entity-type", "order"], "without criteria"),
        (["--slot", "Stock"], "'Stock'"),
    ],
)
def test_what_a_slot_says_itself_is_left_out(arguments, says, capsys):
    assert main(["tail", "ws://127.0.0.1:1/ws", "--slot", "stock", *arguments]) == 2
    assert says in one_line(capsys)


def test_a_slot_is_that_of_a_server(orders, capsys):
    assert main(["tail", str(orders), "--slot", "stock"]) == 2
    assert "URL" in one_line(capsys)

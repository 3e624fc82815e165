"""``penstock group``: consumers that share the changes of a log, from the command line."""

import json
import shutil

import pytest

from publishers import ChangeLog, upsert
from tests.harness.constants import set_constant
from tests.harness.inside import house_step_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK
from tests.transports.cli.test_program import one_line
from transports import Grant, LogAction, serve
from transports.cli import group, main
from transports.server import statistics


@pytest.fixture
def orders(tmp_path):
    """A log of three versions."""
    path = tmp_path / "orders"
    with ChangeLog.open(path, sync="os", fill_step=0) as log:
        for number in range(3):
            log.commit([upsert("order", str(number), {"n": number})])
    return path


def printed(capsys, *arguments):
    """Lines that were printed."""
    assert main(["group", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def run(capsys, *arguments):
    """What was printed as JSON."""
    (line,) = printed(capsys, *arguments, "--json")
    return json.loads(line)


def test_groups_are_made_listed_moved_paused_and_dropped(orders, capsys):
    """F75, F86."""
    assert run(capsys, "list", orders) == {"groups": []}
    assert printed(capsys, "list", orders) == ["the log has no groups"]
    made = run(
        capsys,
        "create",
        orders,
        "pickers",
        "--since",
        "earliest",
        "--entity-type",
        "order",
        "--max-deliver",
        "3",
    )
    assert made == {"created": "pickers", "position": "1:0"}
    run(capsys, "create", orders, "audit", "--ordering", "none", "--ack", "all")
    audit, pickers = run(capsys, "list", orders)["groups"]
    assert (audit["floor"], audit["settings"], audit["lag"]["versions"]) == (
        "4:0",
        {"ordering": "none", "ack": "all"},
        0,
    )
    assert {**run(capsys, "info", orders, "pickers"), "lag": None} == {**pickers, "lag": None}
    assert (pickers["criteria"], pickers["settings"]) == ([{"entity_types": ["order"]}], {"max_deliver": 3})
    assert (pickers["state"], pickers["notDone"], pickers["lag"]["versions"]) == ("serving", 0, 3)
    assert 0 <= pickers["lag"]["seconds"] < 600
    assert run(capsys, "reset", orders, "pickers", "2")["position"] == "2:0"
    assert run(capsys, "pause", orders, "pickers") == {"paused": "pickers", "changed": True}
    assert run(capsys, "info", orders, "pickers")["state"] == "paused"
    assert run(capsys, "resume", orders, "pickers")["changed"]
    assert run(capsys, "drop", orders, "audit") == {"dropped": "audit"}
    assert [one["name"] for one in run(capsys, "list", orders)["groups"]] == ["pickers"]


def test_groups_and_what_is_pending_are_told_in_words_beside_the_owner(orders, capsys):
    """F77, F86: and only the owner moves them."""
    with ChangeLog.open(orders) as log:
        member = log.groups.create("pickers", since="earliest").join("one")
        assert len(member.read(2, wait=0)) == 2
        member.ack(member.read(1, wait=0)[0], durable=True)
        head, row = printed(capsys, "list", orders)
        assert head.split() == ["NAME", "FLOOR", "BEHIND", "NOT", "DONE", "DEAD", "STATE"]
        assert row.split()[:4] == ["pickers", "1:1", "3", "versions,"]
        assert any(
            line.startswith("lag: 3 versions, ") for line in printed(capsys, "info", orders, "pickers")
        )
        told = run(capsys, "pending", orders, "pickers", "--limit", "1")
        assert (told["total"], [(one["position"], one["count"]) for one in told["pending"]]) == (
            2,
            [("1:1", 1)],
        )
        assert printed(capsys, "pending", orders, "pickers")[1].startswith("2:1  delivered 1 times, first 20")
        assert main(["group", "drop", str(orders), "pickers"]) == 1
        assert "is being written by process" in one_line(capsys)
    assert printed(capsys, "reset", orders, "pickers", "latest") == ["group pickers is moved to 4:0"]
    assert printed(capsys, "pending", orders, "pickers") == ["no delivery is pending"]
    assert printed(capsys, "pause", orders, "pickers") == [
        "group pickers is paused: it delivers nothing until it is resumed"
    ]
    assert printed(capsys, "resume", orders, "pickers") == ["group pickers is resumed"]
    assert printed(capsys, "drop", orders, "pickers") == ["group pickers is dropped"]
    assert printed(capsys, "create", orders, "other") == ["group other is created at 4:0"]


def test_dead_letters_are_printed_handed_on_and_discarded(orders, capsys):
    """F81."""
    with ChangeLog.open(orders) as log:
        group = log.groups.create("pickers", since="earliest")
        assert printed(capsys, "dead", "inspect", orders, "pickers") == []
        member = group.join("one")
        for one in member.read(wait=0):
            member.term(one, f"no {one.change.key}")
        letters = list(map(json.loads, printed(capsys, "dead", "inspect", orders, "pickers")))
        assert [(one["position"], one["last_error"]) for one in letters] == [
            ("1:1", "no 0"), ("2:1", "no 1"), ("3:1", "no 2"),
        ]  # fmt: skip
        assert letters[0]["changes"][0]["key"] == "0"
        assert run(capsys, "info", orders, "pickers")["dead"] == 3
    assert run(capsys, "dead", "discard", orders, "pickers", "2:1") == {"discarded": 1}
    assert printed(capsys, "dead", "replay", orders, "pickers", "3:1")[0].startswith('{"position":"3:1"')
    assert [json.loads(one)["position"] for one in printed(capsys, "dead", "inspect", orders, "pickers")] == [
        "1:1"
    ]
    assert printed(capsys, "dead", "discard", orders, "pickers") == ["1 dead letters are discarded"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["info", "DIR", "stack"], 1, "there is no group 'stack' in the log; it has stock"),
        (["pending", "DIR", "stock", "--limit", "0"], 2, "--limit"),
        (["reset", "DIR", "stack", "1"], 1, "there is no group"),
        (["reset", "DIR", "stock", "99"], 1, "beyond the end"),
        (["reset", "DIR", "stock", "never"], 2, "PLACE"),
        (["drop", "DIR", "stack"], 1, "there is no group"),
        (["create", "DIR", "stock"], 1, "has a group 'stock' already"),
        (["create", "DIR", "Stock"], 2, "small letters"),
        (["create", "DIR", "other", "--max-deliver", "0"], 2, "max_deliver"),
        (["create", "DIR/nothing", "other"], 1, "there is none"),
        (["list", "DIR/nothing"], 1, "not a change log"),
        (["dead", "inspect", "DIR", "stack"], 1, "there is no group"),
        (["dead", "discard", "DIR", "stock", "1:1"], 2, "POSITION"),
    ],
)
def test_mistakes_are_told_in_one_line(orders, capsys, arguments, code, words):
    main(["group", "create", str(orders), "stock"])
    capsys.readouterr()
    assert main(["group", *(one.replace("DIR", str(orders)) for one in arguments)]) == code
    assert words in one_line(capsys)
    assert not (orders / "nothing").exists()


@pytest.mark.parametrize("data", [b"", b"x" * 300])
def test_a_damaged_journal_is_told(orders, capsys, data):
    main(["group", "create", str(orders), "stock"])
    for name in ("JOURNAL", "JOURNAL.copy"):
        (orders / "groups" / "stock" / name).write_bytes(data)
    capsys.readouterr()
    assert main(["group", "list", str(orders)]) == 1
    assert "restore it from a copy" in one_line(capsys)


def test_a_group_that_is_not_good_is_told(orders, tmp_path, capsys):
    """F92: its place is of another history, or its history is gone."""
    with ChangeLog.open(orders) as log:
        log.groups.create("stock")
    copy = tmp_path / "copy"
    shutil.copytree(orders, copy)
    with ChangeLog.open(orders) as log:
        log.commit([upsert("order", "9", {})])
        log.groups.seek("stock")
    shutil.rmtree(copy / "groups")
    shutil.copytree(orders / "groups", copy / "groups")
    told = run(capsys, "info", copy, "stock")
    assert (told["state"], told["floor"], told["lag"]) == (
        "forked",
        "5:0",
        {"versions": None, "seconds": None},
    )
    assert printed(capsys, "list", copy)[1].split() == ["stock", "5:0", "-", "0", "0", "forked"]
    assert "lag: -" in printed(capsys, "info", copy, "stock")
    lost = tmp_path / "lost"
    with ChangeLog.open(lost, **{**RETAIN, **QUICK}) as log:
        log.groups.create("slow", since="earliest", keep_bytes=0)
        for n in range(40):
            log.commit([upsert("order", str(n), {"n": "x" * 30_000})])
            house_step_of(log)()
        row = printed(capsys, "list", lost)[1]
        assert row.split()[:4] == ["slow", "1:0", "40", "versions"]
        assert row.endswith("lost")
        assert "lag: 40 versions" in printed(capsys, "info", lost, "slow")


@pytest.fixture
def served(orders):
    """A log and the URL of its server, whose group has one consumer that has refused something."""
    with ChangeLog.open(orders) as log:
        group = log.groups.create("pickers", since="earliest")
        with group.join("one") as worker, serve(log) as server:
            first, second, _ = worker.read(3, wait=0)
            worker.ack(first)
            worker.nack(second, 600.0, error="no stock")
            yield server.url


def test_groups_of_a_server_are_listed_and_told(served, capsys):
    """F86, F136: what is pending and due, who is there, why a delivery failed last, and when it is given again."""
    (listed,) = run(capsys, "list", served)["groups"]
    told = run(capsys, "info", served, "pickers", "--log", "orders")
    assert {**told, "nextSeconds": None, "lag": None} == {**listed, "nextSeconds": None, "lag": None}
    assert (told["floor"], told["head"], told["state"], told["lag"]["versions"]) == (
        "2:1",
        "4:0",
        "serving",
        2,
    )
    assert [told[name] for name in ("pending", "due", "parked", "dying", "acked", "dead")] == [
        1,
        1,
        0,
        0,
        1,
        0,
    ]
    assert (told["consumers"], told["lastError"]) == (["one"], "no stock")
    assert 0 < told["nextSeconds"] <= 600
    assert printed(capsys, "list", served)[1].split()[:2] == ["pickers", "2:1"]
    assert "last error: no stock" in printed(capsys, "info", served, "pickers")
    assert main(["stats", served]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "group pickers" in line]
    assert "serving, 2 versions behind, 1 pending, 1 due, the next in " in line
    assert line.endswith("1 consumer, 0 dead letters; last error: no stock")


def test_what_a_server_does_not_have_is_said_in_one_line(served, capsys, monkeypatch):
    """F86."""
    for arguments, word in (
        (["info", served, "packers"], "packers"),
        (["list", served, "--log", "bills"], "bills"),
        (["list", served.replace("/ws", "/nowhere/ws")], "statistics"),
    ):
        assert main(["group", *arguments]) == 1
        assert word in one_line(capsys)
    for answer, word in (
        ({"logs": 1}, "statistics of logs"),
        ({"logs": {"a": {"consumerGroups": {"g": {}}}}}, "version"),
    ):
        monkeypatch.setattr(group, "ask", lambda *_, answer=answer: answer)
        assert main(["group", "list", served]) == 1
        assert word in one_line(capsys)


def test_groups_are_listed_by_a_server_that_follows_the_log(orders, capsys):
    """F86: as stored in the directory; they are managed by the server that owns the log."""
    with ChangeLog.open(orders) as log:
        log.groups.create("pickers", since="earliest")
        with ChangeLog.open(orders, read_only=True) as reader, serve(reader) as server:
            (listed,) = run(capsys, "list", server.url)["groups"]
            (stored,) = run(capsys, "list", orders)["groups"]
            assert {**listed, "lag": None} == {**stored, "lag": None}
            assert listed["lag"]["versions"] == 3
            assert printed(capsys, "list", server.url)[1].split()[:3] == ["pickers", "1:0", "3"]
            assert run(capsys, "info", server.url, "pickers")["state"] == "serving"
            assert main(["stats", server.url]) == 0
            assert "group pickers: serving, 3 versions behind" in capsys.readouterr().out
            for arguments in (["pending"], ["pause"], ["dead", "inspect"]):
                assert main(["group", *arguments, server.url, "pickers"]) == 1
                line = one_line(capsys)
                assert "LOG_READ_ONLY" in line
                assert "the server that owns it" in line


def test_a_damaged_journal_is_told_by_a_server_that_follows_the_log(orders, capsys):
    """F86."""
    main(["group", "create", str(orders), "stock"])
    for name in ("JOURNAL", "JOURNAL.copy"):
        (orders / "groups" / "stock" / name).write_bytes(b"x" * 300)
    capsys.readouterr()
    with ChangeLog.open(orders, read_only=True) as reader, serve(reader) as server:
        assert main(["group", "list", server.url]) == 1
        assert "GroupCorrupted" in one_line(capsys)


def test_groups_that_a_client_may_not_see_are_not_said_to_be_missing(orders, capsys):
    """F86."""
    with ChangeLog.open(orders) as log:
        log.groups.create("pickers")
        with serve(log, authorise=Grant({LogAction.READ})) as server:
            assert main(["group", "list", server.url]) == 1
            assert "may operate it" in one_line(capsys)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_server_that_lists_some_of_the_groups_says_so(orders, capsys, monkeypatch, read_only):
    """F86."""
    set_constant(monkeypatch, statistics, "_LISTED", 2)
    with ChangeLog.open(orders) as log:
        for name in ("audit", "pickers", "stock"):
            log.groups.create(name)
        with ChangeLog.open(orders, read_only=True) as reader, serve(reader if read_only else log) as server:
            assert main(["group", "list", server.url]) == 0
            out, err = capsys.readouterr()
            assert [line.split()[0] for line in out.splitlines()[1:]] == ["audit", "pickers"]
            assert "more groups than the 2 that the server lists" in err
            assert main(["group", "info", server.url, "stock"]) == 1
            assert "'stock' is not among the groups that the server lists" in one_line(capsys)

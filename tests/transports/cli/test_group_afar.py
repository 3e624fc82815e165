"""``penstock group`` with the URL of a server, which is a process of its own."""

import json

import pytest

from publishers import ChangeLog, upsert
from tests.harness.constants import set_constant
from tests.transports.cli.test_group import printed, run
from tests.transports.cli.test_program import one_line
from transports import Grant, LogAction, connect, serve
from transports.cli import main
from transports.errors import RemoteError
from transports.operations import groups as operations

POLICY = """
[principals.ann]
token = "SECRET-ann"
roles = ["worker"]

[[grants]]
roles = ["worker"]
logs = ["orders"]
actions = ["CONSUME"]
groups = ["pick*"]
"""


@pytest.fixture
def orders(tmp_path):
    """A log of four versions; of the group on it two deliveries are pending, two are dead letters."""
    path = tmp_path / "orders"
    with ChangeLog.open(path, sync="os", fill_step=0) as log:
        for number in range(4):
            log.commit([upsert("order", str(number), {"n": number})])
        group = log.groups.create("pickers", since="earliest")
        with group.join("one") as worker:
            for one in worker.read(2, wait=0):
                worker.term(one, f"no {one.change.key}")
        log.groups.create("packers")
    return path


def url_of(server):
    return next(part.rstrip(",") for part in server.stdout.readline().split() if part.startswith("ws://"))


def test_groups_of_a_server_are_made_moved_paused_and_dropped(start, orders, capsys):
    """F86: by a real process, with JSON, as those of a directory."""
    with start("serve", orders, "--own", "--port", "0", "--groups", "*") as server:
        url = url_of(server)
        made = run(capsys, "create", url, "audit", "--since", "2", "--ack", "all", "--entity-type", "order")
        assert made == {"created": "audit", "position": "2:0"}
        assert run(capsys, "create", url, "all", "--max-deliver", "3")["position"] == "5:0"
        assert run(capsys, "reset", url, "audit", "3", "--log", "orders") == {
            "moved": "audit",
            "position": "3:0",
            "generation": 1,
        }
        assert run(capsys, "pause", url, "audit") == {"paused": "audit", "changed": True}
        assert run(capsys, "pause", url, "audit")["changed"] is False
        assert run(capsys, "resume", url, "audit") == {"resumed": "audit", "changed": True}
        assert run(capsys, "pending", url, "audit") == {"group": "audit", "total": 0, "pending": []}
        assert printed(capsys, "pending", url, "audit") == ["no delivery is pending"]
        assert run(capsys, "drop", url, "all") == {"dropped": "all"}
        for arguments, code, words in (
            (["pause", url, "stack"], 1, "GROUP_NOT_FOUND"),
            (["create", url, "audit"], 1, "GROUP_EXISTS"),
            (["create", url, "Audit"], 2, "small letters"),
            (["create", url, "other", "--max-deliver", "0"], 1, "max_deliver"),
            (["reset", url, "audit", "99"], 1, "CURSOR_AHEAD"),
            (["reset", url, "audit", "never"], 2, "PLACE"),
            (["pending", url, "audit", "--limit", "0"], 2, "--limit"),
            (["dead", "discard", url, "audit", "1:1"], 2, "POSITION"),
        ):
            assert main(["group", *arguments]) == code
            assert words in one_line(capsys)
    told = run(capsys, "info", orders, "audit")
    assert (told["floor"], told["settings"], told["criteria"]) == (
        "3:0",
        {"ack": "all"},
        [{"entity_types": ["order"]}],
    )


def test_dead_letters_of_a_server_are_listed_replayed_and_discarded(start, orders, capsys):
    """F86, F81: what was printed is taken away, and nothing else."""
    with start("serve", orders, "--own", "--port", "0", "--groups", "pickers") as server:
        url = url_of(server)
        letters = list(map(json.loads, printed(capsys, "dead", "inspect", url, "pickers")))
        assert [(one["position"], one["last_error"]) for one in letters] == [("1:1", "no 0"), ("2:1", "no 1")]
        (line,) = printed(capsys, "dead", "replay", url, "pickers", "2:1")
        assert json.loads(line) == letters[1]
        (line,) = printed(capsys, "dead", "inspect", url, "pickers")
        assert json.loads(line) == letters[0]
        assert run(capsys, "dead", "discard", url, "pickers") == {"discarded": 1}
        assert printed(capsys, "dead", "inspect", url, "pickers") == []
    assert printed(capsys, "dead", "inspect", orders, "pickers") == []


def test_a_server_lets_only_those_do_it_whose_grant_names_the_group(start, orders, tmp_path, capsys):
    """F86, F140."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with start("serve", orders, "--own", "--port", "0", "--policy", policy) as server:
        url = url_of(server)
        assert main(["group", "pause", url, "pickers"]) == 1
        assert "token" in one_line(capsys)
        given = ["--token", "SECRET-ann"]
        assert run(capsys, "pause", url, "pickers", *given)["changed"]
        for arguments in (
            ["pending", url, "packers"],
            ["create", url, "other"],
            ["reset", url, "packers", "1"],
            ["pause", url, "packers"],
            ["resume", url, "packers"],
            ["drop", url, "packers"],
            ["dead", "inspect", url, "packers"],
            ["dead", "discard", url, "packers"],
        ):
            assert main(["group", *arguments, *given]) == 1
            assert "group must be one that the grant names" in one_line(capsys), arguments
    with start("serve", orders, "--own", "--port", "0") as server:
        url = url_of(server)
        assert main(["group", "drop", url, "pickers"]) == 1
        assert "CONSUME" in one_line(capsys)
    assert {one["name"] for one in run(capsys, "list", orders)["groups"]} == {"pickers", "packers"}


def test_groups_are_only_for_clients_of_the_owner(orders, capsys):
    assert main(["serve", str(orders), "--groups", "*"]) == 2
    assert "--own" in one_line(capsys)


@pytest.mark.parametrize("option", ["--slots", "--groups"])
@pytest.mark.parametrize("pattern", ["a,b", "a b", "Pick*", "picker\u0301"])
def test_what_no_name_matches_is_told_to_be_one_pattern(orders, capsys, option, pattern):
    assert main(["serve", str(orders), "--own", option, "stock*", option, pattern]) == 2
    assert f"{pattern!r} is one, which no name matches" in one_line(capsys)


def test_what_is_pending_at_which_consumer_is_told(orders, capsys):
    """F77, F86."""
    with ChangeLog.open(orders) as log:
        allowed = Grant({LogAction.CONSUME}, groups=["*"])
        with serve(log, authorise=allowed) as server, log.groups.open("pickers").join("two") as worker:
            assert len(worker.read(wait=0)) == 2
            told = run(capsys, "pending", server.url, "pickers", "--limit", "1")
            assert told["total"] == 2
            (row,) = told["pending"]
            assert (row["consumer"], row["count"], row["generation"]) == ("two", 1, worker.generation)
            assert printed(capsys, "pending", server.url, "pickers")[0].startswith(
                "3:1  two, delivered 1 times, "
            )
            assert run(capsys, "claim", server.url, "pickers", "--min-idle", "600") == {"claimed": 0}
            told = printed(capsys, "claim", server.url, "pickers")
            assert told == ["2 deliveries are due now, for every consumer"]
            assert run(capsys, "pending", server.url, "pickers")["total"] == 0
            assert [one.count for one in worker.read(wait=0)] == [2, 2]
            assert main(["group", "claim", server.url, "pickers", "--min-idle", "-1"]) == 2
            assert "--min-idle" in one_line(capsys)
    assert main(["group", "claim", str(orders), "pickers"]) == 2
    assert "the URL of the server that owns the log" in one_line(capsys)


@pytest.mark.asyncio
async def test_dead_letters_come_in_pages_of_a_bound(orders, monkeypatch):
    """F81: a great many of them take no great message."""
    set_constant(monkeypatch, operations, "_MOST_BYTES", 10)
    with ChangeLog.open(orders) as log:
        allowed = Grant({LogAction.CONSUME}, groups=["*"])
        with serve(log, authorise=allowed) as server:
            async with connect(server.url) as remote:
                told = await remote.groups.info("pickers")
                assert (told["log"], told["dead"], told["floor"]["version"]) == ("orders", 2, 3)
                pages = []
                ask = remote.groups._ask

                async def counted(asked):
                    pages.append(asked)
                    return await ask(asked)

                groups = type(remote.groups)(counted)
                found = [one["position"] async for one in groups.dead_letters("pickers")]
                assert (found, len(pages)) == (["1:1", "2:1"], 2)
                assert await groups.discard("pickers", ["2:1", "9:1"]) == 1
                assert await groups.discard("pickers") == 1
                with pytest.raises(RemoteError, match="no group of that name") as caught:
                    await remote.groups.of("orders").pause("stack")
                assert caught.value.code == "GROUP_NOT_FOUND"

"""``penstock tail``: which changes it prints, from where, and how it ends."""

import json
import re
import signal
import threading
import types
import uuid

import pytest

from publishers.model.position import Position
from publishers.mutations.mutation import upsert
from publishers.views.view import Content
from tests.publishers.support import wait_until
from tests.transports.cli.test_program import one_line
from transports.cli import main, tail
from transports.client.remote_feed import RemoteSubscription
from transports.errors import ConnectionLost


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--since", "yesterday"], 2, "latest, earliest, a version"),
        (["--since", "9" * 40], 2, "latest, earliest, a version"),
        (["--since", "2026-01-01"], 2, "a time, the id of a transaction"),
        (["--since", "99"], 1, "beyond the end"),
        (["--since", "0" * 32 + ":1:1:0"], 1, "belongs to log"),
        (["--operation", "UPSRT"], 2, "operations is 'UPSRT'"),
    ],
)
def test_a_wrong_place_or_wish_is_told_by_directory_and_by_server(
    log, fill, serving, capsys, arguments, code, says
):
    fill(1)
    assert main(["tail", str(log.path), *arguments]) == code
    assert says in one_line(capsys)
    assert main(["tail", serving().url, *arguments]) == code
    assert says in one_line(capsys)


def test_tail_begins_wherever_it_is_told_by_directory_and_by_server(log, fill, serving, capsys):
    """F61: latest, earliest, version, position, transaction, timestamp."""
    fill(3)
    heads = [change for change in log.history(content=Content.BODY).changes if change.index == 0]
    second = heads[1]
    server = serving()
    for since in ("2", str(log.token(second.position)), log.time_of(2).isoformat(), second.body["id"]):
        for source in (str(log.path), server.url):
            assert main(["tail", source, "--since", since, "--limit", "4"]) == 0
            events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(event["version"], event["index"]) for event in events] == [
                (2, 0),
                (2, 1),
                (3, 0),
                (3, 1),
            ]
    for source, code, says in ((str(log.path), 2, "--since is"), (server.url, 1, "start.transaction is")):
        assert main(["tail", source, "--since", str(uuid.uuid4())]) == code
        line = one_line(capsys)
        assert says in line
        assert "the id of a transaction that is kept" in line


def test_tail_of_a_server_prints_the_same_lines_as_tail_of_the_directory(log, fill, serving, capsysbinary):
    log.commit([upsert("order", b"\xff", b'{"lines":\n "kept on one"}'), upsert("item", "2", {"a": 1})])
    fill(3, changes=2)
    arguments = ["--since", "earliest", "--until", "4"]
    outputs = []
    for source in (str(log.path), serving().url):
        for content in ("body", "HEADER"):
            assert main(["tail", source, *arguments, "--content", content]) == 0
            outputs.append([json.loads(line) for line in capsysbinary.readouterr().out.splitlines()])
    assert outputs[0] == outputs[2]
    assert outputs[1] == outputs[3]
    assert len(outputs[0]) == 12
    assert "body" not in outputs[1][1]


def test_tail_chooses_by_type_key_and_operation(log, capsysbinary):
    log.commit([upsert("a", "1", {}), upsert("b", "1", {}), upsert("b", "2", {})])
    options = ["--entity-type", "b", "--key", "2", "--operation", "upsert", "--since", "1", "--until", "1"]
    assert main(["tail", str(log.path), *options]) == 0
    (line,) = capsysbinary.readouterr().out.splitlines()
    assert (json.loads(line)["entity_type"], json.loads(line)["key"]) == ("b", "2")


def test_tail_chooses_by_changed_field_value_and_transition(log, serving, capsysbinary):
    """F53, F55, F58: in a directory and at a server."""
    was, now = {"total": 5, "status": "OPEN"}, {"total": 15, "status": "OPEN"}
    log.commit(
        [
            upsert("order", "o-1", now, before=was, changed=["total"]),
            upsert("order", "o-2", now, before=now, changed=["status"]),
            upsert("order", "x-3", now, before=was, changed=["total"]),
        ]
    )
    wishes = [
        (["--changed", "total", "--changed", "other"], ["o-1", "x-3"]),
        (["--where", "total > 10", "--where", "before:total <= 10"], ["o-1", "x-3"]),
        (["--where", "total > 10", "--transition", "entered", "--key-pattern", "o-[0-9]"], ["o-1"]),
        (["--where", "status == OPEN", "--transition", "STAYED", "--key-glob", "?-2"], ["o-2"]),
    ]
    for source in (log.path, serving().url):
        for options, keys in wishes:
            assert main(["tail", str(source), "--since", "1", "--until", "1", *options]) == 0
            lines = capsysbinary.readouterr().out.splitlines()
            assert [json.loads(line)["key"] for line in lines] == keys


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--where", "total"], "an expression such as"),
        (["--where", "total > null"], "a number or text"),
        (["--transition", "LEFT"], "no conditions"),
        (["--key-pattern", "("], "closing parenthesis"),
        (["--operation", "UPSRT"], "one of UPSERT"),
    ],
)
def test_a_wrong_wish_is_told_in_one_line(log, capsys, options, says):
    """E11."""
    assert main(["tail", str(log.path), *options]) == 2
    assert says in one_line(capsys)


def test_tail_says_where_in_the_state_it_waits(log, fill, capsys, monkeypatch):
    """F89: the place of a snapshot is one too."""
    fill(1)
    printer = types.SimpleNamespace(subscription=object.__new__(RemoteSubscription))
    printer.subscription._delivered = f"n1:0123456789abcdef:b3JkZXI.MC0w:{log.token(Position(2))}"
    tail._wait("ws://shop", printer, ConnectionLost("ws://shop", "gone"), 1.0)
    assert capsys.readouterr().err.endswith("trying again in 1.0 s, from 2:0\n")


@pytest.mark.parametrize("remote", [False, True])
def test_tail_is_interrupted_quietly(start, log, fill, serving, remote):
    fill(1)
    with start("tail", serving().url if remote else log.path, "--since", "earliest") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


def test_tail_waits_for_its_server_says_where_and_goes_on_there(start, log, fill, serving):
    server = serving()
    fill(1)
    with start("tail", server.url, "--since", "earliest") as process:
        printed = [json.loads(process.stdout.readline()) for _ in range(2)]
        server.stop()
        said = process.stderr.readline()
        fill(1)
        serving(port=server.port)
        printed += [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert re.fullmatch(
        rf"penstock: waiting for {server.url}: closed with 1012 \(.*\); trying again in 0\.\d s, from 2:0\n",
        said,
    )
    assert "Traceback" not in err
    assert process.returncode == 130
    assert [(event["version"], event["index"]) for event in printed] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_tail_gives_its_server_up_after_as_many_attempts_as_it_was_told(log, serving, capsys):
    server = serving()

    def stop():
        wait_until(lambda: log.statistics().subscriptions)
        server.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    assert main(["tail", server.url, "--retry", "2"]) == 1
    stopping.join()
    *waits, last = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(" for ")[0] for line in waits] == ["waiting"] * 2
    assert last.startswith(f"penstock: the connection to {server.url} is lost: ")


def test_without_another_attempt_a_stopping_server_ends_tail_with_one_line(start, log, fill, serving):
    server = serving()
    fill(1)
    with start("tail", server.url, "--since", "earliest", "--retry", "0") as process:
        process.stdout.readline()
        server.stop()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("penstock: GOING_AWAY: ")
    assert err.count("\n") == 1

"""The command, in this process where that is possible, and as a process where signals and pipes matter."""

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import types
import uuid

import pytest

from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.mutations.mutation import upsert
from publishers.views.view import Content
from tests.publishers.support import wait_until
from transports import connect
from transports.cli import main, tail
from transports.client.remote_feed import RemoteSubscription
from transports.errors import ConnectionLost

LINES = '{"entity_type":"order","key":"1","body":{"a":1}}\n\n{"entity_type":"order","key":"2","operation":"REMOVE"}\n'


@contextlib.contextmanager
def start(*arguments):
    """The command as a process, which does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "transports.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def feed_stdin(monkeypatch):
    def feed(text):
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))

    return feed


def broken_pipe():
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def one_line(capsys):
    """What a user sees of a mistake: one line, on standard error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.startswith("penstock: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_append_answers_with_one_line_and_tail_prints_what_was_appended(tmp_path, feed_stdin, capsysbinary):
    feed_stdin(LINES)
    assert main(["append", str(tmp_path / "shop")]) == 0
    said = capsysbinary.readouterr().out.decode()
    assert re.fullmatch(
        r"2 changes committed to shop as version 1, cursor [0-9a-f]{32}:1[.][\w-]{11}:2:0\n", said
    )
    assert main(["tail", str(tmp_path / "shop"), "--since", "earliest", "--limit", "3"]) == 0
    events = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [event["operation"] for event in events] == ["TRANSACTION", "UPSERT", "REMOVE"]
    assert events[1]["body"] == {"a": 1}
    assert events[2]["cursor"] == said.split()[-1]


def test_append_takes_a_file_and_what_tail_printed(tmp_path, capsysbinary):
    source = tmp_path / "in.jsonl"
    source.write_text(LINES)
    assert main(["append", str(tmp_path / "one"), str(source)]) == 0
    capsysbinary.readouterr()
    assert main(["tail", str(tmp_path / "one"), "--since", "1", "--until", "1"]) == 0
    printed = capsysbinary.readouterr().out
    source.write_bytes(printed)
    assert main(["append", str(tmp_path / "two"), str(source)]) == 0
    with ChangeLog.open(tmp_path / "two", read_only=True) as log:
        assert [change.key for change in log.history().changes] == [None, "1", "2"]


def test_append_of_nothing_makes_no_log(tmp_path, feed_stdin, capsys):
    feed_stdin("\n \n")
    assert main(["append", str(tmp_path / "shop")]) == 0
    assert capsys.readouterr().out == "0 changes: nothing was committed\n"
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("nonsense", "a JSON object such as"),
        ("[1]", "Expected `object`"),
        ("7", "Expected `object`"),
        ('{"entity_type":"order","body":{}}', "key is None"),
        ('{"key":"1","body":{}}', "entity_type is None"),
        ('{"entity_type":"","key":"1","body":{}}', "entity_type"),
        ('{"entity_type":"order","key":"","body":{}}', "key is ''"),
        ('{"entity_type":"order","key":"1"}', "body is None"),
        ('{"entity_type":"order","key":"1","operation":"REMOVE","body":{}}', "left out with REMOVE"),
        ('{"entity_type":"order","key":"1","operation":"UPSRT","body":{}}', "UPSRT"),
        ('{"entity_type":"order","key":"1","bdy":{}}', "bdy"),
        ('{"entity_type":"order","key":"1","body":{},"schema_version":-1}', "schema_version"),
        ('{"entity_type":"order","key":"1","body":' + "[" * 50_000 + "}", ""),
        (b'{"entity_type":"\xff","key":"1","body":{}}', ""),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_appended(tmp_path, feed_stdin, capsys, bad, says):
    good = LINES.encode()
    feed_stdin(good + (bad if isinstance(bad, bytes) else bad.encode()) + b"\n" + good)
    assert main(["append", str(tmp_path / "shop")]) == 2
    line = one_line(capsys)
    assert line.startswith("penstock: line 4: ")
    assert says in line
    with ChangeLog.open(tmp_path / "shop") as log:
        assert log.head == (1, 0)


def test_what_is_no_log_is_told_in_one_line(tmp_path, capsys, feed_stdin):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("miaow")
    for arguments in (
        ["tail", str(tmp_path / "photos")],
        ["tail", str(tmp_path / "missing")],
        ["serve", str(tmp_path / "photos")],
        ["serve", str(tmp_path / "photos"), "--own"],
        ["serve", str(tmp_path / "missing")],
    ):
        assert main(arguments) == 1, arguments
        assert str(tmp_path) in one_line(capsys)
    feed_stdin(LINES)
    assert main(["append", str(tmp_path / "photos")]) == 1
    assert "not a change log" in one_line(capsys)
    assert main(["append", str(tmp_path / "shop"), str(tmp_path / "missing.jsonl")]) == 1
    assert "missing.jsonl" in one_line(capsys)


@pytest.mark.parametrize("command", ["verify", "dump", "repair --write", "stats", "schema", "serve", "tail"])
def test_a_directory_without_a_name_is_not_the_one_that_we_are_in(command, capsys, monkeypatch, log):
    monkeypatch.chdir(log.path)
    name, *options = command.split()
    assert main([name, "", *options]) == 2
    assert "the path of a directory" in one_line(capsys)


def test_a_second_writer_is_refused_in_one_line(log, capsys, feed_stdin):
    feed_stdin(LINES)
    assert main(["append", str(log.path)]) == 1
    assert "being written by" in one_line(capsys)
    assert main(["serve", str(log.path), "--own"]) == 1
    assert "being written by" in one_line(capsys)


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["tail"],
        ["tail", "x", "--nonsense\nof two lines"],
        ["tail", "x", "--limit", "0"],
        ["tail", "x", "--limit", "-1"],
        ["tail", "x", "--limit", "1" * 50],
        ["tail", "x", "--until", "x"],
        ["tail", "x", "--content", "SOME"],
        ["serve", "x", "--port", "70000"],
        ["serve", "x", "--port", "http"],
    ],
)
def test_wrong_arguments_exit_with_2_and_are_told_in_one_line(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("penstock")
    assert captured.err.endswith(" --help tells more)\n")
    assert captured.err.count("\n") == 1


def test_without_a_command_the_help_is_printed(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: penstock" in captured.err
    assert "commands:" in captured.err


def test_help_and_version_exit_with_0(capsys):
    assert main(["--help"]) == 0
    assert "130 interrupted" in capsys.readouterr().out
    assert main(["version"]) == 0
    assert main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


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


def test_no_server_is_told_in_one_line(serving, capsys):
    server = serving()
    server.stop()
    assert main(["tail", server.url]) == 1
    assert server.url in one_line(capsys)


@pytest.mark.parametrize(
    "address", ["ws://", "ws://[::", "ws://host:port/ws", "http://:8090/", "ws://host:99999"]
)
def test_an_address_that_is_none_is_told_in_one_line(capsys, address):
    assert main(["tail", address]) == 2
    assert "an address with a host, such as ws://" in one_line(capsys)


def test_a_port_in_use_is_told_in_one_line(log, serving, capsys):
    assert main(["serve", str(log.path), "--port", str(serving().port)]) == 1
    assert "in use" in one_line(capsys)


def test_a_missing_extra_is_told_in_one_line(log, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(log.path)]) == 1
    assert "pip install 'penstock-cdc[server]'" in one_line(capsys)


def test_what_nobody_expected_is_one_line_too(monkeypatch, capsys, log):
    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)
    monkeypatch.setattr("transports.cli.program.version", lambda: 1 // 0)
    assert main(["version"]) == 1
    assert "internal error: ZeroDivisionError" in one_line(capsys)
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["version"])


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_ends_cleanly_on_a_signal(log, fill, sent, code):
    with start("serve", log.path, "--port", "0") as process:
        line = process.stdout.readline()
        assert re.match(r"serving shop read-only at ws://127\.0\.0\.1:\d+/ws, health at http://", line), line
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "")


def test_serve_follows_the_writer_and_tail_follows_serve(log, fill):
    with start("serve", log.path, "--port", "0") as server:
        url = server.stdout.readline().split()[4].rstrip(",")
        with start("tail", url, "--since", "earliest", "--limit", "4") as tail:
            fill(1)
            assert json.loads(tail.stdout.readline())["operation"] == "TRANSACTION"
            fill(1)
            assert [json.loads(tail.stdout.readline())["version"] for _ in range(3)] == [1, 2, 2]
            assert tail.wait(60) == 0
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_serve_own_takes_the_log_for_itself(tmp_path, capsys, feed_stdin):
    with start("serve", tmp_path / "shop", "--own", "--port", "0") as server:
        assert "as its owner" in server.stdout.readline()
        feed_stdin(LINES)
        assert main(["append", str(tmp_path / "shop")]) == 1
        assert str(server.pid) in one_line(capsys)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_serve_state_gives_the_state_and_only_an_owner_has_one(log, fill, capsys):
    """F146."""
    fill(1, 2)
    log.close()
    assert main(["serve", str(log.path), "--state"]) == 2
    assert "--own" in one_line(capsys)
    with start("serve", log.path, "--own", "--state", "--port", "0") as server:
        url = server.stdout.readline().split()[6].rstrip(",")

        async def rows():
            async with connect(url) as remote:
                feed = remote.changes(since="state", snapshot="initial_only")
                return [(change.operation.name, change.key) async for change in feed]

        assert asyncio.run(rows()) == [("READ", "0-0"), ("READ", "0-1")]
        capsys.readouterr()
        assert main(["tail", url, "--since", "state", "--limit", "1"]) == 0
        first = json.loads(capsys.readouterr().out)
        assert (first["operation"], first["key"]) == ("READ", "0-0")
        with start("tail", url, "--since", first["cursor"], "--limit", "1", "--retry", "1") as tail:
            assert json.loads(tail.stdout.readline())["key"] == "0-1"
        assert main(["tail", str(log.path), "--since", "state"]) == 1
        assert "keeps no state" in one_line(capsys)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_tail_says_where_in_the_state_it_waits(log, fill, capsys, monkeypatch):
    """F89: the place of a snapshot is one too."""
    fill(1)
    printer = types.SimpleNamespace(subscription=object.__new__(RemoteSubscription))
    printer.subscription._delivered = f"n1:0123456789abcdef:b3JkZXI.MC0w:{log.token(Position(2))}"
    tail._wait("ws://shop", printer, ConnectionLost("ws://shop", "gone"), 1.0)
    assert capsys.readouterr().err.endswith("trying again in 1.0 s, from 2:0\n")


@pytest.mark.parametrize("remote", [False, True])
def test_tail_is_interrupted_quietly(log, fill, serving, remote):
    fill(1)
    with start("tail", serving().url if remote else log.path, "--since", "earliest") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


INTERRUPTED = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            interrupt()

sys.meta_path.insert(0, Importing())
if sys.argv[1] == "atexit":
    atexit.register(interrupt)

from transports.cli import main  # as the script that pip makes does it
sys.exit(main())
"""


@pytest.mark.parametrize("moment", ["transports.cli.program", "publishers.wal", "atexit"])
def test_an_interrupt_before_and_after_the_command_is_quiet_too(moment):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, moment], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


@pytest.mark.parametrize("remote", [False, True])
def test_a_broken_pipe_is_quiet(log, fill, serving, remote):
    fill(1, changes=10)
    with start("tail", serving().url if remote else log.path, "--since", "earliest") as process:
        process.stdout.readline()
        process.stdout.close()
        for _ in range(50):
            fill(1, changes=20, body="z" * 1000)
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def test_tail_waits_for_its_server_says_where_and_goes_on_there(log, fill, serving):
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


def test_without_another_attempt_a_stopping_server_ends_tail_with_one_line(log, fill, serving):
    server = serving()
    fill(1)
    with start("tail", server.url, "--since", "earliest", "--retry", "0") as process:
        process.stdout.readline()
        server.stop()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("penstock: GOING_AWAY: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize("command", ["append {log}", "tail {log} --since earliest --limit 1", "version"])
def test_a_command_without_its_standard_streams_ends_without_a_traceback(log, fill, command, closed):
    fill(1)
    line = f"{sys.executable} -m transports.cli {command.format(log=log.path)} </dev/null {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("command", ["verify", "dump", "stats", "tail --since earliest --limit 2"])
def test_any_letters_are_printed_in_any_locale(tmp_path, command):
    path = tmp_path / "b\u00fccher"
    with ChangeLog.open(path, sync="os") as log:
        log.commit([upsert("gr\u00f6\u00dfe", "\u043a\u043b\u044e\u0447", {"a": "\u65e5\u672c"})])
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", "transports.cli", name, str(path), *options],
        capture_output=True,
        env=os.environ
        | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("gr\u00f6\u00dfe" if name in ("dump", "tail") else "b\u00fccher") in done.stdout.decode()


def test_repairs_that_exclude_each_other_are_told_in_one_line(log, capsys):
    assert main(["repair", str(log.path), "--head", "--drop-oldest"]) == 2
    assert "--drop-oldest" in one_line(capsys)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_printed_at_the_end_is_told_by_the_exit_code(unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    for output, code in ((broken_pipe(), 141), (os.open("/dev/full", os.O_WRONLY), 1)):
        done = subprocess.run(
            [sys.executable, "-m", "transports.cli", "version"],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
        os.close(output)
        assert done.returncode == code
        assert "Exception ignored" not in done.stderr

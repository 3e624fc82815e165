"""The command, in this process where that is possible, and as a process where signals and pipes matter."""

import io
import json
import os
import re
import subprocess
import sys

import pytest

from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from transports.cli import main

LINES = '{"entity_type":"order","key":"1","body":{"a":1}}\n\n{"entity_type":"order","key":"2","operation":"REMOVE"}\n'


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


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("append DIR", "or give the URL of its server in place of the directory"),
        ("slot create DIR stock", "or give the URL of its server in place of the directory"),
        ("slot seek DIR stock 1", "or give the URL of its server in place of the directory"),
        ("group create DIR pickers", "or give the URL of its server in place of the directory"),
        ("group dead discard DIR pickers", "or give the URL of its server in place of the directory"),
        ("serve DIR --own", "or leave out --own to serve what it writes"),
        ("state rebuild DIR", "stop it first"),
    ],
)
def test_a_command_that_writes_beside_the_owner_names_what_its_user_can_do(
    log, capsys, feed_stdin, command, remedy
):
    """F86: ``read_only=True``, which the error recommends to programs, is no option of a command."""
    feed_stdin(LINES)
    assert main([str(log.path) if word == "DIR" else word for word in command.split()]) == 1
    said = one_line(capsys).rstrip()
    assert said.endswith(remedy)
    assert "; stop it first" in said
    assert "read_only" not in said


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
def test_a_broken_pipe_is_quiet(start, log, fill, serving, remote):
    fill(1, changes=10)
    with start("tail", serving().url if remote else log.path, "--since", "earliest") as process:
        process.stdout.readline()
        process.stdout.close()
        for _ in range(50):
            fill(1, changes=20, body="z" * 1000)
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("append {log}", "<&-"),
        ("tail {log} --since earliest --limit 1", ">&-"),
        ("tail {log} --since earliest --limit 1", "2>&-"),
    ],
)
def test_a_command_without_its_standard_streams_ends_without_a_traceback(log, fill, command, closed):
    """No file of the log gets the descriptor of one."""
    fill(1)
    line = f"{sys.executable} -m transports.cli {command.format(log=log.path)} </dev/null {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("missing", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("command", ["append {log}", "tail {log} --since earliest --limit 1", "version"])
def test_a_stream_that_is_not_there_is_opened(log, fill, command, missing, monkeypatch, capsys, feed_stdin):
    """Python has None for a standard stream that its caller has closed."""
    fill(1)
    feed_stdin("")
    monkeypatch.setattr(sys, missing, None)
    assert main(command.format(log=log.path).split()) in (0, 1)
    getattr(sys, missing).close()
    assert "internal error" not in capsys.readouterr().err


LOCALE = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def letters(tmp_path):
    """A log whose directory, types, keys and bodies have letters that are not of ASCII."""
    path = tmp_path / "b\u00fccher"
    with ChangeLog.open(path, sync="os") as log:
        log.commit([upsert("gr\u00f6\u00dfe", "\u043a\u043b\u044e\u0447", {"a": "\u65e5\u672c"})])
    return path


def test_any_letters_are_printed_in_any_locale(letters):
    command = [
        sys.executable,
        "-m",
        "transports.cli",
        "tail",
        str(letters),
        "--since",
        "earliest",
        "--limit",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, env=os.environ | LOCALE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "gr\u00f6\u00dfe" in done.stdout.decode()


@pytest.mark.parametrize("command", ["verify", "dump", "stats", "tail --since earliest --limit 2"])
def test_any_letters_are_printed_whatever_the_stream_encodes(letters, command, monkeypatch):
    name, *options = command.split()
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert main([name, str(letters), *options]) == 0
    assert ("gr\u00f6\u00dfe" if name in ("dump", "tail") else "b\u00fccher") in printed.getvalue().decode()


def test_repairs_that_exclude_each_other_are_told_in_one_line(log, capsys):
    assert main(["repair", str(log.path), "--head", "--drop-oldest"]) == 2
    assert "--drop-oldest" in one_line(capsys)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_printed_at_the_end_is_told_by_the_exit_code(start, unbuffered):
    for output, code in ((broken_pipe(), 141), (os.open("/dev/full", os.O_WRONLY), 1)):
        with start("version", streams={1: output}, PYTHONUNBUFFERED=unbuffered) as process:
            os.close(output)
            _, said = process.communicate()
        assert process.returncode == code
        assert "Exception ignored" not in said


MISTYPED = {
    "tial": "; did you mean tail? (penstock --help",
    "slot creat DIR": "; did you mean create? (penstock slot --help",
    "group dead inspct DIR pickers": "did you mean inspect? (penstock group dead --help",
    "tail DIR --entity_type order": "--entity_type order; did you mean --entity-type? (penstock tail --help",
    "tail --entity_type=order DIR": "did you mean --entity-type?",
    "serve DIR --prt 1 --tokn-file x": "did you mean --port, --token-file?",
    "tail 127.0.0.1:9": "a directory, or the address of a server: write ws://127.0.0.1:9/ws",
    "append localhost:9/live/": "write ws://localhost:9/live/ws",
    "verify 127.0.0.1:9": "a directory: 'penstock tail' and 'penstock append' reach servers",
    "frobnicate": "invalid choice: 'frobnicate' (choose from ",
    "tail DIR --frobnicate": "unrecognized arguments: --frobnicate (penstock tail --help",
}


@pytest.mark.parametrize(("arguments", "told"), MISTYPED.items(), ids=MISTYPED)
def test_what_is_mistyped_names_what_is_meant(arguments, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.replace("DIR", str(tmp_path)).split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert told in captured.err


def test_a_directory_that_looks_like_an_address_stays_a_directory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ChangeLog.open(tmp_path / "orders:1") as log:
        log.commit([upsert("order", "1", {})])
    assert main(["tail", "orders:1", "--since", "earliest", "--limit", "1"]) == 0
    assert main(["verify", "orders:1"]) == 0

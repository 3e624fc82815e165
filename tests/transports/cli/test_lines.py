"""What commands write to standard error."""

import argparse
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from publishers import ChangeLog, upsert
from transports.cli import lines, main
from transports.cli.program import _parser

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop") as log:
        log.commit([upsert("order", "1", {})])
    return tmp_path / "shop"


def test_a_command_fails_in_one_line_of_json_if_it_is_to_write_json(tmp_path, capsys):
    assert main(["stats", str(tmp_path / "none"), "--log-format", "json"]) == 1
    told = json.loads(capsys.readouterr().err)
    assert (told["level"], told["logger"], told["code"]) == ("error", "penstock.command", 1)
    assert str(tmp_path) in told["message"]
    assert main(["stats", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("penstock: ")


def test_a_level_decides_what_is_written(capsys):
    lines.begin(argparse.Namespace(log_level="info", log_format=None))
    try:
        logging.getLogger("penstock.losses").info("ignored")
        logging.getLogger("flow").debug("%s", "detail")
        logging.getLogger("penstock.access").info("GET")
    finally:
        lines.end()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" INFO penstock.losses ignored")


@pytest.mark.parametrize("arguments", [["--log-format", "xml"], ["--log-level", "loud"]])
def test_what_is_none_is_refused(log, capsys, arguments):
    assert main(["stats", str(log), *arguments]) == 2
    assert "invalid choice" in capsys.readouterr().err


def test_nothing_stays_behind_a_command(log, capsys):
    before = [logging.getLogger(name).level for name in ("penstock", "flow", "penstock.access")]
    assert main(["stats", str(log), "--log-level", "debug", "--log-format", "text"]) == 0
    assert [logging.getLogger(name).level for name in ("penstock", "flow", "penstock.access")] == before
    assert not [one for one in logging.getLogger().handlers if "cli.lines" in type(one).__module__]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_server_writes_an_access_log_if_it_is_asked_to(start, log, kind):
    with start("serve", log, "--port", "0", "--access-log", "--log-format", kind) as process:
        url = process.stdout.readline().split()[-1]
        assert main(["stats", url.removesuffix("health")]) == 0
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    if kind == "json":
        told = json.loads(line)
        assert (told["logger"], told["path"], told["status"]) == ("penstock.access", "/statistics", 200)
    else:
        assert " INFO penstock.access GET /statistics 200 in " in line


def json_lines(text):
    """The lines of standard error, each of which has to be an object."""
    told = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= one.keys() for one in told)
    return told


SERVER = """
import asyncio, gc, logging, os, sys, threading, warnings
from transports.cli import main
import transports.cli.serve as serve

class Dying:
    def __del__(self):
        raise ValueError("while it is collected")

def fail():
    raise RuntimeError("in a thread\\nof two lines")

async def forgotten():
    async def task():
        raise KeyError("of a task")
    asyncio.create_task(task())
    await asyncio.sleep(0)

def everything(finished):
    warnings.warn("of Python")
    logging.getLogger("uvicorn.error").error("of uvicorn")
    logging.getLogger("other.package").warning("of another package")
    logging.getLogger("penstock.housekeeping").warning("of ours\\nin two lines")
    try:
        fail()
    except RuntimeError:
        logging.getLogger("penstock.transports").exception("with a traceback")
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Dying()
    asyncio.run(forgotten())
    gc.collect()
    print("printed\\nin two lines", file=sys.stderr)
    sys.stderr.write("without an end")
    wait(finished)

wait, serve.wait_for = serve.wait_for, everything
sys.exit(main(sys.argv[1:]))
"""


def test_all_that_a_server_writes_to_standard_error_is_json(log, tmp_path):
    """From the start to the end, whoever writes it."""
    (tokens := tmp_path / "tokens.txt").write_text("ann:secret-of-ann\n")
    options = [log, "--port", "0", "--access-log", "--token-file", tokens, "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, "serve", *map(str, options)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        url = process.stdout.readline().split()[-1]
        told, waited = [], {"GET /statistics", "stays in force"}
        assert main(["stats", url.removesuffix("health")]) == 1  # it asks for a token
        tokens.write_text("no token\n")
        process.send_signal(signal.SIGHUP)
        while waited:
            told.append(process.stderr.readline())
            waited = {one for one in waited if one not in told[-1]}
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    written = json_lines("".join(told) + rest)
    messages = [one["message"] for one in written]
    for said in (
        "UserWarning: of Python", "of uvicorn", "of another package", "of ours", "printed", "in two lines", "without an end",
        "ended by an exception", "Dying.__del__", "Task exception was never retrieved", "GET /statistics 401", "stays in force",
    ):  # fmt: skip
        assert [one for one in messages if said in one], (said, messages)
    raised = [one["exception"] for one in written if "exception" in one]
    for error in ("RuntimeError: in a thread", "ValueError: while it is collected", "KeyError: 'of a task'"):
        assert [one for one in raised if error in one], (error, raised)


@pytest.mark.parametrize("spelled", [("--log-format", "json"), ("--log-format=json",), ("--log-f", "json")])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("serve", "{log}", "--prot", "1"), 2),
        (("serve", "{log}", "--port", "many"), 2),
        (("serve", "{log}", "--groups", "a,b"), 2),
        (("tail", "{log}", "--since", "never"), 2),
        (("log", "list", "{none}"), 1),
        (("schema", "{log}"), 0),
        (("sinks", "run", "{none}"), 2),
        (("stats", "http://127.0.0.1:9/", "--token-command", "sh -c 'echo no >&2; exit 1'"), 2),
    ],
)
def test_each_error_of_a_command_is_json(log, capfd, arguments, code, spelled):
    """Also what is wrong with the arguments, and what a program of the user prints."""
    given = [one.format(log=log, none=log / "none") for one in arguments]
    assert main([*given, *spelled]) == code
    assert json_lines(capfd.readouterr().err)


def test_every_command_takes_the_options_of_the_lines():
    """Also one below a command, such as ``penstock sinks run``."""
    _whole, *commands = _parser({}).commands()
    for command in commands:
        options = {option for action in command.actions for option in action.option_strings}
        assert {"--log-format", "--log-level"} <= options, command.prog


def test_an_internal_error_is_json_with_its_traceback(log, capsys, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    monkeypatch.setattr("transports.cli.stats._log", lambda path: 1 / 0)
    assert main(["stats", str(log), "--log-format", "json"]) == 1
    (told,) = json_lines(capsys.readouterr().err)
    assert "ZeroDivisionError" in told["exception"]

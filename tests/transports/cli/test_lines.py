"""What commands write to standard error."""

import argparse
import json
import logging
import signal

import pytest

from publishers import ChangeLog, upsert
from tests.transports.cli.test_program import start
from transports.cli import lines, main


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
    assert not logging.getLogger("penstock").handlers


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_server_writes_an_access_log_if_it_is_asked_to(log, kind):
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

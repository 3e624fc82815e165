"""``penstock top``."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from publishers import ChangeLog, ChangeStore, upsert
from tests.harness.ports import free_port
from tests.publishers.support import Probe, wait_until
from tests.transports.principals import knowing
from transports import Grant, LogAction, serve
from transports.access.access import SERVER
from transports.cli import main
from transports.cli.top_screen import _width, digest, fitted, screen

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop") as log:
        log.commit([upsert("order", "1", {})])
        yield log


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, begin, *arguments, columns=100, rows=20, **environment):
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        named = {"TERM": "xterm", "COLUMNS": "", "LINES": "", **environment}
        self.process = begin(*arguments, streams={0: slave, 1: slave}, **named)
        os.close(slave)
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted, timeout=60.0):
        """Reads until something is on the screen, and returns the frame that has it."""
        deadline = time.monotonic() + timeout
        while True:
            frames = self.text.split("\x1b[H")
            found = [one for one in frames[1:] if "\x1b[J" in one and wanted(one)]
            if found:
                self.text = ""
                return re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", found[-1])
            assert time.monotonic() < deadline, self.text
            self.read(0.2)

    def read(self, wait):
        with contextlib.suppress(OSError):  # the other end is closed
            if select.select([self.master], [], [], wait)[0]:
                self.text += os.read(self.master, 65_536).decode()

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(60)
        while select.select([self.master], [], [], 0)[0]:
            before = len(self.text)
            self.read(0)
            if len(self.text) == before:
                break
        return code


@pytest.fixture
def terminal(start):
    with contextlib.ExitStack() as stack:

        def run(*arguments, **named):
            opened = Terminal(
                lambda *given, **more: stack.enter_context(start(*given, **more)), *arguments, **named
            )
            stack.callback(os.close, opened.master)
            return opened

        yield run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_shows_what_happens_in_place_and_gives_the_screen_back(log, terminal, number, code):
    with serve(log) as server:
        shown = terminal("top", server.home_url, "--interval", "0.1")
        first = shown.until(lambda frame: "shop" in frame)
        assert "ok" in first.splitlines()[0]
        log.commit([upsert("order", "2", {})])
        shown.until(lambda frame: re.search(r"shop +ok +2 +[\d.]", frame))
        shown.read(0.2)
        assert shown.end(number) == code
        assert shown.text.endswith("\x1b[?25h" + LEAVE)
        assert shown.process.stderr.read() == ""


def test_it_fits_the_terminal_also_when_that_changes(log, terminal):
    probes = [Probe() for _ in range(30)]
    for probe in probes:
        log.changes().subscribe(probe, executor=flow.INLINE)
    with serve(log) as server:
        shown = terminal("top", server.home_url, "--interval", "3600", columns=60, rows=8)
        frame = shown.until(lambda frame: "shop" in frame).rstrip("\r\n").split("\r\n")
        assert len(frame) == 8
        assert max(map(len, frame)) <= 60
        assert frame[-1].endswith("more lines")
        shown.resize(120, 50)
        shown.process.send_signal(signal.SIGWINCH)
        frame = shown.until(lambda frame: "SLOWEST" in frame).rstrip("\r\n").split("\r\n")
        assert 30 < len(frame) <= 50
        assert 60 < max(map(len, frame)) <= 120


def test_a_server_that_goes_is_waited_for_and_found_again(log, terminal, tmp_path):
    server = serve(log, port=free_port())
    shown = terminal("top", server.home_url, "--interval", "0.1")
    shown.until(lambda frame: "shop" in frame)
    server.stop()
    frame = shown.until(lambda frame: "no answer for" in frame)
    assert "shop" in frame  # what was known before
    with serve(log, port=server.port):
        assert " ok" in shown.until(lambda frame: "no answer" not in frame).splitlines()[0]
        assert shown.end(signal.SIGINT) == 130


def test_where_there_is_no_terminal_one_follows_below_the_other(start, log):
    with start("top", log.path, "--interval", "0.1") as process:
        titles = 0
        while titles < 3:
            line = process.stdout.readline()
            assert "\x1b" not in line
            titles += line.startswith("penstock top")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""


def test_a_terminal_that_can_do_nothing_is_treated_as_none(log, terminal):
    shown = terminal("top", log.path, "--interval", "0.1", TERM="dumb")
    wait_until(lambda: shown.read(0.1) or shown.text.count("penstock top") > 1)
    assert "\x1b" not in shown.text


def test_whoever_reads_it_may_leave(start, log):
    with start("top", log.path, "--interval", "0.1", "--json") as process:
        assert json.loads(process.stdout.readline())["logs"]["shop"]["version"] == 1
        process.stdout.close()
        assert process.wait(60) == 141


def test_once_gives_rates_and_ends(log, capsys):
    assert main(["top", str(log.path), "--once", "--json", "--interval", "0.1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["source"] == str(log.path)
    assert told["logs"]["shop"]["health"] == "ok"
    assert told["logs"]["shop"]["commitsPerSecond"] == 0.0
    assert main(["top", str(log.path), "--once", "--interval", "0.1"]) == 0
    assert "a directory: it serves no clients" in capsys.readouterr().out


def test_a_store_is_shown_log_by_log(tmp_path, capsys):
    with ChangeStore.open(tmp_path / "store", sync="os", fill_step=65_536) as store:
        for name in ("a", "b"):
            store.create(name)
        assert main(["top", str(tmp_path / "store"), "--once", "--json", "--interval", "0.1"]) == 0
    assert {"a", "b"} <= json.loads(capsys.readouterr().out)["logs"].keys()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["http://127.0.0.1:1/"], 1, "does not answer with statistics"),
        (["--token", "x"], 2, "left out for a directory"),
        (["--interval", "0"], 2, "not a number of seconds from 0.1 to 3,600"),
        (["--interval", "nan"], 2, "not a number of seconds"),
        (["--interval", "x"], 2, "not a number of seconds"),
    ],
)
def test_what_is_wrong_at_first_is_told_at_once(log, capsys, arguments, code, says):
    source = [] if arguments[0].startswith("http") else [str(log.path)]
    assert main(["top", *source, *arguments]) == code
    assert says in capsys.readouterr().err


def test_a_server_that_goes_ends_what_was_to_be_once(log, capsys, monkeypatch):
    looks = []

    def failing(*_):
        looks.append(1)
        if len(looks) > 1:
            raise ConnectionError("gone")
        return {"logs": {}, "status": "ok", "at": 0.0}

    monkeypatch.setattr("transports.cli.top._asked", failing)
    assert main(["top", "http://127.0.0.1:1/", "--once", "--interval", "0.1"]) == 1
    assert "gone" in capsys.readouterr().err


def test_who_may_not_operate_the_server_is_told_of_the_logs(log, capsys):
    def authorise(_principal, name, _action):
        return Grant({LogAction.READ} if name == SERVER else {LogAction.READ, LogAction.OPERATE})

    with serve(log, authenticate=knowing("t"), authorise=authorise) as server:
        assert main(["top", server.home_url, "--once", "--interval", "0.1", "--token", "t"]) == 0
    said = capsys.readouterr().out
    assert "this caller may not see the figures of the server itself" in said
    assert re.search(r"^shop +ok +1 ", said, re.MULTILINE)


def test_an_unhealthy_server_says_of_which_log(tmp_path, capsys):
    gone, sound = ChangeLog.open(tmp_path / "gone"), ChangeLog.open(tmp_path / "sound")
    with sound, serve({"gone": gone, "sound": sound}) as server:
        gone.close()
        assert main(["top", server.home_url, "--once", "--json", "--interval", "0.1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "degraded"
    assert (told["logs"]["gone"]["health"], told["logs"]["sound"]["health"]) == ("closed", "ok")


def moment(at, watermark, buckets=None):
    log = {
        "watermark": watermark,
        "published": {"changes": 2 * watermark},
        "delivered": {"changes": watermark},
        "bytesRead": 0,
        "subscriptionCount": 0,
        "lagging": 0,
        "queueBytes": 5,
        "bounds": {"queueBytes": 10},
        "publishers": [],
    }
    if buckets is not None:
        log["sendLatency"] = {"buckets": buckets}
    return {"at": at, "logs": {"a": log}}


def test_rates_are_those_between_two_looks_and_none_over_a_restart():
    before, now = (
        moment(10.0, 100, {"0.1": 1, "1.0": 1, "+Inf": 1}),
        moment(12.0, 130, {"0.1": 1, "1.0": 101, "+Inf": 101}),
    )
    told = digest(before, now)["logs"]["a"]
    assert (told["commitsPerSecond"], told["changesPerSecond"], told["deliveredPerSecond"]) == (
        15.0,
        30.0,
        15.0,
    )
    assert (told["latency99"], told["queueFill"]) == (1.0, 0.5)
    assert digest(None, now)["logs"]["a"]["commitsPerSecond"] is None
    again = digest(now, before | {"at": 14.0})["logs"]["a"]
    assert (again["commitsPerSecond"], again["latency99"]) == (None, None)
    slow = digest(before, moment(12.0, 130, {"0.1": 1, "1.0": 1, "+Inf": 9}))["logs"]["a"]
    assert slow["latency99"] is None  # above every bound
    assert digest(now, now)["logs"]["a"]["latency99"] is None


@given(st.text(max_size=40), st.integers(0, 30))
def test_a_line_is_never_wider_than_it_may_be(line, columns):
    assert _width(fitted(line, columns)) <= columns


def test_names_from_elsewhere_do_not_speak_to_the_terminal():
    told = digest(None, {"at": 0.0, "logs": {"a\x1b[2J\n": {"failure": "No\x07"}}, "status": "ok", "connections": 0,
                         "unsentBytes": 0, "mostUnsentBytes": 0, "ended": {"F\x1b": 1}})  # fmt: skip
    assert not any("\x1b" in line or "\n" in line or "\x07" in line for line in screen("t", told, 200, None))
    assert len(screen("t", told, 200, 2)) == 2
    assert screen("t", told, 200, 1) == ["... 5 more lines"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, " 0 "),
        (0.25, "250 ms"),
        (42.0, "42 s"),
        (90.0, "1.5 min"),
        (7_200.0, "2 h"),
        (864_000.0, "10.0 d"),
    ],
)
def test_times_have_units_that_people_read(seconds, shown):
    told = digest(None, moment(0.0, 1))
    told["logs"]["a"]["lagSeconds"] = seconds
    assert shown in screen("t", told | {"status": "ok"}, 200, None)[4] + " "


@pytest.mark.parametrize(("nbytes", "shown"), [(5, "5 B"), (2048, "2.0 KiB"), (3 << 50, "3,072.0 TiB")])
def test_bytes_have_units_that_people_read(nbytes, shown):
    told = digest(None, {"at": 0.0, "logs": {}, "status": "ok", "connections": 1, "unsentBytes": nbytes})
    assert f"{shown} unsent, - of one" in screen("t", told, 200, None)[1]

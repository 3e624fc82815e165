"""``penstock sinks``: sinks of a file, run, asked and told what to do."""

import contextlib
import json
import signal
import threading
import urllib.request

import pytest

from publishers import ChangeLog, ChangeStore, upsert
from tests.publishers.support import wait_until
from tests.transports.cli.test_program import one_line
from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.targets import Target
from transports.cli import main
from transports.cli.sinks import run_beside
from transports.sinks import LogSinks, SinkError, SinkOptions, SinkRunner, SinkState
from transports.sinks.config import read_sinks
from transports.sinks.control import ControlSocket, asked

FILE = """
log = "orders"

[[sinks]]
name = "archive"
kind = "file"
directory = "out"
entity_types = ["order"]
start = "earliest"
linger = 0.0

[[sinks]]
name = "hook"
kind = "webhook"
url = "http://127.0.0.1:9/hook?key=s3cr3t"
secrets = ["env:HOOK_SECRET"]
"""


@pytest.fixture
def declared(tmp_path):
    """A file that declares two sinks of a log with three versions."""
    with ChangeLog.open(tmp_path / "orders", sync="os", fill_step=0) as log:
        for key in "abc":
            log.commit([upsert("order", key, {})])
    path = tmp_path / "penstock.toml"
    path.write_text(FILE)
    return path


def run(capsys, *arguments, code=0):
    """What was printed as JSON."""
    assert main(["sinks", *map(str, arguments), "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_what_a_file_declares_is_listed_without_secrets(declared, capsys):
    """F109: sinks declared by configuration file."""
    told = run(capsys, "list", declared)["sinks"]
    assert [(one["name"], one["kind"]) for one in told] == [("archive", "file"), ("hook", "webhook")]
    assert told[0]["target"] == str(declared.parent / "out")
    assert told[1]["target"] == "http://127.0.0.1:9/hook"
    assert main(["sinks", "list", str(declared)]) == 0
    assert "s3cr3t" not in capsys.readouterr().out


def test_targets_are_tried_out_and_what_they_say_is_told(declared, capsys, monkeypatch):
    """F109."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    archive, hook = run(capsys, "test", declared, code=1)["sinks"]
    assert (archive["good"], hook["good"]) == (True, False)
    assert "not public" in hook["error"]
    assert main(["sinks", "test", str(declared)]) == 1
    assert capsys.readouterr().out.startswith(
        "archive: good, the target answers\nhook: 127.0.0.1 is not public"
    )
    assert list((declared.parent / "out").iterdir()) == []
    with Receiver() as receiver:
        receiver.plan = [(200, {}, b"welcome")]
        declared.write_text(
            FILE.replace("http://127.0.0.1:9/hook?key=s3cr3t", receiver.url)
            + 'allow = ["127.0.0.0/8", "::1/128"]\n'
        )
        assert run(capsys, "test", declared)["sinks"][1]["said"] == f"{receiver.url} answered 200: welcome"
        assert receiver.received[0].headers["webhook-signature"].startswith("v1,")


def test_sinks_that_do_not_run_are_told_from_their_slots_and_moved_there(declared, capsys):
    assert [one["state"] for one in run(capsys, "status", declared)["sinks"]] == ["not running"] * 2
    with ChangeLog.open(declared.parent / "orders") as log:
        log.slots.create("archive", since=3)
    assert run(capsys, "status", declared)["sinks"][0]["position"] == "3:0"
    assert run(capsys, "pause", declared, "archive")["state"] == "not running (paused)"
    assert run(capsys, "resume", declared, "archive")["state"] == "not running"
    assert run(capsys, "off", declared, "archive")["state"] == "not running (off)"
    assert run(capsys, "on", declared, "archive", "--place", "3")["position"] == "3:0"
    assert main(["sinks", "again", str(declared), "archive"]) == 1
    assert "does not run" in one_line(capsys)
    assert run(capsys, "seek", declared, "archive", "2")["position"] == "2:0"
    assert main(["sinks", "status", str(declared)]) == 0
    assert capsys.readouterr().out == "archive: not running at 2:0\nhook: not running, no place yet\n"
    with ChangeLog.open(declared.parent / "orders") as log:
        sink = SinkRunner(log, "archive", Target(), SinkOptions(linger=0.0))
        sink.step()
        assert sink.statistics().position == (2, 0)
        sink.close()


def test_mistakes_are_told_in_one_line(declared, capsys):
    for arguments, expected in (
        (["pause", declared, "other"], "declares no sink 'other'; it declares archive, hook"),
        (["seek", declared, "hook", "nowhere"], "nowhere"),
        (["list", declared.parent / "none.toml"], "a file of sinks"),
    ):
        assert main(["sinks", *map(str, arguments)]) in (1, 2)
        assert expected in one_line(capsys)
    declared.write_text(FILE.replace('"orders"', '"nothing"'))
    assert main(["sinks", "run", str(declared)]) == 1
    assert "nothing" in one_line(capsys)
    assert not (declared.parent / "nothing").exists()


def test_sinks_that_run_are_asked_and_told_over_a_socket(tmp_path, capsys):
    path = tmp_path / "penstock.toml"
    path.write_text(FILE)
    target = Target()
    with ChangeLog.open(tmp_path / "orders", sync="os", fill_step=0, state=True) as log:
        log.commit([upsert("order", "a", {})])
        options = SinkOptions(since="earliest", linger=0.0)
        (log.path / "sinks.sock").touch()  # an owner has died
        with LogSinks(log) as sinks, ControlSocket(log.path, sinks):
            runner = sinks.add("archive", target, options)
            wait_until(lambda: target.keys == ["a"], runner.statistics)
            assert run(capsys, "status", path)["sinks"][0]["state"] == "STREAMING"
            assert run(capsys, "pause", path, "archive")["state"] == "PAUSED"
            assert main(["sinks", "status", str(path)]) == 0
            assert "PAUSED at 1:0: paused by an operator" in capsys.readouterr().out.replace("2:0", "1:0")
            assert run(capsys, "seek", path, "archive", "earliest")["position"] == "1:0"
            run(capsys, "resume", path, "archive")
            wait_until(lambda: target.keys == ["a", "a"], runner.statistics)
            assert run(capsys, "off", path, "archive")["state"] == "OFF"
            log.commit([upsert("order", "b", {})])
            assert run(capsys, "on", path, "archive")["gap"]["first"].endswith(":2:0")
            log.commit([upsert("order", "c", {})])
            wait_until(lambda: target.keys == ["a", "a", "c"], runner.statistics)
            rows = ["--entity-type", "order", "--after", "a", "--until", "b"]
            run(capsys, "again", path, "archive", *rows)
            wait_until(lambda: target.keys == ["a", "a", "c", "b"], runner.statistics)
            assert main(["sinks", "pause", str(path), "hook"]) == 1
            assert "there is no sink 'hook' in the process; it has archive" in one_line(capsys)
            assert main(["sinks", "seek", str(path), "archive", "99"]) == 1
            assert "beyond" in one_line(capsys)
        assert runner.state is SinkState.STOPPED
        assert asked(log.path, {"do": "status"}) is None
        assert not (log.path / "sinks.sock").exists()


def test_the_command_runs_until_it_is_ended_and_stores_its_places(start, declared, capsys):
    """F101, F109: a process of its own."""
    declared.write_text(FILE.partition('[[sinks]]\nname = "hook"')[0])
    with start("sinks", "run", declared) as process:
        assert process.stderr.readline() == "running archive of orders\n"

        def arrived():
            found = asked(declared.parent / "orders", {"do": "status"})
            return found is not None and found[0]["confirmed"] == "4:0"

        wait_until(arrived)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    (path,) = (declared.parent / "out").glob("*.jsonl.tmp")
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == list("abc")
    assert run(capsys, "status", declared)["sinks"][0]["position"] == "4:0"
    assert main(["verify", str(declared.parent / "orders")]) == 0


def test_rows_only_are_carried_to_the_end_and_the_command_ends_with_them(declared, capsys):
    """F88, F109: also when it is run once more, which repeats nothing."""
    declared.write_text(FILE.partition('[[sinks]]\nname = "hook"')[0] + 'snapshot = "initial_only"\n')
    for _ in range(2):
        assert main(["sinks", "run", str(declared)]) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.splitlines()[0] == "running archive of orders"
        assert said.err.endswith("all rows are sent\n")
        (path,) = (declared.parent / "out").glob("changes-*")
        assert path.suffix == ".jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(one["operation"], one["key"]) for one in rows] == [("READ", key) for key in "abc"]
        assert run(capsys, "status", declared)["sinks"] == [
            {"name": "archive", "state": "not running (completed)", "position": "4:0", "reason": None}
        ]


LED = """
log = "orders"
lease = { kind = "file", path = "lease", seconds = 100.0, every = 0.1, margin = 1.0 }

[[sinks]]
name = "archive"
kind = "file"
directory = "out"
start = "earliest"
"""


@pytest.mark.parametrize("how", ["run", "serve"])
def test_a_sink_that_fails_ends_its_process_if_that_is_wanted(start, declared, how, monkeypatch):
    """F124: with 1, so that whatever watches over the process starts it again, or tells people."""
    declared.write_text(
        'log = "orders"\n[[sinks]]\nname = "db"\nkind = "sql"\nurl = "sqlite:///none.db"\n'
        'start = "earliest"\non_failure = "stop"\n'
    )
    command = ["sinks", "run", declared]
    if how == "serve":
        command = ["serve", declared.parent / "orders", "--own", "--port", "0", "--sinks", declared]
    monkeypatch.chdir(declared.parent)
    with start(*command) as process:
        _, said = process.communicate()
    assert process.returncode == 1
    assert "sink 'db' has failed, and on_failure = 'stop' ends the process" in said
    assert "there is no table penstock_places" in said
    assert "Traceback" not in said


def test_a_process_that_stands_by_goes_on_for_one_that_was_killed(start, declared):
    """F121, F122: and the file has each change once."""
    declared.write_text(LED)
    said = [[], []]

    def note(process, lines):
        lines.extend(iter(process.stderr.readline, ""))

    with contextlib.ExitStack() as stack:

        def begun(lines):
            process = stack.enter_context(start("sinks", "run", declared))
            reader = threading.Thread(target=note, args=(process, lines))
            reader.start()
            stack.callback(reader.join)
            stack.callback(process.kill)
            return process

        first = begun(said[0])
        wait_until(lambda: any("running archive of orders, epoch 1" in line for line in said[0]), said)
        second = begun(said[1])
        wait_until(lambda: any("waits for the lease" in line for line in said[1]), said)
        first.kill()
        wait_until(lambda: any("running archive of orders, epoch 2" in line for line in said[1]), said)
        wait_until(lambda: asked(declared.parent / "orders", {"do": "status"})[0]["position"] == "4:0")
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    (path,) = (declared.parent / "out").glob("*.jsonl.tmp")
    keys = [json.loads(line).get("key") for line in path.read_text().splitlines()]
    assert keys == [None, "a", None, "b", None, "c"]


def test_a_lease_of_which_the_log_is_taken_waits_for_it(start, declared, capsys):
    """F121: a server may have it open; the command waits, says so once, and ends when it is told to."""
    declared.write_text(LED)
    with ChangeLog.open(declared.parent / "orders"), start("sinks", "run", declared) as process:
        while "holds the lease and waits for the log" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_sinks_run_beside_a_server_that_owns_their_log(start, declared, capsys):
    """F109, F119, F137: told of by the server, and asked over the socket."""
    declared.write_text(FILE.partition('[[sinks]]\nname = "hook"')[0])
    log = declared.parent / "orders"
    with start("serve", log, "--own", "--port", "0", "--sinks", declared) as process:
        url = process.stdout.readline().split()[-1].removesuffix("/health")

        def metrics():
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{url}/metrics", timeout=60) as answer:
                return answer.read().decode()

        wait_until(lambda: 'penstock_sink_changes_total{log="orders",sink="archive"} 3.0' in metrics())
        assert run(capsys, "pause", declared, "archive")["state"] == "PAUSED"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--sinks",), "given with --own"),
        (("--own", "--sinks"), "a file whose log is"),
        ((), "the logs of the store"),
    ],
)
def test_sinks_beside_a_server_are_of_its_log(declared, capsys, arguments, why):
    served = declared.parent / "orders"
    if not arguments:
        served = declared.parent / "store"
        with ChangeStore.open(served) as store:
            store.create("a")
        declared.write_text(FILE.replace('"orders"', '"store"'))
        arguments = ("--own", "--sinks")
    elif len(arguments) == 2:
        declared.write_text(FILE.replace('"orders"', '"elsewhere"'))
    assert main(["serve", str(served), "--port", "0", *arguments, str(declared)]) in (1, 2)
    assert why in one_line(capsys)


def test_sinks_run_of_one_log_of_a_store_that_is_served(declared):
    """F109."""
    with ChangeStore.open(declared.parent / "store", sync="os", fill_step=0) as store:
        store.create("a").commit([upsert("order", "a", {})])
        declared.write_text(
            'log_name = "a"\n' + FILE.replace('"orders"', '"store"').partition('[[sinks]]\nname = "hook"')[0]
        )
        with run_beside(str(declared), str(declared.parent / "store"), store) as (sinks, endpoint):
            wait_until(lambda: sinks["archive"].counters.changes == 1, sinks.told)
            with pytest.raises(SinkError, match=f"declared in {declared}: remove it there"):
                endpoint.args[1].check_kept("archive")


def test_a_sink_that_was_taken_out_of_the_file_is_named_with_its_slot(declared, caplog):
    """F109: at each start, until its slot is dropped or it is declared again."""

    def started():
        caplog.clear()
        with (
            ChangeLog.open(declared.parent / "orders", sync="os", fill_step=0) as log,
            run_beside(str(declared), str(log.path), log),
        ):
            wait_until(lambda: {*read_sinks(declared).sinks} <= {*log.slots})
        return [one.getMessage() for one in caplog.records if "any more" in one.getMessage()]

    assert started() == []
    whole = declared.read_text()
    declared.write_text(whole.partition('[[sinks]]\nname = "hook"')[0])
    for _ in range(2):
        (line,) = started()
        assert line.startswith(f"sink hook is not declared in {declared} any more")
        assert "its slot keeps history from 4:0 on" in line
        assert line.endswith(f"'penstock slot drop {declared.parent / 'orders'} hook'")
    declared.write_text(whole)
    assert started() == []
    declared.write_text(whole.partition('[[sinks]]\nname = "hook"')[0])
    assert main(["slot", "drop", str(declared.parent / "orders"), "hook"]) == 0
    assert started() == []

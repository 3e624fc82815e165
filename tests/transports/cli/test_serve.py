"""``penstock serve``: beside a writer, and as the owner."""

import asyncio
import json
import re
import signal

import pytest

from publishers import ChangeStore, upsert
from tests.transports.cli.test_program import LINES, one_line
from transports import connect
from transports.cli import main


def test_a_port_in_use_is_told_in_one_line(log, serving, capsys):
    assert main(["serve", str(log.path), "--port", str(serving().port)]) == 1
    assert "in use" in one_line(capsys)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_ends_cleanly_on_a_signal(start, log, fill, sent, code):
    with start("serve", log.path, "--port", "0") as process:
        line = process.stdout.readline()
        assert re.match(r"serving shop read-only at ws://127\.0\.0\.1:\d+/ws, health at http://", line), line
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "")


def test_serve_follows_the_writer_and_tail_follows_serve(start, log, fill):
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


def test_serve_own_takes_the_log_for_itself(start, tmp_path, capsys, feed_stdin):
    with start("serve", tmp_path / "shop", "--own", "--port", "0") as server:
        assert "as its owner" in server.stdout.readline()
        feed_stdin(LINES)
        assert main(["append", str(tmp_path / "shop")]) == 1
        assert str(server.pid) in one_line(capsys)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_serve_state_gives_the_state_and_only_an_owner_has_one(start, log, fill, capsys):
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


def test_serve_own_keeps_the_state_of_each_log_of_a_store(start, tmp_path):
    """F146: the logs' alone; the system log keeps none."""
    with ChangeStore.open(tmp_path / "shop") as store:
        store.create("orders").commit([upsert("order", "1", {"n": 1})])
    with start("serve", tmp_path / "shop", "--own", "--state", "--port", "0") as server:
        url = next(word for word in server.stdout.readline().split() if word.startswith("ws:")).rstrip(",")

        async def rows():
            async with connect(url) as remote:
                feed = remote.changes(since="state", snapshot="initial_only")
                return [(change.operation.name, change.key) async for change in feed]

        assert asyncio.run(rows()) == [("READ", "1")]
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert (tmp_path / "shop" / "orders" / "state").exists()
    assert not (tmp_path / "shop" / ".system" / "state").exists()

"""F144: backup and restore on the command line, and what clients of a restored log are told."""

import asyncio
import json
import os
import sys
import urllib.request

import pytest

import flow
from penstock_cdc.errors import PositionForked
from publishers import ChangeLog, ChangeStore, upsert
from tests.publishers.support import QUICK, wait_until
from transports import connect
from transports.cli import main
from transports.errors import RemoteError
from transports.server.uvicorn import serve
from transports.sinks import FileSink, LogSinks, SinkOptions, SinkState


def run(capsys, *arguments):
    code = main([str(one) for one in arguments])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert "internal error" not in told.err
    return code, told.out, told.err


def commit(log, number):
    return log.commit([upsert("order", str(number), {"n": number})])


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "orders"
    with ChangeLog.open(path, **QUICK) as log:
        for number in range(5):
            commit(log, number)
    return path


def test_a_backup_and_a_restore_are_told_in_a_line(log, tmp_path, capsys):
    """F144."""
    code, out, err = run(capsys, "backup", log, tmp_path / "b")
    assert (code, err) == (0, "")
    size = (tmp_path / "b" / "wal-000000000001.log").stat().st_size
    done = f"0 segments linked, 1 copied ({size} bytes), 0 kept"
    assert out.startswith(f"{tmp_path / 'b'}: sound: versions 1 to 5; {done}; ")
    assert out.endswith(" s\n")
    with ChangeLog.open(log, **QUICK) as opened:
        commit(opened, 5)
    code, out, _ = run(capsys, "backup", log, tmp_path / "b", "--copy")
    assert (code, out.split("; ")[0]) == (0, f"{tmp_path / 'b'}: sound: versions 1 to 6, 5 before")
    code, out, _ = run(capsys, "restore", tmp_path / "b", log)
    assert (code, out) == (1, "")
    code, out, _ = run(capsys, "restore", tmp_path / "b", log, "--replace")
    assert code == 0
    assert out.splitlines()[0] == f"{log} held something, which is in {log}.replaced-1 now"
    assert run(capsys, "verify", log)[0] == 0


def test_a_log_whose_sinks_run_is_not_restored_and_its_sinks_stop_after_a_restore(log, tmp_path, capsys):
    """F144, F178: not in its place, nor beside; afterwards what was lost is told by every sink."""
    files = tmp_path / "files"

    def kept():
        return "".join(path.read_text() for path in sorted(files.glob("*.jsonl*")))

    def running(opened):
        sinks = LogSinks(opened)
        options = SinkOptions(since="earliest", linger=0.0, store_every=0.05)
        return sinks, sinks.add("files", FileSink(files, "f"), options)

    assert run(capsys, "backup", log, tmp_path / "b")[0] == 0
    with ChangeLog.open(log, **QUICK) as opened:
        sinks, runner = running(opened)
        with sinks:
            commit(opened, "lost")
            wait_until(lambda: '"lost"' in kept(), runner.statistics)
            for arguments in ([], ["--replace"]):
                code, out, err = run(capsys, "restore", tmp_path / "b", log, *arguments)
                assert (code, out) == (1, "")
                assert f"{log} is being written by process {os.getpid()}; stop it first" in err
            assert [path.name for path in tmp_path.glob("orders*")] == ["orders"]
            commit(opened, "behind")
            wait_until(lambda: '"behind"' in kept(), runner.statistics)
    assert run(capsys, "restore", tmp_path / "b", log, "--replace")[0] == 0
    with ChangeLog.open(log, **QUICK) as opened:
        sinks, runner = running(opened)
        with sinks:
            wait_until(lambda: runner.state is SinkState.PAUSED, runner.statistics)
            assert "is of another history than this log" in runner.statistics().reason
            commit(opened, "new")
            opened.slots.info("files")
            assert '"new"' not in kept()


def test_what_is_refused_is_one_line_that_says_what_to_do(log, tmp_path, capsys):
    """F144."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    code, out, err = run(capsys, "backup", log, tmp_path / "mine")
    assert (code, out) == (1, "")
    assert err == (
        f"penstock: {tmp_path / 'mine'}: it holds files that do not belong to a backup: notes.txt; use another directory, or empty "
        "this one if it is not needed\n"
    )
    assert run(capsys, "backup", tmp_path / "nowhere", tmp_path / "b")[0] == 1
    assert run(capsys, "backup", log, log / "in")[0] == 2
    assert run(capsys, "backup", "ws://127.0.0.1/ws", tmp_path / "b")[0] == 2
    with ChangeLog.open(log, **QUICK):
        code, _, err = run(capsys, "restore", log, log.with_name("new"))
        assert code == 0
        run(capsys, "backup", log, tmp_path / "b")
        code, _, err = run(capsys, "restore", tmp_path / "b", log, "--replace")
        assert (code, "is being written" in err) == (1, True)


def test_a_damaged_log_makes_a_damaged_backup_and_its_exit_code(log, tmp_path, capsys):
    """F144, F49: the codes of verify."""
    path = log / "wal-000000000001.log"
    with ChangeLog.open(log, **{**QUICK, "segment_bytes": 65_536}) as opened:
        opened.commit([upsert("order", "large", {"fill": "x" * 70_000})])
        commit(opened, 7)
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    code, out, _ = run(capsys, "backup", log, tmp_path / "b")
    assert code == 2
    assert "corrupt: crc in wal-000000000001.log" in out
    code, _, err = run(capsys, "restore", tmp_path / "b", tmp_path / "new")
    assert (code, "it is damaged" in err) == (1, True)
    assert not (tmp_path / "new").exists()


def test_a_store_is_told_log_by_log_and_as_a_document(tmp_path, capsys):
    """F144."""
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        commit(store.create("orders"), 1)
        code, out, _ = run(capsys, "backup", tmp_path / "shop", tmp_path / "b", "--json")
    told = json.loads(out)
    assert (code, told["verdict"], told["replaced"]) == (0, "SOUND", None)
    assert [(one["copied"], one["newest"], one["verdict"]) for one in told["logs"]] == [
        (1, 1, "SOUND"),
        (1, 1, "SOUND"),
    ]
    code, out, _ = run(capsys, "restore", tmp_path / "b", tmp_path / "back")
    assert code == 0
    assert f"{tmp_path / 'back'}: sound: 1 logs and the system log; " in out
    assert run(capsys, "verify", tmp_path / "back")[0] == 0


def test_a_terminal_gets_a_bar(log, tmp_path, capsys, monkeypatch):
    """F144: also where ``rich`` is missing."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["backup", str(log), str(tmp_path / "b")]) == 0
    assert "backup orders [" in capsys.readouterr().err


async def test_after_a_restore_each_kind_of_client_is_refused_by_name(log, tmp_path, capsys):
    """F144: in process, our client, GraphQL and the command; a place that the backup has is good for all of them."""
    run(capsys, "backup", log, tmp_path / "b")
    with ChangeLog.open(log, **QUICK) as opened:
        kept = str(opened.token(opened.head))
        for number in range(5):
            commit(opened, number)
        lost = str(opened.token(opened.head))
    run(capsys, "restore", tmp_path / "b", log, "--replace")
    with ChangeLog.open(log, **QUICK) as restored:
        with pytest.raises(PositionForked):
            restored.position_of(lost)
        for number in range(9):
            commit(restored, number)
        server = serve(restored, port=0)
        try:
            await _refused(server, lost)
            async with (
                connect(server.url) as remote,
                flow.aiter(remote.changes(since=kept, until=6)) as changes,
            ):
                assert [change.key async for change in changes] == [None, "0"]
            code, out, err = await asyncio.to_thread(
                run, capsys, "tail", server.url, "--since", lost, "--limit", "1"
            )
            assert (code, out) == (1, "")
            assert "not part of the history of this log" in err
        finally:
            server.stop()


async def _refused(server, lost):
    async with connect(server.url) as remote, flow.aiter(remote.changes(since=lost)) as changes:
        with pytest.raises(RemoteError) as caught:
            await anext(changes)
    assert caught.value.code == "CURSOR_FORKED"
    query = "query ($since: Cursor) { history(since: $since) { next } }"
    request = urllib.request.Request(
        server.url.replace("ws://", "http://").removesuffix("/ws") + "/graphql",
        json.dumps({"query": query, "variables": {"since": lost}}).encode(),
        {"Content-Type": "application/json"},
    )
    with await asyncio.to_thread(urllib.request.urlopen, request) as answer:
        (error,) = json.load(answer)["errors"]
    assert error["extensions"]["code"] == "CURSOR_FORKED"

"""F49: verify, dump, repair and stats on the command line."""

import contextlib
import json
import re
import sys
from random import Random
from uuid import UUID

import pytest

import flow
from publishers import ChangeLog, ChangeStore
from publishers.journal import Journal
from publishers.mutations.mutation import upsert
from publishers.wal import RealFileSystem
from publishers.wal.checks import verify
from tests.harness.scale import SCALE
from tests.publishers.support import Probe, wait_until
from tests.publishers.wal.checks.damage import copy_log, damage, flip, frames_of, make_log, snapshot
from transports.cli import main
from transports.server.uvicorn import serve

FIRST = "wal-000000000001.log"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "orders"
    with ChangeLog.open(path) as log:
        for number in range(5):
            log.commit([upsert("order", str(number), {"total": number})], meta={"by": "shop"})
    return path


@pytest.fixture
def log(made, tmp_path):
    return copy_log(made, tmp_path / "orders")


def run(capsys, *arguments):
    code = main([str(one) for one in arguments])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert "internal error" not in told.err
    return code, told.out, told.err


def broken(log):
    flip(log / FIRST, frames_of(log / FIRST)[4][0] + 85)
    return log


def test_verify_answers_with_its_verdict(log, tmp_path, capsys):
    """F49."""
    code, out, err = run(capsys, "verify", log)
    assert (code, err) == (0, "")
    assert (
        out == f"{log}: sound: versions 1 to 5; 1 segment, 7 frames, {(log / FIRST).stat().st_size} bytes\n"
    )
    broken(log)
    code, out, _ = run(capsys, "verify", log)
    assert code == 2
    assert (
        f"corrupt: crc in {FIRST} at byte {frames_of(log / FIRST)[4][0]}: the crc of the frame is wrong"
        in out
    )
    code, out, _ = run(capsys, "verify", log, "--json")
    assert code == 2
    told = json.loads(out)
    assert (told["verdict"], told["newest"], told["lost"]) == ("CORRUPT", 2, [3, 5])
    assert run(capsys, "verify", tmp_path / "nowhere")[0] == 3
    assert run(capsys, "verify", "ws://127.0.0.1/ws")[0] == 2


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("name", "spoil", "code"),
    [
        ("slots", None, 0),
        ("slots", "both", 2),
        ("groups/pickers", "both", 2),
        ("slots", "later", 3),
        ("groups/pickers", "directory", 3),
    ],
)
def test_verify_judges_the_journals_of_slots_and_groups(log, capsys, name, spoil, code, live):
    """F49: with its exit code, beside a writer too."""
    with ChangeLog.open(log) as opened:
        opened.slots.create("stock")
        opened.groups.create("pickers")
    with ChangeLog.open(log) if live else contextlib.nullcontext():
        for file in (log / name / "JOURNAL", log / name / "JOURNAL.copy"):
            if spoil == "both":
                flip(file, 140)
            elif spoil == "directory":
                file.unlink()
                file.mkdir()
            elif spoil == "later":
                file.unlink()
        if spoil == "later":
            report = verify(log)
            journal = Journal(RealFileSystem(), log / name, UUID(report.log_id))
            journal.append(b"", lambda: b'{"format":99,"slots":[]}')
        found, out, err = run(capsys, "verify", log)
    assert (found, err) == (code, "")
    lines = [line for line in out.splitlines() if f"journal in {name} at" in line]
    assert len(lines) == (code > 0), out


def test_verify_takes_a_store_log_by_log(tmp_path, capsys):
    """F49."""
    with ChangeStore.open(tmp_path / "shop") as store:
        store.create("orders").commit([upsert("order", "1", {})])
        store.create("items")
    code, out, _ = run(capsys, "verify", tmp_path / "shop", "--json")
    assert code == 0
    assert [json.loads(line)["path"].rsplit("/", 1)[1] for line in out.splitlines()] == [
        ".system",
        "items",
        "orders",
    ]
    flip(tmp_path / "shop" / ".system" / FIRST, frames_of(tmp_path / "shop" / ".system" / FIRST)[2][0] + 85)
    assert run(capsys, "verify", tmp_path / "shop")[0] == 2


def test_a_bar_is_drawn_on_a_terminal_only(log, capsys, monkeypatch):
    """F49."""
    for missing in ((), ("rich.console", "rich.progress")):
        for name in missing:
            monkeypatch.setitem(sys.modules, name, None)
        assert run(capsys, "verify", log)[2] == ""
        with monkeypatch.context() as terminal:
            terminal.setattr(sys.stderr, "isatty", lambda: True, raising=False)
            assert run(capsys, "verify", log)[2] != ""


def test_dump_prints_frames_up_to_the_damage_and_salvages_the_rest(log, capsys):
    """F49."""
    code, out, err = run(capsys, "dump", log)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    data = [line for line in lines if "changes" in line]
    assert [line["version"] for line in data] == [1, 2, 3, 4, 5]
    assert data[2]["changes"] == [
        {"area": "DATA", "operation": "UPSERT", "entityType": "order", "key": "2", "body": {"total": 2}}
    ]
    assert data[0]["annotations"]["meta"] == {"by": "shop"}
    broken(log)
    code, out, err = run(capsys, "dump", log, "--headers")
    assert code == 2
    assert "the crc of the frame is wrong" in err
    assert max(json.loads(line)["version"] for line in out.splitlines()) == 2
    code, out, _ = run(capsys, "dump", log, "--headers", "--salvage", "--from", "3")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["damage"] == "crc"
    assert [line["version"] for line in lines if "FIRST" in line.get("flags", ())] == [4, 5]
    assert run(capsys, "dump", log, "--from", "soon")[0] == 2


def test_repair_prints_a_plan_and_then_does_it(log, capsys):
    """F49."""
    assert run(capsys, "repair", log)[:2] == (0, run(capsys, "verify", log)[1] + "  there is nothing to do\n")
    before = snapshot(broken(log))
    code, out, _ = run(capsys, "repair", log)
    assert code == 1
    assert "versions 3 to 5 would be lost" in out
    assert snapshot(log) == before
    code, out, _ = run(capsys, "repair", log, "--write")
    assert code == 0
    assert "versions 3 to 5 are lost" in out
    assert f"kept: {FIRST}.broken" in out
    assert run(capsys, "verify", log)[0] == 0
    code, out, _ = run(capsys, "dump", log, "--salvage")
    salvaged = [json.loads(line) for line in out.splitlines()]
    assert [line["version"] for line in salvaged if line.get("salvaged") and "changes" in line] == [4, 5]
    assert json.loads(run(capsys, "repair", log, "--write", "--json")[1])["steps"] == []


def test_repair_names_the_choices_where_files_are_missing_or_of_two_histories(log, capsys):
    """F144, F49: what each of them loses is told before anything is done."""
    older = snapshot(log)
    other = copy_log(log, log.parent / "other")
    for path in (log, other):
        with ChangeLog.open(path) as opened:
            opened.commit([upsert("order", path.name, {})])
    (log / "HEAD").write_bytes((other / "HEAD").read_bytes())
    code, out, _ = run(capsys, "repair", log, "--write")
    assert code == 2
    assert "nothing can be done: HEAD and the segments belong to two histories" in out
    assert "  choice 1: restore HEAD and every segment from the same" in out
    assert "  choice 2: remove HEAD and repair again" in out
    for name in ("HEAD", FIRST):
        (log / name).write_bytes(older[name])
    code, out, _ = run(capsys, "repair", log)
    assert code == 1
    assert "  choice 1: restore HEAD and the missing" in out
    assert "  choice 2: with --write, continue after version 5: versions 6 to 6 are lost" in out
    code, out, _ = run(capsys, "repair", log, "--write")
    assert (code, "  choice 1" in out) == (0, False)
    with ChangeLog.open(log) as opened:
        assert opened.head.version == 6


def test_repair_refuses_a_log_that_is_being_written(log, capsys):
    """F49."""
    with ChangeLog.open(broken(log).parent / "other") as other:
        other.commit([upsert("order", "1", {})])
        path = other.path
        flip(path / "HEAD", 4090)
        assert run(capsys, "repair", path)[0] == 1
        code, out, err = run(capsys, "repair", path, "--write")
        assert (code, out) == (1, "")
        assert "is being written by" in err
        assert err.endswith("; stop it first\n")


def test_stats_tell_of_a_directory_and_of_a_server(log, capsys):
    """F49."""
    code, out, _ = run(capsys, "stats", log, "--json")
    assert code == 0
    told = json.loads(out)["logs"]["orders"]
    assert (told["oldest"], told["newest"], told["segments"], told["writer"]) == (1, 5, 1, False)
    (epoch,) = told["epochs"]
    assert (epoch["epoch"], epoch["first_version"], len(epoch["random"])) == (1, 1, 11)
    said = run(capsys, "stats", log)[1].splitlines()
    assert said[0] == "orders"
    assert re.fullmatch(
        r"  newest version 5, committed \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; next version 6; oldest version kept 1",
        said[1],
    )
    assert re.fullmatch(r"  [\d.]+ [KM]iB in 1 segment; no process writes it", said[2])
    assert said[3].startswith("  opened for writing 1 time (its epoch); log id ")
    assert run(capsys, "stats", "http://127.0.0.1:1/")[0] == 1
    with ChangeLog.open(log) as opened, serve(opened, port=0) as server:
        with opened.transaction() as tx:
            tx.upsert("order", "1", {})
        opened.changes(since="earliest").subscribe(probe := Probe(first=3), executor=flow.INLINE)
        wait_until(lambda: probe.subscription.delivered == 3 and not probe.subscription.demand)
        _, out, err = run(capsys, "stats", server.url)
        assert err == ""
        said = out.splitlines()
        code, out, _ = run(capsys, "stats", server.url, "--json")
    assert code == 0
    assert json.loads(out)["logs"]["orders"]["watermark"] == 6
    assert said[:4] == [
        "0 connections, 0 bytes not sent yet",
        "orders",
        "  newest version 6; next version 7; oldest version kept 1",
        "  1 subscription to 1 publisher, 1 behind; 3 changes delivered",
    ]
    assert re.fullmatch(
        r"    RESYNC, \d versions, .* s behind, next \d:\d; 0 changes requested, 0 queued, 3 delivered",
        said[-1],
    )


def test_stats_tell_what_there_is_none_of_in_words_too(tmp_path, capsys, monkeypatch):
    """F49: no version is not version 0, and a server of another version is told from one that is broken."""
    ChangeLog.open(tmp_path / "empty").close()
    assert "  no versions yet; next version 1\n" in run(capsys, "stats", tmp_path / "empty")[1]
    answers = {
        '{"logs":{"a":{"failure":"LogGone"}}}': (0, "a\n  it is not served any more: LogGone\n"),
        '{"logs":{"a":{"oldest":7}}}': (1, "answers with statistics of another version"),
    }
    for answer, (code, what) in answers.items():
        monkeypatch.setattr("transports.cli.stats.ask", lambda *_, answer=answer: json.loads(answer))
        assert run(capsys, "stats", "http://127.0.0.1:1/")[0] == code
        _, out, err = run(capsys, "stats", "http://127.0.0.1:1/")
        assert what in out + err


def test_whatever_lies_in_the_directory_no_traceback_is_shown(tmp_path, capsys):
    """F49: random files under the names of a log, and damaged logs."""
    make_log(tmp_path / "whole", segments=2)
    names = ["HEAD", "TAIL", "LOCK", FIRST, "wal-000000000002.log", "wal-000000000001.idx", "BELL", "x.tmp"]
    names += [
        FIRST + ".torn",
        FIRST + ".broken",
        "wal-999999999999.log",
        "wal-1.log",
        "notes",
        "held",
        "slots",
    ]
    for seed in range(round(40 * SCALE)):
        random = Random(seed)
        path = tmp_path / "log"
        copy_log(tmp_path / "whole", path)
        if random.random() < 0.5:
            for one in path.iterdir():
                if one.is_file() and random.random() < 0.7:
                    one.unlink()
        for _ in range(random.randrange(4)):
            name = path / random.choice(names)
            if random.random() < 0.15 and not name.exists():
                name.mkdir()
            elif not name.is_dir():
                name.write_bytes(random.randbytes(random.choice((0, 3, 64, 100, 5000, 9000))))
        if random.random() < 0.5 and any(path.glob("wal-*.log")):
            with contextlib.suppress(OSError, ValueError):  # there was nothing to be damaged
                damage(path, random)
        for command in ("verify", "dump", "repair", "stats"):
            for option in ((), ("--salvage",)) if command == "dump" else ((), ("--json",)):
                code, _, _ = run(capsys, command, path, *option)
                assert 0 <= code <= 3
        assert run(capsys, "repair", path, "--write")[0] in (0, 1, 2, 3)


def test_a_store_is_repaired_from_its_backup_log_by_log(tmp_path, capsys):
    """F49: the plan first; the exit codes of a repair; what the backup does not have is one line."""
    with ChangeStore.open(tmp_path / "shop", sync="os", fill_step=0) as store:
        for name in ("orders", "stock"):
            store.create(name).commit([upsert("order", "1", {"note": "to be damaged"})])
    shop, backed = str(tmp_path / "shop"), str(tmp_path / "backup")
    assert main(["backup", shop, backed, "--copy"]) == 0
    capsys.readouterr()
    assert main(["repair", shop, "--from", backed]) == 0
    whole = (tmp_path / "shop" / "orders" / "wal-000000000001.log").read_bytes()
    for damaged in (whole.replace(b"to be damaged", b"to be DAMAGED"), None):
        path = tmp_path / "shop" / "orders" / "wal-000000000001.log"
        path.unlink() if damaged is None else path.write_bytes(damaged)
        assert main(["verify", shop]) == 2
        capsys.readouterr()
        assert main(["repair", shop, "--from", backed]) == 1
        assert f"to do: take: segment 1 is replaced by that of {backed}/orders" in capsys.readouterr().out
        assert main(["repair", shop, "--from", backed, "--write", "--json"]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [len(one["steps"]) for one in told] == [0, 1, 0]
        assert main(["verify", shop]) == 0
    path.write_bytes(damaged or whole.replace(b"to be damaged", b"to be DAMAGED"))
    capsys.readouterr()
    assert main(["repair", shop, "--from", str(tmp_path / "none"), "--write"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("penstock: ")
    assert "none/orders: it cannot be read" in error
    assert main(["repair", shop, "--from", backed, "--head"]) == 2

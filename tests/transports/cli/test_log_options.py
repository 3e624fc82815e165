"""Commands on the log of another program: they delete nothing of it and change no option; ``penstock log options`` (F194)."""

import ast
import json
import re
from pathlib import Path

import pytest

from publishers import ChangeLog, ChangeStore, LogOptions, upsert
from publishers.options import KEPT
from publishers.wal import RealFileSystem
from publishers.wal.files.own_options import OPTIONS_NAME, read_own, write_own
from tests.harness.inside import house_step_of
from tests.transports.cli.test_program import one_line
from transports.cli import main
from transports.cli.source import owned

ROOT = Path(__file__).parents[3]
SINKS = """

log = "{}"

[[sinks]]
name = "hook"
kind = "webhook"
url = "http://127.0.0.1:9/hook"
"""
LINE = b'{"entity_type": "order", "key": "42", "body": {"total": 1}}\n'
COMMANDS = (
    "append DIR FILE",
    "append DIR FILE --producer etl --sequence 1",
    "slot create DIR one --since latest",
    "slot pause DIR one",
    "slot resume DIR one",
    "slot seek DIR one latest",
    "slot drop DIR one",
    "group create DIR all --since latest",
    "group pause DIR all",
    "group resume DIR all",
    "group reset DIR all latest",
    "group dead replay DIR all",
    "group dead discard DIR all",
    "group drop DIR all",
    "sinks pause SINKS hook",
    "sinks resume SINKS hook",
    "sinks seek SINKS hook latest",
    "sinks off SINKS hook",
    "sinks on SINKS hook",
    "state rebuild DIR",
    "repair DIR --write",
    "log options DIR",
)
"""Every command that opens a log for writing, and is not in its program's place for long."""

RETENTIONS = {
    "everything": {"retain_bytes": None, "retain_age": None},
    "some": {"retain_bytes": 2**19, "retain_age": None},
    "little": {"retain_bytes": 2**16, "retain_age": None},
    "no time": {"retain_bytes": None, "retain_age": 0.0},
    "default": {},
}
KINDS = [*((retention, False) for retention in RETENTIONS), ("default", True)]
"""What a log says of it, and one of an older version, which says nothing."""


@pytest.fixture
def thorough(monkeypatch):
    """By default nearly nothing is retained, and the housekeeping of an opening has its turn, however short it is."""
    close = ChangeLog.close

    def closing(log, *reason):
        if not log.read_only and not log.closed:
            for _ in range(3):
                house_step_of(log)()
        close(log, *reason)

    def begin():
        monkeypatch.setitem(LogOptions.__init__.__kwdefaults__, "retain_bytes", 2**16)
        monkeypatch.setattr(ChangeLog, "close", closing)

    return begin


def made(path, thorough, retention):
    """A log of six segments, of which retention has deleted none yet."""
    quick = {"segment_bytes": 2**16, "sync": "os", "fill_step": 0, "reserve_bytes": 0}
    with ChangeLog.open(path, **quick) as log:
        for number in range(6):
            log.commit([upsert("order", str(number), {"text": "x" * 60_000})])
    write_own(RealFileSystem(), path, RETENTIONS[retention])
    thorough()


def segments(path):
    return sorted(one.name for one in path.glob("wal-*.log"))


@pytest.mark.parametrize(("retention", "older"), KINDS)
def test_no_command_deletes_history_or_changes_options(tmp_path, thorough, capsys, retention, older):
    """F194: the program may hold history in its memory, so a command deletes nothing of what the program's options let go, too."""
    path = tmp_path / "orders"
    made(path, thorough, retention)
    if older:
        for name in (OPTIONS_NAME, f"{OPTIONS_NAME}.copy"):
            (path / name).unlink()
    (tmp_path / "lines").write_bytes(LINE)
    (tmp_path / "sinks.toml").write_text(SINKS.format(path))
    words = {"DIR": path, "FILE": tmp_path / "lines", "SINKS": tmp_path / "sinks.toml"}
    before, kept = segments(path), read_own(RealFileSystem(), path)
    assert (kept is None) == older
    for command in COMMANDS:
        code = main([str(words.get(word, word)) for word in command.split()])
        assert code == 0, (command, capsys.readouterr().err)
        assert segments(path)[: len(before)] == before, command
        assert read_own(RealFileSystem(), path) == kept, command


@pytest.mark.parametrize(("retention", "older"), KINDS)
@pytest.mark.parametrize("of", ["log", "store"])
def test_a_command_in_the_place_of_the_program_deletes_what_the_log_says_and_nothing_else(
    tmp_path, thorough, retention, older, of
):
    """``serve --own``, ``sinks run``: as the program would; nothing if the log says nothing."""
    path = tmp_path / "store" / "orders"
    if of == "store":
        with ChangeStore.open(tmp_path / "store") as store:
            store.create("orders")
    made(path, thorough, retention)
    if older:
        for name in (OPTIONS_NAME, f"{OPTIONS_NAME}.copy"):
            (path / name).unlink()
    before = segments(path)
    if of == "store":
        with ChangeStore.open(tmp_path / "store", borrowed=True) as store:
            assert store["orders"].options.segment_bytes == (2**26 if older else 2**16)
    else:
        with owned(str(path), None, lasting=True):
            pass
    deletes = (
        retention in ("little", "no time") and not older
    )  # "default" is that of the program, which stands in the log
    assert (segments(path)[: len(before)] != before) == deletes


def test_dead_letters_stay_until_somebody_looks(tmp_path, thorough):
    """Of a group: in a log that keeps everything, unless its own options are set."""
    with ChangeLog.open(tmp_path / "orders", fill_step=0) as log, log._beside(tmp_path / "dead") as dead:
        assert (dead.options.retain_bytes, dead.options.retain_age) == (None, None)
    assert main(["log", "options", str(tmp_path / "dead"), "--set", "retain_age=30d"]) == 0
    with ChangeLog.open(tmp_path / "orders", fill_step=0) as log, log._beside(tmp_path / "dead") as dead:
        assert (dead.options.retain_bytes, dead.options.retain_age) == (None, 30 * 86400)


def test_options_are_printed_and_set(tmp_path, capsys):
    path = tmp_path / "orders"
    ChangeLog.open(path).close()
    sets = {
        "retain_bytes=none": None,
        "retain_bytes=20GiB": 20 * 2**30,
        "retain_bytes=0": 0,
        "retain_age=1.5h": 5400.0,
        "slot_keep_age=30d": 30 * 86400,
        "sync=interval": "interval",
        "compress=true": True,
        "origin=2024": "2024",
        "origin=none": None,
    }
    for text, value in sets.items():
        assert main(["log", "options", str(path), "--set", text, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["options"]
        name = text.partition("=")[0]
        assert shown[name] == value
        assert set(shown) == set(KEPT)
        with ChangeLog.open(path) as log:
            assert getattr(log.options, name) == value
    assert main(["log", "options", str(path)]) == 0
    assert "retain_age = 5400.0" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("retain_bytes", "OPTION=VALUE"),
        ("retain_bytes=much", "a whole number"),
        ("retain_bytes=5XB", "KiB"),
        ("retain_bytes=1.5", "a whole number"),
        ("segment_bytes=none", "a whole number"),
        ("segment_bytes=1", "from 65536"),
        ("sync=sometimes", "'always'"),
        ("compress=yes", "True or False"),
        ("ring_events=5", "one of retain_bytes"),
        ("retain_byte=5", "retain_bytes"),
    ],
)
def test_a_wrong_option_is_one_line_and_changes_nothing(tmp_path, capsys, text, why):
    path = tmp_path / "orders"
    ChangeLog.open(path).close()
    before = (path / OPTIONS_NAME).read_bytes()
    assert main(["log", "options", str(path), "--set", text]) == 2
    assert why in one_line(capsys)
    assert (path / OPTIONS_NAME).read_bytes() == before
    assert main(["log", "create", str(tmp_path / "shop"), "orders", "--set", text]) == 2
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize("readers", ["owner", "group", "all"])
def test_options_are_for_those_who_may_read_the_log(tmp_path, readers):
    path = tmp_path / "orders"
    ChangeLog.open(path, readers=readers).close()
    for _ in range(2):
        assert (path / OPTIONS_NAME).stat().st_mode == (path / "HEAD").stat().st_mode
        assert main(["log", "options", str(path), "--set", "retain_bytes=none"]) == 0


def test_options_of_a_log_that_is_open_or_missing_are_not_set(tmp_path, capsys):
    path = tmp_path / "orders"
    with ChangeLog.open(path):
        assert main(["log", "options", str(path)]) == 0
        capsys.readouterr()
        assert main(["log", "options", str(path), "--set", "retain_bytes=none"]) == 1
        assert "stop it first" in one_line(capsys)
    assert main(["log", "options", str(tmp_path / "none"), "--set", "retain_bytes=none"]) == 1
    assert not (tmp_path / "none").exists()


def test_options_of_a_log_of_a_store_are_given_at_its_creation_and_set(tmp_path, capsys):
    shop = str(tmp_path / "shop")
    assert main(["log", "create", shop, "orders", "--set", "retain_bytes=none", "--set", "sync=os"]) == 0
    assert main(["log", "create", shop, "users"]) == 0
    capsys.readouterr()
    assert main(["log", "options", shop, "orders", "--set", "retain_bytes=5MiB", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["options"]
    assert (shown["retain_bytes"], shown["sync"]) == (5 * 2**20, "os")
    with ChangeStore.open(shop) as store:
        assert store["orders"].options.retain_bytes == 5 * 2**20
        assert store["users"].options.retain_bytes == 2**30
    assert main(["log", "options", shop, "nobody"]) == 1


def test_whoever_opens_a_log_for_writing_here_is_its_owner_or_borrows_it():
    """Every call in the packages says so."""
    found = set()
    for path in [*ROOT.glob("publishers/**/*.py"), *ROOT.glob("transports/**/*.py")]:
        text = path.read_text()
        if re.search(r"\b(ChangeLog|ChangeStore|SystemLog|Wal)\.open\(", text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "open"
            ):
                name = ast.unparse(node.func.value)
                named = {one.arg for one in node.keywords}
                if name in ("ChangeLog", "ChangeStore", "SystemLog", "Wal") and not named & {
                    "read_only",
                    "borrowed",
                }:
                    found.add((str(path.relative_to(ROOT)), ast.unparse(node)[:40]))
    assert {path for path, _ in found} == {
        "publishers/log/changelog.py",  # Wal.open, with what is chosen
        "publishers/wal/checks/repair.py",  # likewise
        "transports/cli/log.py",  # create, drop, rename: of these a store opens none but the new log
    }

"""``penstock log``: manages the logs of a store, and the options that a log keeps."""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from publishers.errors import InvalidOption, PenstockError
from publishers.options import KEPT, LogOptions, check_kept, options_of
from publishers.store.store import ChangeStore
from publishers.wal import Follower, RealFileSystem
from publishers.wal.disk.modes import kept_readers
from publishers.wal.files.directory import take_lock
from publishers.wal.files.own_options import read_own, write_own
from transports.cli.arguments import ArgumentParser, readers_of
from transports.cli.output import print_json, show
from transports.cli.source import check_directory, directory_of, is_store

__all__ = ["add_arguments"]

_DONE: Final = 0
_SETTING: Final = "OPTION=VALUE"
_HEADS: Final = ("NAME", "TYPE", "OLDEST", "NEWEST", "LABELS", "DIRECTORY")


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the subcommands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "list var/shop", "the logs of a store", _list)
    making = _add(
        commands, "create var/shop orders", "make a log, and the store if there is none", _create, "NAME"
    )
    making.readers("a store that it makes")
    making.value("--type", "TEXT", "what kind of log it is, in your own words")
    making.each("--label", "KEY=VALUE", "what else to say of it")
    making.each("--set", _SETTING, "option that the log is to keep, such as retain_bytes=20GiB")
    dropping = _add(commands, "drop var/shop orders --yes", "drop a log with everything in it", _drop, "NAME")
    dropping.flag("--yes", "without asking")
    _add(
        commands,
        "rename var/shop orders sales",
        "give a log another name; its subscribers go on",
        _rename,
        "OLD",
        "NEW",
    )
    setting = _add(
        commands,
        "options var/orders --set retain_bytes=20GiB --set retain_age=none",
        "print the options that a log keeps, and change them while no program writes to it",
        _options,
    )
    setting.value("name", "NAME", "name of a log, of a store", nargs="?")
    setting.each(
        "--set", _SETTING, "change an option; bytes with KiB, MiB or GiB, seconds or with m, h or d, or none"
    )


def _add(commands: Any, example: str, what: str, run: Any, *names: str) -> ArgumentParser:
    name = example.partition(" ")[0]
    parser: ArgumentParser = commands.add_parser(
        name, help=what, description=what, example=f"penstock log {example}"
    )
    parser.value("directory", "DIR", "directory of a store" + (", or of a log" if name == "options" else ""))
    for one in names:
        parser.value(one.lower(), one, "name of a log")
    parser.json()
    parser.set_defaults(command=run)
    return parser


def _list(chosen: argparse.Namespace) -> int:
    check_directory(chosen.directory)
    with ChangeStore.open(chosen.directory, read_only=True) as store:
        found = [_log_json(store, name) for name in store]
    if chosen.json:
        print_json({"logs": found})
    elif found:
        _print_table([_HEADS, *map(_row, found)])
    else:
        print("no logs yet", file=sys.stderr)
    return _DONE


def _log_json(store: ChangeStore, name: str) -> dict[str, Any]:
    entry = store.entry(name)
    row: dict[str, Any] = {
        "name": name,
        "type": entry.type,
        "labels": entry.labels,
        "directory": entry.directory,
        "logId": entry.log_id,
    }
    try:
        with contextlib.closing(Follower.open(store.path / entry.directory)) as follower:
            return row | {"oldest": follower.oldest, "newest": follower.visible}
    except (PenstockError, OSError) as error:
        return row | {"error": str(error)}


def _row(row: dict[str, Any]) -> Sequence[str]:
    labels = ",".join(f"{key}={value}" for key, value in row["labels"].items())
    oldest, newest = ("?", "damaged") if "error" in row else (str(row["oldest"]), str(row["newest"]))
    return row["name"], row["type"] or "-", oldest, newest, labels or "-", row["directory"]


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _create(chosen: argparse.Namespace) -> int:
    check_directory(chosen.directory)
    labels = dict(_label(text) for text in chosen.label)
    options = dict(map(_setting, chosen.set))
    with ChangeStore.open(chosen.directory, **readers_of(chosen)) as store:
        log = store.create(chosen.name, type=chosen.type, labels=labels, **options)
        show(chosen, {"created": _log_json(store, log.name)}, [f"log {log.name} is there, in {log.path}"])
    return _DONE


def _label(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise InvalidOption("--label", text, "KEY=VALUE")
    return key, value


def _drop(chosen: argparse.Namespace) -> int:
    check_directory(chosen.directory)
    with ChangeStore.open(Path(chosen.directory), read_only=True) as store:
        store.entry(chosen.name)  # checks the name before asking for confirmation
    if not chosen.yes and not _agreed(chosen.name):
        print("nothing was dropped", file=sys.stderr)
        return 1
    with ChangeStore.open(chosen.directory) as store:
        store.drop(chosen.name)
        show(chosen, {"dropped": chosen.name}, [f"log {chosen.name} is dropped"])
    return _DONE


def _agreed(name: str) -> bool:
    if not sys.stdin.isatty():
        raise InvalidOption("--yes", None, f"given to drop {name} with everything in it without being asked")
    print(
        f"This drops {name} with everything in it. Type its name to go on: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip() == name


def _rename(chosen: argparse.Namespace) -> int:
    check_directory(chosen.directory)
    with ChangeStore.open(chosen.directory) as store:
        store.rename(chosen.old, chosen.new)
        renamed = {"renamed": {"old": chosen.old, "new": chosen.new}}
        show(chosen, renamed, [f"log {chosen.old} is {chosen.new} now"])
    return _DONE


def _setting(text: str) -> tuple[str, Any]:
    """An option that a log is to keep, and its value.

    Raises:
        InvalidOption: If there is no such option, or the value is not one of its.
    """
    name, mark, value = text.partition("=")
    if not mark:
        raise InvalidOption("--set", text, _SETTING)
    option = next((one for one in options_of(LogOptions) if one.name == name), None)
    found = value if option is None else option.read(value)
    check_kept({name: found})
    return name, found


def _options(chosen: argparse.Namespace) -> int:
    given = dict(map(_setting, chosen.set))
    path = directory_of(chosen.directory, chosen.name)
    filesystem = RealFileSystem(kept_readers(path))
    if given and is_store(chosen.directory):
        with ChangeStore.open(chosen.directory, borrowed=True) as store:
            store.set_options(chosen.name or store.names()[0], **given)
    elif given:
        with contextlib.closing(take_lock(filesystem, path)):
            write_own(filesystem, path, given)
    own = read_own(filesystem, path)
    kept = {name: own[name] for name in KEPT if name in own} if own is not None else {}
    lines = [f"{name} = {'none' if value is None else value}" for name, value in kept.items()]
    if len(kept) < len(KEPT):
        lines.append(
            "what is not listed is up to the next program that opens the log; commands delete nothing by it"
        )
    show(chosen, {"options": kept}, lines)
    return _DONE

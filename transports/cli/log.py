"""``penstock log``: manages the logs of a store."""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from publishers.errors import InvalidOption, PenstockError
from publishers.store.store import ChangeStore
from publishers.wal import Follower
from transports.cli.arguments import ArgumentParser, readers_of
from transports.cli.output import print_json, show
from transports.cli.source import check_directory

__all__ = ["add_arguments"]

_DONE: Final = 0
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


def _add(commands: Any, example: str, what: str, run: Any, *names: str) -> ArgumentParser:
    name = example.partition(" ")[0]
    parser: ArgumentParser = commands.add_parser(
        name, help=what, description=what, example=f"penstock log {example}"
    )
    parser.value("directory", "DIR", "directory of a store")
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
    with ChangeStore.open(chosen.directory, **readers_of(chosen)) as store:
        log = store.create(chosen.name, type=chosen.type, labels=labels)
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

"""``penstock state``: the compacted state beside a log."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from publishers.errors import StateIncomplete
from publishers.log.changelog import ChangeLog
from publishers.model.fields import ATTACHED
from publishers.mutations.arguments import key_bytes
from publishers.options import KEEP_HISTORY
from publishers.state.rows import EntityRow
from publishers.state.table import STATE_DIRECTORY, find_in_file, look_at_file, remove_table
from publishers.wal import RealFileSystem
from publishers.wal.checks.verify import is_live
from transports.cli.arguments import ArgumentParser
from transports.cli.output import fields, print_json, show
from transports.cli.source import directory_of

__all__ = ["add_arguments"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the commands."""
    parser.allow_abbrev = False  # else argparse expands a subcommand's --log to an option of the parent
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "info var/orders", "as of which place the state is, and how large", _info)
    getting = _add(commands, "get var/orders order 42", "print an entity as JSON", _get)
    getting.value("entity_type", "TYPE", "entity type")
    getting.value("key", "KEY", "key of the entity")
    _add(
        commands,
        "rebuild var/orders",
        "rebuild the state from the log, while no program writes to it",
        _rebuild,
    )


def _add(commands: Any, example: str, what: str, run: Any) -> ArgumentParser:
    parser: ArgumentParser = commands.add_parser(
        example.partition(" ")[0], help=what, description=what, example=f"penstock state {example}"
    )
    parser.value("directory", "DIR", "directory of a log, or of a store of logs")
    parser.log_name("store")
    parser.json()
    parser.set_defaults(command=run)
    return parser


def _info(chosen: argparse.Namespace) -> int:
    info = _state_json(directory_of(chosen.directory, chosen.log))
    show(chosen, info, fields({"open for writing" if name == "owner" else name: info[name] for name in info}))
    return 0


def _state_json(path: Path) -> Mapping[str, Any]:
    with ChangeLog.open(path, read_only=True) as log:
        oldest = log.oldest
    found = look_at_file(path, oldest)
    return {
        "logId": found.log_id,
        "position": found.token,
        "version": found.version,
        "rows": found.rows,
        "bytes": found.nbytes,
        "owner": is_live(RealFileSystem(), path),
    }


def _get(chosen: argparse.Namespace) -> int:
    found = find_in_file(
        directory_of(chosen.directory, chosen.log), chosen.entity_type, key_bytes(chosen.key)
    )
    if found is None:
        print(f"penstock: the state has no {chosen.entity_type} {chosen.key!r}", file=sys.stderr)
        return 1
    print_json(_row(found) if chosen.json else _raw(found.body_bytes))
    return 0


def _row(row: EntityRow) -> Mapping[str, Any]:
    return {
        "entity_type": row.entity_type,
        "key": row.key,
        "body": _raw(row.body_bytes),
        "version": row.version,
        "index": row.index,
        "timestamp": row.timestamp,
        **{field.name: _shown(getattr(row, field.attribute)) for field in ATTACHED if field.kept},
    }


def _shown(value: object) -> object:
    return msgspec.Raw(value) if isinstance(value, bytes) else value


def _raw(data: bytes | None) -> msgspec.Raw | None:
    return None if data is None else msgspec.Raw(data)


def _rebuild(chosen: argparse.Namespace) -> int:
    path = directory_of(chosen.directory, chosen.log)
    with ChangeLog.open(path, read_only=True):
        pass  # raises unless the log exists: this command creates none
    with ChangeLog.open(path, borrowed=True, **KEEP_HISTORY) as log:  # raises if another program writes to it
        if log.oldest.version > 1:
            raise StateIncomplete(log.oldest)
        remove_table(path / STATE_DIRECTORY)
    with ChangeLog.open(path, borrowed=True, state=True, **KEEP_HISTORY) as log:
        log.state.wait(log.visible)
    return _info(chosen)

"""``penstock stats``: prints the statistics of a log, from a directory or a server."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from publishers.errors import PenstockError
from publishers.groups.record import GROUPS_NAME
from publishers.log.changelog import ChangeLog
from publishers.model.position import epoch_text
from publishers.slots.record import SLOTS_NAME
from publishers.store.directory import SYSTEM_DIRECTORY
from publishers.store.log_entries import SYSTEM
from publishers.wal import Follower, RealFileSystem
from publishers.wal.checks.verify import is_live
from publishers.wal.files.segment import segment_number
from transports.cli.arguments import ArgumentParser
from transports.cli.http import ServerTrust, add_token, ask, token_of, trust_of
from transports.cli.output import show
from transports.cli.source import logs_in, url_of
from transports.cli.stats_text import directory_words, server_words
from transports.codec.stored import stored_groups_json, stored_slots_json

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Prints the size and the ends of a log, or the rings and subscribers of a server, as text; with --json every figure."
    parser.value("source", "DIR|URL", "directory of a log or store, or http://host:port/ of a server")
    parser.json("as one JSON document")
    add_token(parser)


def run(chosen: argparse.Namespace) -> int:
    """Prints the statistics."""
    url = url_of(chosen.source)
    statistics: Mapping[str, Any]
    if url is not None:
        statistics = _fetched(url, token_of(chosen), trust_of(chosen, url))
    else:
        paths = logs_in(chosen.source)
        statistics = {"logs": {_name(path): _log(path) for path in paths}}
    show(chosen, statistics, _words(url, statistics))
    return 0


def _words(url: str | None, statistics: Mapping[str, Any]) -> Iterator[str]:
    if url is None:
        for name, log in statistics["logs"].items():
            yield from directory_words(name, log)
        return
    try:
        yield from server_words(statistics)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConnectionError(
            f"{url} answers with statistics of another version; --json prints them as they are"
        ) from None


def _name(path: Path) -> str:
    """The name by which a server knows the log of a directory."""
    return SYSTEM if path.name == SYSTEM_DIRECTORY else path.name or str(path)


def _log(path: Path) -> dict[str, Any]:
    filesystem = RealFileSystem()
    with contextlib.closing(Follower.open(path)) as follower:
        names = filesystem.listing(path)
        info: dict[str, Any] = {
            "logId": follower.log_id.hex,
            "epoch": follower.epoch,
            "oldest": follower.oldest,
            "newest": follower.visible,
            "writer": is_live(filesystem, path),
            "segments": sum(segment_number(name) is not None for name in names),
            "bytes": sum(_size(filesystem, path / name) for name in names if segment_number(name)),
            "kept": [name for name in names if name.endswith((".torn", ".broken"))],
        }
        with contextlib.suppress(PenstockError):
            info["epochs"] = [
                epoch._asdict() | {"random": epoch_text(epoch.epoch, epoch.random).partition(".")[2] or None}
                for epoch in follower.epochs
            ]
        with contextlib.suppress(PenstockError):
            frame = (
                follower.reader.read(follower.reader.locate(follower.visible)) if follower.visible else None
            )
            info["committedAt"] = None if frame is None else frame.header.committed_at
    if {SLOTS_NAME, GROUPS_NAME} & {*names}:
        # Another user may not read them; nothing else depends on them.
        with contextlib.suppress(PenstockError, OSError), ChangeLog.open(path, read_only=True) as log:
            info["storedSlots"] = stored_slots_json(log)
            info["storedGroups"] = stored_groups_json(log)
    return info


def _size(filesystem: RealFileSystem, path: Path) -> int:
    try:
        with contextlib.closing(filesystem.open(path, "read")) as file:
            return file.size()
    except FileNotFoundError:
        return 0  # retention has deleted it meanwhile


def _fetched(url: str, token: str | None, trust: ServerTrust | None) -> Mapping[str, Any]:
    statistics = ask(url, "/statistics", "statistics", token, trust)
    if statistics is None or not isinstance(statistics.get("logs"), dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    return statistics

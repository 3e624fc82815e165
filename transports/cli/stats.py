"""``penstock stats``: what a log tells of itself, from a directory or a server."""

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from publishers.errors import PenstockError
from publishers.model.position import epoch_text
from publishers.store.directory import SYSTEM_DIRECTORY
from publishers.store.log_entries import SYSTEM
from publishers.wal import Follower, RealFileSystem
from publishers.wal.checks.verify import is_live
from publishers.wal.files.segment import segment_number
from transports.cli.asking import add_token, ask
from transports.cli.checks import logs_in
from transports.cli.figures import directory_words, server_words
from transports.cli.places import url_of
from transports.tokens import token_given

__all__ = ["add_stats"]


def add_stats(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Prints the size and the ends of a log, or what a server tells of rings and subscribers, in words; all of it as JSON."
    parser.add_argument(
        "source", metavar="DIR|URL", help="directory of a log or store, or http://host:port/ of a server"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    add_token(parser)
    parser.set_defaults(command=_stats)


def _stats(chosen: argparse.Namespace) -> int:
    url = url_of(chosen.source)
    told: Mapping[str, Any]
    if url is not None:
        told = _fetched(url, token_given(chosen.token, chosen.token_file))
    else:
        paths = logs_in(chosen.source)
        told = {"logs": {_name(path): _log(path) for path in paths}}
    print(msgspec.json.encode(told).decode() if chosen.json else "\n".join(_words(url, told)))
    return 0


def _words(url: str | None, told: Mapping[str, Any]) -> list[str]:
    if url is None:
        return [line for name, log in told["logs"].items() for line in directory_words(name, log)]
    try:
        return list(server_words(told))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConnectionError(
            f"{url} answers with statistics of another version; --json prints them as they are"
        ) from None


def _name(path: Path) -> str:
    """What a server calls the log of a directory."""
    return SYSTEM if path.name == SYSTEM_DIRECTORY else path.name or str(path)


def _log(path: Path) -> dict[str, Any]:
    filesystem = RealFileSystem()
    follower = Follower.open(path)
    try:
        names = filesystem.listing(path)
        told: dict[str, Any] = {
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
            told["epochs"] = [
                epoch._asdict() | {"random": epoch_text(epoch.epoch, epoch.random).partition(".")[2] or None}
                for epoch in follower.epochs
            ]
        with contextlib.suppress(PenstockError):
            frame = (
                follower.reader.read(follower.reader.locate(follower.visible)) if follower.visible else None
            )
            told["committedAt"] = None if frame is None else frame.header.committed_at
        return told
    finally:
        follower.close()


def _size(filesystem: RealFileSystem, path: Path) -> int:
    try:
        file = filesystem.open(path, "read")
    except FileNotFoundError:
        return 0  # retention was faster
    try:
        return file.size()
    finally:
        file.close()


def _fetched(url: str, token: str | None) -> Mapping[str, Any]:
    told = ask(url, "/statistics", "statistics", token)
    if told is None or not isinstance(told.get("logs"), dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    return told

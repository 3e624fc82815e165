"""Interprets the source of a command: a server, a log, or a log of a store; the files of a directory tell which."""

import argparse
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from publishers.errors import InvalidOption, NotALog, NotAStore
from publishers.log.changelog import ChangeLog
from publishers.options import KEEP_HISTORY
from publishers.store.directory import kind_of
from publishers.store.log_entries import SYSTEM
from publishers.store.store import ChangeStore
from publishers.wal import RealFileSystem
from transports.client.urls import address_meant, websocket_url

__all__ = [
    "check_directory",
    "directory_of",
    "existing",
    "followed",
    "is_store",
    "logs_in",
    "owned",
    "url_of",
]


def url_of(source: str) -> str | None:
    """Returns the WebSocket URL of a server; None if the source is a directory.

    The URL that a browser shows, ``http://host:port/`` or in a web application ``http://host:port/live/``, means the server
    there.

    Raises:
        InvalidOption: If the URL is of another kind.
    """
    if "://" in source:
        try:
            return websocket_url(source)
        except ValueError:  # another scheme, no host, half an IPv6 address, or an invalid port
            right = "a directory, or an address with a host, such as ws://127.0.0.1:8090/ws"
            raise InvalidOption("URL|DIR", source, right) from None
    if (meant := address_meant(source)) is not None and not Path(source).exists():
        raise InvalidOption("URL|DIR", source, f"a directory, or the address of a server: write {meant}")
    return None


def check_directory(directory: str) -> None:
    """Refuses a URL where only a directory is valid, and the empty string, which an unset shell variable becomes.

    Raises:
        InvalidOption: If the argument is one of these.
    """
    if not directory:
        raise InvalidOption("DIR", directory, "the path of a directory")
    if "://" in directory or (address_meant(directory) is not None and not Path(directory).exists()):
        raise InvalidOption(
            "DIR", directory, "a directory: 'penstock tail' and 'penstock append' reach servers"
        )


def is_store(directory: str) -> bool:
    """Whether a directory is a store of logs."""
    check_directory(directory)
    return kind_of(RealFileSystem(), Path(directory)) == "store"


def logs_in(directory: str) -> list[Path]:
    """Returns the directories of the logs: the given one, or those of a store.

    Of hidden directories a store includes only its system log.
    """
    check_directory(directory)
    path = Path(directory)
    filesystem = RealFileSystem()
    try:
        if kind_of(filesystem, path) != "store":
            return [path]
        names = filesystem.listing(path)
        return [path / name for name in names if _is_log(filesystem, path / name)]
    except OSError:
        return [path]


def _is_log(filesystem: RealFileSystem, path: Path) -> bool:
    try:
        return path.name == ".system" or kind_of(filesystem, path) == "log"
    except OSError:
        return path.is_dir()  # reported as unreadable later


@contextlib.contextmanager
def followed(directory: str, name: str | None) -> Iterator[ChangeLog]:
    """Opens a log read-only.

    Args:
        directory: A log, or a store.
        name: The log of a store; ``$system`` for its system log. May be omitted if the store has one log.
    """
    # The error that ends the follower is the error of the command, which prints it in one line.
    logging.getLogger("penstock.follower").addHandler(logging.NullHandler())
    if not is_store(directory):
        _check_single(directory, name)
        with ChangeLog.open(directory, read_only=True) as log:
            yield log
        return
    with ChangeStore.open(directory, read_only=True) as store:
        yield store.system if name == SYSTEM else store.log(_chosen(store, name))


def directory_of(directory: str, name: str | None) -> Path:
    """The directory of a log that is there.

    Args:
        directory: A log, or a store.
        name: Which log of a store. May be left out if it has one.

    Raises:
        NotALog: If there is no log.
    """
    path = Path(directory)
    if is_store(directory):
        with ChangeStore.open(directory, read_only=True) as store:
            return path / store.entry(_chosen(store, name)).directory
    _check_single(directory, name)
    if kind_of(RealFileSystem(), path) != "log":
        raise NotALog(path, "there is none" if path.exists() else "there is no such directory")
    return path


@contextlib.contextmanager
def owned(directory: str, name: str | None, *, lasting: bool = False, **options: Any) -> Iterator[ChangeLog]:
    """Opens a log for writing. A store is opened read-only, so that another process may own it and serve the log read-only.

    Args:
        directory: A log, which is created if missing, or a store.
        name: The log of a store. May be omitted if the store has one log.
        lasting: Whether the command takes the place of the log's program for long, and so deletes what the log's own options say.
            Any other command deletes nothing: it does not know what the program holds.
        options: As for `LogOptions`; they apply to this opening only.
    """
    if not lasting:
        options = {**KEEP_HISTORY, **options}
    if not is_store(directory):
        _check_single(directory, name)
        with ChangeLog.open(directory, borrowed=True, **options) as log:
            yield log
        return
    with ChangeStore.open(directory, read_only=True) as store:
        if name == SYSTEM:
            raise InvalidOption(
                "--log", name, "a log: what becomes of the logs is written by the store alone"
            )
        entry = store.entry(_chosen(store, name))
    path = Path(directory) / entry.directory
    with ChangeLog.open(path, borrowed=True, **{**entry.options, **options}) as log:
        log.name = entry.name
        yield log


@contextlib.contextmanager
def existing(chosen: argparse.Namespace) -> Iterator[ChangeLog]:
    """Opens an existing log for writing, because only the owner may change the positions of consumers."""
    path = Path(chosen.directory)
    if not is_store(chosen.directory) and kind_of(RealFileSystem(), path) != "log":
        raise NotALog(path, "there is none; 'penstock append' makes one")
    with owned(chosen.directory, chosen.log) as log:
        yield log


def _chosen(store: ChangeStore, name: str | None) -> str:
    names = store.names()
    if name is not None:
        return name
    if len(names) != 1:
        raise InvalidOption(
            "--log", None, "one of: " + (", ".join(names) or f"none yet ({SYSTEM} can be read)")
        )
    return names[0]


def _check_single(directory: str, name: str | None) -> None:
    path = Path(directory)
    if name is None or name == path.resolve().name:
        return
    kind = kind_of(RealFileSystem(), path)
    if kind == "log":
        raise InvalidOption(
            "--log", name, f"left out: {directory} is a single log, and not a store of several"
        )
    raise NotAStore(path, "make one with 'penstock log create'")

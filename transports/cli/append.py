"""``penstock append``: appends JSON lines to a log as one transaction, locally or at a server."""

import argparse
import contextlib
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

from publishers.commits.group_commit import Commit
from publishers.errors import InvalidOption
from publishers.model.position import Position
from publishers.mutations.mutation import Mutation, columns_of
from publishers.wal import Columns
from transports.cli.arguments import ArgumentParser, number, readers_of
from transports.cli.http import add_token, post, token_of, trust_of
from transports.cli.source import owned, url_of
from transports.codec.changes import read_lines

__all__ = ["add_arguments", "run"]

_ROWS: Final = 4096
_SPOOLED: Final = 1 << 20


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Appends JSON lines as one transaction. If the server cannot be reached, the append is retried, and what was written is not "
        "written twice."
    )
    parser.value(
        "target", "DIR|URL", "directory of a log, made if there is none, or of a store; or ws://host:port/ws"
    )
    parser.value("file", "FILE", "JSON lines (default: standard input)", nargs="?", default="-")
    parser.log_name()
    parser.readers("a log that it makes")
    parser.value("--expect", "CURSOR", "append nothing if anything was committed at this cursor or later")
    parser.value("--producer", "NAME", "whose transaction it is; with --sequence, a repetition is harmless")
    parser.value("--sequence", "N", "its number for the transaction, which rises", type=number(0, 2**63 - 1))
    parser.value(
        "--retry",
        "N",
        "attempts to reach a server again (default: %(default)s)",
        type=number(0, 10_000),
        default=10,
    )
    add_token(parser)


def run(chosen: argparse.Namespace) -> int:
    """Appends a file or standard input, and prints one line."""
    if (chosen.producer is None) is not (chosen.sequence is None):
        raise InvalidOption("--sequence", chosen.sequence, "given with --producer, and only then")
    url = url_of(chosen.target)
    if url is not None and chosen.readers:
        raise InvalidOption("--readers", chosen.readers, "given with DIR: a server has made its log")
    return _local(chosen) if url is None else _remote(chosen, url)


def _local(chosen: argparse.Namespace) -> int:
    with _source(chosen.file) as lines:
        mutations = read_lines(lines)
        # An invalid first line must not create a log.
        first = next(mutations, None)
        if first is None:
            return _nothing()
        producer = None if chosen.producer is None else (chosen.producer, chosen.sequence)
        with owned(chosen.target, chosen.log, **readers_of(chosen)) as log:
            commit = log.commit_columns(
                _batches(chain((first,), mutations)), producer=producer, expect=chosen.expect
            )
            cursor = str(log.token(Position(commit.version + 1, 0))) if commit.version else None
            _say(log.name, commit, cursor)
    return 0


def _remote(chosen: argparse.Namespace, url: str) -> int:
    with _source(chosen.file) as lines, tempfile.SpooledTemporaryFile(_SPOOLED) as spool:
        shutil.copyfileobj(lines, spool)  # kept, because it may have to be sent again
        size = spool.tell()
        if not size:
            return _nothing()
        # A unique producer name, so that a repeated request is written once.
        producer, sequence = chosen.producer or f"append-{uuid.uuid4().hex}", chosen.sequence or 0
        answer = post(
            url,
            "/changes",
            spool,
            size,
            token_of(chosen),
            attempts=chosen.retry,
            trust=trust_of(chosen, url),
            log=chosen.log,
            expect=chosen.expect,
            producer=producer,
            sequence=sequence,
        )
        commit = Commit(answer["version"], answer["duplicate"], answer["changes"], 0)
        _say(chosen.log or url, commit, answer["cursor"])
    return 0


def _nothing() -> int:
    print("0 changes: nothing was committed")
    return 0


def _say(name: str, commit: Commit, cursor: str | None) -> None:
    where = f"version {commit.version}, cursor {cursor}" if cursor else "an earlier version"
    if commit.duplicate:
        print(f"committed to {name} before, as {where}: nothing was written")
        return
    count = commit.changes - 1  # without the TRANSACTION event
    print(f"{count} change{'' if count == 1 else 's'} committed to {name} as {where}")


@contextlib.contextmanager
def _source(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file


def _batches(mutations: Iterator[Mutation]) -> Iterator[Columns]:
    while rows := list(islice(mutations, _ROWS)):
        yield columns_of(rows)

"""``penstock append``: JSON lines into a log, all of them as one transaction or none."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

from publishers.model.position import Position
from publishers.mutations.mutation import Mutation, columns_of
from publishers.wal import Columns
from transports.cli.arguments import ArgumentParser
from transports.cli.source import owned
from transports.codec.changes import read_lines

__all__ = ["add_arguments", "run"]

_ROWS: Final = 4096


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.value("directory", "DIR", "directory of a log, made if there is none, or of a store")
    parser.value("file", "FILE", "JSON lines (default: standard input)", nargs="?", default="-")
    parser.log_name("store")


def run(chosen: argparse.Namespace) -> int:
    """Appends a file, or standard input, and prints one line."""
    with _source(chosen.file) as lines:
        mutations = read_lines(lines)
        # A first line that is wrong does not even make a log.
        first = next(mutations, None)
        if first is None:
            print("0 changes: nothing was committed")
            return 0
        with owned(chosen.directory, chosen.log) as log:
            commit = log.commit_columns(_batches(chain((first,), mutations)))
            count = commit.changes - 1  # beside the TRANSACTION event
            what = f"{count} change{'' if count == 1 else 's'} committed to {log.name}"
            print(f"{what} as version {commit.version}, cursor {log.token(Position(commit.version + 1, 0))}")
    return 0


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

"""``penstock append``: JSON lines into a log, all of them as one transaction or none."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from publishers.changelog import ChangeLog
from publishers.errors import InvalidChange
from publishers.mutation import Mutation, columns_of, remove, upsert
from publishers.position import Position
from publishers.wal import Columns
from transports.errors import InvalidInput

__all__ = ["append"]

_ROWS: Final = 4096
_RIGHT: Final = 'a JSON object such as {"entity_type": "order", "key": "42", "body": {...}}'


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One change. What ``penstock tail`` prints beyond it is accepted and ignored."""

    entity_type: str | None = None
    key: str | None = None
    operation: Literal["UPSERT", "REMOVE", "TRANSACTION"] | None = None
    body: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()
    changed: list[str] | None = None
    meta: dict[str, object] | None = None
    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    area: Literal["DATA", "INFRASTRUCTURE"] = "DATA"
    cursor: str | None = None
    version: int | None = None
    index: int | None = None
    count: int | None = None
    timestamp: str | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def append(chosen: argparse.Namespace) -> int:
    """Appends a file, or standard input, and prints one line."""
    with _source(chosen.file) as lines:
        mutations = _mutations(lines)
        # A first line that is wrong does not even make a log.
        first = next(mutations, None)
        if first is None:
            print("0 changes: nothing was committed")
            return 0
        with ChangeLog.open(chosen.directory) as log:
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


def _mutations(lines: Iterable[bytes]) -> Iterator[Mutation]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidInput(number, f"{_RIGHT} is expected ({error})") from None
        if line.operation == "TRANSACTION":
            continue
        try:
            yield _mutation(line)
        except InvalidChange as error:
            raise InvalidInput(number, str(error)) from None


def _mutation(line: _Line) -> Mutation:
    if line.entity_type is None:
        raise InvalidChange("entity_type", None, "given")
    if line.key is None:
        raise InvalidChange("key", None, "given")
    before, body = _given(line.before), _given(line.body)
    if line.operation == "REMOVE":
        if body is not None:
            raise InvalidChange("body", body, "left out with REMOVE")
        return remove(
            line.entity_type,
            line.key,
            before=before,
            meta=line.meta,
            schema_version=line.schema_version,
            entry_version=line.entry_version,
            origin=line.origin,
        )
    if body is None:
        raise InvalidChange("body", None, "given with UPSERT")
    return upsert(
        line.entity_type,
        line.key,
        body,
        before=before,
        changed=line.changed,
        meta=line.meta,
        schema_version=line.schema_version,
        entry_version=line.entry_version,
        origin=line.origin,
    )


def _given(raw: msgspec.Raw) -> bytes | None:
    value = bytes(raw)
    return None if value in (b"", b"null") else value

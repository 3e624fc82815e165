"""``penstock append``: JSON lines into a log, all of them as one transaction or none."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import msgspec

from publishers.errors import InvalidChange
from publishers.model.change import Action
from publishers.model.position import Position
from publishers.mutations.arguments import key_bytes, meta_of
from publishers.mutations.fields import path_names
from publishers.mutations.mutation import (
    REMOVE,
    Mutation,
    columns_of,
    expire,
    rekey,
    remove,
    schema,
    truncate,
    upsert,
)
from publishers.wal import Columns
from transports.cli.arguments import ArgumentParser
from transports.cli.source import owned
from transports.errors import InvalidInput

__all__ = ["add_arguments", "run"]

_ROWS: Final = 4096
_RIGHT: Final = 'a JSON object such as {"entity_type": "order", "key": "42", "body": {...}}'


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One change.

    Of what ``penstock tail`` prints beyond it, ``version`` is the entry version of an entity that has none of its own, as
    it is for subscribers there; the rest is accepted and ignored.

    Of a key change ``tail`` prints both halves, ``linked`` to each other; ``REKEY`` with ``new_key`` makes both.
    """

    entity_type: str | None = None
    key: str | None = None
    operation: Literal["UPSERT", "REMOVE", "TRUNCATE", "EXPIRE", "REKEY", "TRANSACTION"] | None = None
    body: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()
    changed: list[str] | Literal["auto"] | None = None
    meta: dict[str, object] | None = None
    schema_version: int | None = None
    entry_version: int | None = None
    origin: str | None = None
    expires_at: datetime | None = None
    linked: str | None = None
    new_key: str | None = None
    field: str | None = None
    action: Action | None = None
    area: Literal["DATA", "SCHEMA", "INFRASTRUCTURE"] = "DATA"
    lacking: list[str] | None = None
    cursor: str | None = None
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    index: int | None = None
    count: int | None = None
    timestamp: str | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.value("directory", "DIR", "directory of a log, made if there is none, or of a store")
    parser.value("file", "FILE", "JSON lines (default: standard input)", nargs="?", default="-")
    parser.log_name("store")


def run(chosen: argparse.Namespace) -> int:
    """Appends a file, or standard input, and prints one line."""
    with _source(chosen.file) as lines:
        mutations = _mutations(lines)
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
    if line.area == "SCHEMA":
        return _schema(line, line.entity_type)
    told: dict[str, Any] = {"meta": line.meta, "schema_version": line.schema_version, "origin": line.origin}
    if line.operation == "TRUNCATE":
        return truncate(line.entity_type, **told)
    if line.key is None:
        raise InvalidChange("key", None, "given")
    before, body = _given(line.before), _given(line.body)
    told |= {"before": before, "entry_version": _entry_version(line)}
    if line.field is not None or line.linked is not None:
        return _part(line, line.entity_type, line.key, body)
    if line.operation in ("REMOVE", "EXPIRE"):
        if body is not None:
            raise InvalidChange("body", body, f"left out with {line.operation}")
        if line.operation == "EXPIRE":
            return expire(line.entity_type, line.key, expires_at=line.expires_at, **told)
        return remove(line.entity_type, line.key, **told)
    if body is None:
        raise InvalidChange("body", None, f"given with {line.operation or 'UPSERT'}")
    told |= {"changed": line.changed, "expires_at": line.expires_at}
    if line.operation == "REKEY":
        if line.new_key is None:
            raise InvalidChange("new_key", None, "given with REKEY")
        return rekey(line.entity_type, line.key, line.new_key, body, **told)
    return upsert(line.entity_type, line.key, body, **told)


def _schema(line: _Line, entity_type: str) -> Mutation:
    body = _given(line.body)
    if body is None:
        raise InvalidChange("body", None, "given with SCHEMA")
    return schema(
        entity_type,
        body,
        line.schema_version,
        part=line.key or "entity",
        before=_given(line.before),
        changed=line.changed,
        meta=line.meta,
        origin=line.origin,
    )


def _part(line: _Line, entity_type: str, key: str, body: bytes | None) -> Mutation:
    """A change that follows another one: of a field, or the other half of a key change."""
    if line.field is not None:
        path_names(line.field)
        if line.action is None:
            raise InvalidChange("action", None, "given with field")
        if body is None and line.action is not Action.REMOVE:
            raise InvalidChange("body", None, f"given with the action {line.action.value}")
    made = upsert(entity_type, key, body or b"{}", before=_given(line.before), changed=line.changed)
    extras = meta_of(
        line.meta,
        line.schema_version,
        _entry_version(line),
        line.origin,
        expires_at=line.expires_at,
        linked=None if line.linked is None else key_bytes(line.linked, "linked"),
        field=line.field,
        action=None if line.action is None else line.action.value,
    )
    return msgspec.structs.replace(
        made,
        operation=REMOVE if line.operation == "REMOVE" else made.operation,
        body=body,
        meta=extras,
        entry_version=_entry_version(line),
    )


def _entry_version(line: _Line) -> int | None:
    return line.version if line.entry_version is None else line.entry_version


def _given(raw: msgspec.Raw) -> bytes | None:
    value = bytes(raw)
    return None if value in (b"", b"null") else value

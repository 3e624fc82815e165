"""``penstock dump``: prints the frames of a log as JSON lines."""

import argparse
import base64
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from publishers.errors import InvalidOption, PositionMalformed
from publishers.model.change import Area, Operation
from publishers.model.position import PositionToken
from publishers.wal import Column, Columns
from publishers.wal.checks import Dumped, DumpGap, Verdict, dump
from publishers.wal.format.frame import COMPRESSED, CONTROL, FIRST, LAST, NO_PRODUCER
from transports.cli.arguments import ArgumentParser
from transports.cli.output import print_json
from transports.cli.source import logs_in
from transports.cli.verify import verified

__all__ = ["add_arguments", "run"]

_FLAGS: Final = ((FIRST, "FIRST"), (LAST, "LAST"), (COMPRESSED, "COMPRESSED"), (CONTROL, "CONTROL"))
_AREAS: Final = {int(area): area.name for area in Area}
_OPERATIONS: Final = {int(operation): operation.name for operation in Operation}


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Prints the frames of a log, up to the first damage, as JSON lines."
    parser.epilog = "Exit codes: those of 'penstock verify'."
    parser.directory()
    parser.value("--from", "P", "from this version, or cursor, on", dest="since")
    parser.flag("--headers", "without the changes")
    parser.flag("--salvage", "also print what follows a damage, and .torn and .broken files")


def run(chosen: argparse.Namespace) -> int:
    """Verifies each log, prints its frames, and returns the worst verdict."""
    since = _version(chosen.since)
    several = len(logs_in(chosen.directory)) > 1
    worst = Verdict.SOUND
    for report in verified(chosen.directory):
        worst = max(worst, report.verdict)
        named = {"log": report.path.name} if several else {}
        for finding in report.findings:
            if finding.verdict:
                print(f"penstock: {report.path}: {finding}", file=sys.stderr)
        if report.segments:
            for one in dump(report, since=since, salvage=chosen.salvage):
                line = _gap(one) if isinstance(one, DumpGap) else _frame(one, headers=chosen.headers)
                print_json(named | line)
    return int(worst)


def _version(text: str | None) -> int:
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        return PositionToken.parse(text).position.version
    except PositionMalformed:
        raise InvalidOption("--from", text, "a version, or a cursor such as events carry") from None


def _gap(gap: DumpGap) -> dict[str, Any]:
    return {"file": gap.name, "offset": gap.offset, "damage": gap.kind, "why": gap.why}


def _frame(one: Dumped, *, headers: bool) -> dict[str, Any]:
    header = one.header
    fields: dict[str, Any] = {
        "file": one.name,
        "offset": one.offset,
        "bytes": header.extent,
        "version": header.version,
        "firstIndex": header.first_index,
        "count": header.count,
        "flags": [name for flag, name in _FLAGS if header.flags & flag],
        "committedAt": header.committed_at,
        "durable": header.durable,
        "crc": f"{header.crc:08x}",
        "previous": f"{header.previous:08x}",
    }
    if header.producer != NO_PRODUCER:
        fields |= {"producer": header.producer.hex(), "producerSequence": header.producer_sequence}
    if one.salvaged:
        fields["salvaged"] = True
    if headers or header.flags & CONTROL:
        return fields
    if one.columns is None:
        return fields | {"damage": "payload"}
    return fields | {"annotations": _json(one.annotations or b"null"), "changes": list(_changes(one.columns))}


def _changes(columns: Columns) -> Iterator[dict[str, Any]]:
    images: Iterable[tuple[str, Column | None]] = zip(
        ("body", "before", "changed", "meta"), columns.optional, strict=True
    )
    present = [(name, column) for name, column in images if column is not None]
    for row in range(columns.count):
        area, operation = divmod(columns.kinds[row], 16)
        kind = 0 if columns.type_ids is None else columns.type_ids[row]
        fields: dict[str, Any] = {
            "area": _AREAS.get(area, area),
            "operation": _OPERATIONS.get(operation, operation),
            "entityType": columns.entity_types[kind] if kind < len(columns.entity_types) else None,
            "key": _text(columns.key[row] or b""),
        }
        for name, column in present:
            value = column[row]
            if value is not None:
                fields[name] = _json(bytes(value))
        yield fields


def _text(data: bytes) -> Any:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _json(data: bytes) -> Any:
    """Returns JSON unchanged, digit for digit; data that is not JSON as base64."""
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"base64": base64.b64encode(data).decode()}
    return msgspec.Raw(data) if b"\n" not in data else plain

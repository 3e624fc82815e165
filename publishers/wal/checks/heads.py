"""Examines HEAD byte by byte: its content, and its damage."""

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import FormatTooNew
from publishers.wal.checks.report import Finding, Verdict
from publishers.wal.disk.filesystem import FileSystem
from publishers.wal.files.head import CUT, HEAD_BYTES, HEAD_NAME, SLOT_BYTES, SLOTS, HeadState, unpack_slots

__all__ = ["HeadPage", "examine_head"]

_TRIES: Final = 8


class HeadPage(NamedTuple):
    """The result for HEAD.

    Attributes:
        state: The slot in force, None if there is none.
        findings: Its damage.
    """

    state: HeadState | None
    findings: list[Finding]


def examine_head(filesystem: FileSystem, directory: Path) -> HeadPage:
    """Reads HEAD; repeats the read if it finds damage, because a slot may just be written."""
    found = _examine(filesystem, directory)
    for _ in range(_TRIES):
        if not found.findings:
            break
        found = _examine(filesystem, directory)
    return found


def _examine(filesystem: FileSystem, directory: Path) -> HeadPage:
    try:
        with contextlib.closing(filesystem.open(directory / HEAD_NAME, "read")) as file:
            data = file.pread(HEAD_BYTES, 0)
            size = file.size()
        slots, state = unpack_slots(data)
    except FileNotFoundError:
        return _without("head-missing", Verdict.CORRUPT, "the file is missing")
    except OSError as error:
        return _without("unreadable", Verdict.UNREADABLE, f"it cannot be read ({error.strerror or error})")
    except FormatTooNew as error:
        return _without("format", Verdict.UNREADABLE, str(error))
    if state is None:
        return _without("head", Verdict.CORRUPT, "no slot is valid")
    findings = []
    if size != HEAD_BYTES:
        why = f"it has {size} of {HEAD_BYTES} bytes"
        findings.append(_finding("head", Verdict.CORRUPT, min(size, HEAD_BYTES), why))
    for number, slot in enumerate(slots):
        finding = _slot(data, number, slot, state)
        if finding is not None:
            findings.append(finding)
    if state.flags & CUT:
        why = "a truncation of withheld transactions was begun and not finished"
        findings.append(_finding("cut", Verdict.TORN, SLOTS[state.counter % 2], why))
    return HeadPage(state, findings)


def _slot(data: bytes, number: int, slot: HeadState | None, state: HeadState) -> Finding | None:
    at = SLOTS[number]
    # Checked first, since no torn write of a slot reaches there.
    used = len(slot.pack()) if slot is not None else SLOT_BYTES
    rest = data[at + used : at + 4096]
    if rest.count(0) != len(rest):
        where = at + used + len(rest) - len(rest.lstrip(b"\0"))
        return _finding("padding", Verdict.CORRUPT, where, "the bytes after a slot must be zeros")
    if slot is None:
        if state.counter == 1 and not any(data[at : at + used]):
            return None  # the other slot is the first that was ever written
        return _finding("head-slot", Verdict.TORN, at, f"slot {number} is incomplete; the other slot is used")
    if slot.counter % 2 != number or slot.log_id != state.log_id or state.counter - slot.counter > 1:
        return _finding("head-slot", Verdict.CORRUPT, at, f"slot {number} does not fit the other slot")
    return None


def _without(kind: str, verdict: Verdict, why: str) -> HeadPage:
    return HeadPage(None, [_finding(kind, verdict, 0, why)])


def _finding(kind: str, verdict: Verdict, offset: int, why: str) -> Finding:
    return Finding(kind, verdict, 0, offset, HEAD_NAME, why)

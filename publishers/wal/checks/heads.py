"""HEAD looked at byte by byte: what it tells, and what is wrong with it."""

from pathlib import Path
from typing import Final, NamedTuple

from publishers.errors import FormatTooNew
from publishers.wal.checks.report import Finding, Verdict
from publishers.wal.disk.filesystem import FileSystem
from publishers.wal.files.head import CUT, HEAD_NAME, SLOT_BYTES, HeadState

__all__ = ["HeadPage", "examine_head"]

_BYTES: Final = 8192
_PLACES: Final = (0, 4096)
_TRIES: Final = 8


class HeadPage(NamedTuple):
    """HEAD.

    Attributes:
        state: The slot that counts, None if there is none.
        findings: What is wrong.
    """

    state: HeadState | None
    findings: list[Finding]


def examine_head(filesystem: FileSystem, directory: Path) -> HeadPage:
    """Reads HEAD. A slot that is being written at this moment is read again."""
    found = _examine(filesystem, directory)
    for _ in range(_TRIES):
        if not found.findings:
            break
        found = _examine(filesystem, directory)
    return found


def _examine(filesystem: FileSystem, directory: Path) -> HeadPage:
    try:
        file = filesystem.open(directory / HEAD_NAME, "read")
        try:
            data = file.pread(_BYTES, 0)
            size = file.size()
        finally:
            file.close()
    except FileNotFoundError:
        return HeadPage(None, [_finding("head-missing", Verdict.CORRUPT, 0, "the file is missing")])
    except OSError as error:
        return HeadPage(
            None,
            [_finding("unreadable", Verdict.UNREADABLE, 0, f"it cannot be read ({error.strerror or error})")],
        )
    try:
        slots = [HeadState.unpack(data[at : at + 4096]) for at in _PLACES]
    except FormatTooNew as error:
        return HeadPage(None, [_finding("format", Verdict.UNREADABLE, 0, str(error))])
    state = max((slot for slot in slots if slot), key=lambda slot: slot.counter, default=None)
    if state is None:
        return HeadPage(None, [_finding("head", Verdict.CORRUPT, 0, "no slot is valid")])
    findings = []
    if size != _BYTES:
        findings.append(
            _finding("head", Verdict.CORRUPT, min(size, _BYTES), f"it has {size} of {_BYTES} bytes")
        )
    for number, slot in enumerate(slots):
        finding = _slot(data, number, slot, state)
        if finding is not None:
            findings.append(finding)
    if state.flags & CUT:
        why = "a cut of withheld transactions was begun and not finished"
        findings.append(_finding("cut", Verdict.TORN, _PLACES[state.counter % 2], why))
    return HeadPage(state, findings)


def _slot(data: bytes, number: int, slot: HeadState | None, state: HeadState) -> Finding | None:
    at = _PLACES[number]
    # First, since no write of a slot that was torn reaches there.
    used = len(slot.pack()) if slot is not None else SLOT_BYTES
    rest = data[at + used : at + 4096]
    if rest.count(0) != len(rest):
        where = at + used + len(rest) - len(rest.lstrip(b"\0"))
        return _finding("padding", Verdict.CORRUPT, where, "there must be zeros behind a slot")
    if slot is None:
        if state.counter == 1 and not any(data[at : at + used]):
            return None  # the other one is the first that was ever written
        return _finding("head-slot", Verdict.TORN, at, f"slot {number} is not whole; the other one counts")
    if slot.counter % 2 != number or slot.log_id != state.log_id or state.counter - slot.counter > 1:
        return _finding("head-slot", Verdict.CORRUPT, at, f"slot {number} does not fit the other one")
    return None


def _finding(kind: str, verdict: Verdict, offset: int, why: str) -> Finding:
    return Finding(kind, verdict, 0, offset, HEAD_NAME, why)

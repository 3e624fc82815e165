"""The report of an examination, readable for people and programs."""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from publishers.wal.read.catalog import Location

__all__ = ["Finding", "Kind", "Report", "Verdict"]

Kind = str
"""The class of a finding; ``docs/operating.md`` lists all."""


class Verdict(IntEnum):
    """The severity of a finding; the value is the exit code of ``penstock verify``."""

    SOUND = 0
    """Every byte is unchanged."""
    TORN = 1
    """A crash has left data that was never acknowledged; the next opening for writing settles it."""
    CORRUPT = 2
    """Acknowledged data, or data derived from it, is damaged or missing."""
    UNREADABLE = 3
    """Unknown: there is no log, or the disk or the permissions prevent reading it."""


class Finding(NamedTuple):
    """One finding.

    Attributes:
        kind: Its class.
        verdict: Its severity; SOUND for a mere note.
        segment: The segment, 0 if none is concerned.
        offset: The offset.
        name: Name of the file.
        why: What is wrong, in a sentence.
        until: Offset of the next readable data, None if there is none.
    """

    kind: Kind
    verdict: Verdict
    segment: int
    offset: int
    name: str
    why: str
    until: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The finding in the form that the command prints."""
        fields: dict[str, Any] = self._asdict()
        fields["verdict"] = self.verdict.name
        return fields

    def __str__(self) -> str:
        return f"{self.verdict.name.lower()}: {self.kind} in {self.name} at byte {self.offset}: {self.why}"


@dataclass(slots=True)
class Report:
    """What is known of a log after every byte of it has been examined.

    Attributes:
        path: Its directory.
        log_id: 32 hexadecimal digits, None if unknown.
        live: Whether it is open for writing; then only its visible part was examined.
        epoch: The greatest epoch found anywhere.
        random: Its random bits; 0 for an epoch of format 1.
        oldest: First version of the oldest segment.
        version: Last version of the unbroken run from there on.
        end: Where that run ends; None if not even the first segment begins well.
        seen: Greatest version found anywhere, intact or lost.
        segments: Number of examined segments.
        frames: Intact frames, also those behind damage.
        transactions: Complete transactions among them.
        bytes: Bytes examined.
        first: Number of the oldest segment.
        broken: SOUND if the run ends where the log does, else the severity of what ends it.
        findings: All findings, in the order of the log.
        overtaken: Whether retention deleted a segment that was to be examined; another examination then finds more.
    """

    path: Path
    log_id: str | None = None
    live: bool = False
    epoch: int = 0
    random: int = 0
    first: int = 0
    oldest: int = 0
    version: int = 0
    end: Location | None = None
    seen: int = 0
    segments: int = 0
    frames: int = 0
    transactions: int = 0
    bytes: int = 0
    broken: Verdict = Verdict.SOUND
    findings: list[Finding] = field(default_factory=list)
    overtaken: bool = False

    def met(self, epoch: int, random: int) -> None:
        """Notes an epoch that was found."""
        # Of two epochs with the same number the one of a segment wins, because segments are examined last.
        if epoch >= self.epoch:
            self.epoch, self.random = epoch, random

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings."""
        return max((finding.verdict for finding in self.findings), default=Verdict.SOUND)

    @property
    def lost(self) -> tuple[int, int] | None:
        """First and last version that are lost, or would be lost by a repair; None if none is known to be."""
        return (self.version + 1, self.seen) if self.broken and self.seen > self.version else None

    def as_json(self) -> dict[str, Any]:
        """The report in the form that the command prints."""
        return {
            "path": str(self.path),
            "verdict": self.verdict.name,
            "logId": self.log_id,
            "live": self.live,
            "epoch": self.epoch,
            "oldest": self.oldest,
            "newest": self.version,
            "lost": list(self.lost) if self.lost else None,
            "segments": self.segments,
            "frames": self.frames,
            "transactions": self.transactions,
            "bytes": self.bytes,
            "findings": [finding.as_json() for finding in self.findings],
        }

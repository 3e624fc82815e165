"""What an examination of a log found, in words that people and programs can use."""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from publishers.wal.read.catalog import Location

__all__ = ["Finding", "Kind", "Report", "Verdict"]

Kind = str
"""The class of a damage; the list is in ``docs/operating.md``."""


class Verdict(IntEnum):
    """How bad it is; the value is the exit code of ``penstock verify``."""

    SOUND = 0
    """Every byte is as it was written."""
    TORN = 1
    """A crash has left something that was never acknowledged; the next opening for writing settles it."""
    CORRUPT = 2
    """Something that was acknowledged, or derived from that, is damaged or missing."""
    UNREADABLE = 3
    """It cannot be told: no log, or the disk or the permissions do not let it be read."""


class Finding(NamedTuple):
    """One thing that is not as it should be.

    Attributes:
        kind: Its class.
        verdict: How bad it is; SOUND for a mere note.
        segment: In which segment, 0 if in none.
        offset: At which byte.
        name: Of the file.
        why: What is wrong, in a sentence.
        until: Where what can be made out goes on, None if nowhere.
    """

    kind: Kind
    verdict: Verdict
    segment: int
    offset: int
    name: str
    why: str
    until: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
        told: dict[str, Any] = self._asdict()
        told["verdict"] = self.verdict.name
        return told

    def __str__(self) -> str:
        return f"{self.verdict.name.lower()}: {self.kind} in {self.name} at byte {self.offset}: {self.why}"


@dataclass(slots=True)
class Report:
    """What is known of a log after every byte of it has been looked at.

    Attributes:
        path: Its directory.
        log_id: 32 hexadecimal digits, None if nothing tells it.
        live: Whether somebody has it open for writing; then only what is shown has been examined.
        epoch: The greatest that was met anywhere.
        random: Its random bits; 0 for one of format 1.
        oldest: First version of the oldest segment.
        version: Last version of the unbroken run from there on.
        end: Where that run ends; None if not even the first segment begins well.
        seen: Greatest version that anything speaks of, be it intact or lost.
        segments: How many segments were examined.
        frames: Intact frames, also those beyond a damage.
        transactions: Whole transactions among them.
        bytes: Bytes examined.
        first: Number of the oldest segment.
        broken: SOUND if the run ends where the log does, else how bad it is what ends it.
        findings: What is not as it should be, in the order of the log.
        overtaken: Whether retention took a segment that was to be examined, so that another examination tells more.
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
        """Notes an epoch that something tells of."""
        if epoch >= self.epoch:  # of two with one number that of a segment counts, which is looked at last
            self.epoch, self.random = epoch, random

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings."""
        return max((finding.verdict for finding in self.findings), default=Verdict.SOUND)

    @property
    def lost(self) -> tuple[int, int] | None:
        """First and last version that are, or would be after a repair, lost; None if none is known to be."""
        return (self.version + 1, self.seen) if self.broken and self.seen > self.version else None

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
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

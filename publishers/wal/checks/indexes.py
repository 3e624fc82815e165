"""The index beside a closed segment: derived from it, so never evidence, and rebuilt by whoever misses it."""

from pathlib import Path
from uuid import UUID

from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.disk.filesystem import FileSystem
from publishers.wal.files.segment import SparseIndex, Trailer, index_name, read_index
from publishers.wal.format.frame import Chain

__all__ = ["examine_index", "find_index"]


def find_index(
    filesystem: FileSystem, directory: Path, report: Report, log_id: UUID, number: int
) -> tuple[SparseIndex, Trailer] | None:
    """Reads an index; that there is none is a note, since it is written some time after the segment was closed."""
    try:
        return read_index(filesystem, directory, log_id, number)
    except FileNotFoundError:
        _find(report, "index-missing", number, "there is none; the next opening makes it", Verdict.SOUND)
    except OSError as error:
        _find(report, "unreadable", number, f"it cannot be read ({error.strerror})", Verdict.UNREADABLE)
    except ValueError as error:
        _find(report, "index", number, str(error), Verdict.CORRUPT)
    return None


def examine_index(
    report: Report,
    number: int,
    trailer: Trailer,
    chain: Chain,
    end: int,
    left: dict[int, tuple[int, int, int]],
) -> None:
    """Compares an index with its segment, which is intact.

    Args:
        report: Where findings go.
        number: Of the segment.
        trailer: Of the index.
        chain: Behind the last frame.
        end: Where that ends.
        left: Entries for which no such frame was found.
    """
    if (trailer.last_version, trailer.last_crc, trailer.end) != (chain.version, chain.crc, end):
        _find(report, "index", number, "its trailer does not tell the end of the segment", Verdict.CORRUPT)
    elif left:
        why = f"it has {len(left)} entries that are no frames, the first for byte {min(left)}"
        _find(report, "index", number, why, Verdict.CORRUPT)


def _find(report: Report, kind: str, number: int, why: str, verdict: Verdict) -> None:
    report.findings.append(Finding(kind, verdict, number, 0, index_name(number), why))

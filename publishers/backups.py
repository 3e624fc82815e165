"""Backups of logs and of stores, and restoring them: the public face of `publishers.wal.backups`.

**A store** is copied log by log, and its system log last: the system log lists the logs, so the copy never lists a log that
it lacks. If the system log meanwhile lists new logs, these are copied too, and then the system log again. A dropped log stays
in a backup that already had it, as a directory that the system log does not list. A restore works the same way.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from publishers.errors import BackupRefused, InvalidOption, NotALog
from publishers.options import check_directory, check_switches
from publishers.slots.inspection import backed_up_places
from publishers.store.directory import SYSTEM_DIRECTORY, kind_of
from publishers.store.store import ChangeStore
from publishers.wal import FileSystem, RealFileSystem
from publishers.wal.backups import Copied, check_backup, copy_log, make_room
from publishers.wal.checks import Progress, Verdict
from publishers.wal.files.head import HEAD_NAME

__all__ = ["BackupReport", "backup", "restore"]

_ATTEMPTS: Final = 8

_CopyLog = Callable[[Path, Path], Copied]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup or a restore.

    Attributes:
        source: Directory that was copied.
        target: Directory of the copy.
        logs: The result for each log; for a store the system log is the last one.
        replaced: Where a restore has moved the previous content of the directory; None if there was none.
        seconds: Duration.
    """

    source: Path
    target: Path
    logs: tuple[Copied, ...]
    replaced: Path | None
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of ``penstock verify`` on the copies."""
        return max(one.report.verdict for one in self.logs)

    def as_json(self) -> dict[str, Any]:
        """The report in the form that the command prints."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "verdict": self.verdict.name,
            "replaced": None if self.replaced is None else str(self.replaced),
            "seconds": round(self.seconds, 3),
            "logs": [
                {
                    "linked": one.linked,
                    "copied": one.copied,
                    "kept": one.kept,
                    "copiedBytes": one.bytes,
                    "before": one.since,
                    **one.report.as_json(),
                }
                for one in self.logs
            ],
        }


def backup(
    path: str | Path,
    target: str | Path,
    *,
    copy: bool = False,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Copies the visible part of a log, or of each log of a store, even while another process writes it.

    Repeated with the same target, after an interrupt or some time later, it adds what is new. The target is a valid backup at
    every moment. Withheld transactions are not copied (``docs/backup.md``).

    Args:
        path: Directory of the log or store. Nothing in it is changed.
        target: Directory of the backup: empty, missing, or with an earlier backup of the same log.
        copy: Copy closed segments even where hard links are possible. Where they are not, segments are copied anyway.
        filesystem: Holds both directories; the real one if None.
        progress: Called now and then with the bytes done and the bytes in total, first while copying, then while examining.

    Raises:
        BackupRefused: If the target holds something else, or retention deletes faster than can be copied.
        InvalidOption: If one of the directories lies in the other, or an argument is invalid.
        LogBusy: If the target is open for writing, or another backup writes into it.
        NotALog: If there is no log.
        WalCorrupted: If the log is damaged where it ends.
        OSError: From the file system.
    """
    check_switches(copy=copy)
    storage = filesystem or RealFileSystem()
    source, place = _apart(path, target, "target")
    began = time.monotonic()
    make = partial(_copy, storage, links=not copy, progress=progress)
    if kind_of(storage, source) == "store":
        _check_store(storage, source, place)
        logs = _copy_store(storage, source, place, make)
    else:
        logs = (make(source, place),)
    return BackupReport(source, place, logs, None, time.monotonic() - began)


def restore(
    backup: str | Path,
    path: str | Path,
    *,
    replace: bool = False,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Examines every byte of a backup, and then copies it to where it can be opened for writing.

    The first opening for writing begins an epoch. So positions that clients have kept beyond the backup are refused with
    `PositionForked`. A call after an interrupt continues the restore.

    Args:
        backup: Directory of the backup. Nothing in it is changed.
        path: Directory for the log or the store: an empty or a missing one.
        replace: If the directory is not empty, rename it, and name it in the report, instead of refusing it.
        filesystem: Holds both directories; the real one if None.
        progress: Called now and then with the bytes done and the bytes in total, first while examining, then while copying.

    Raises:
        BackupRefused: If the backup is damaged, or the directory is not empty.
        InvalidOption: If one of the directories lies in the other, or an argument is invalid.
        LogBusy: If the directory is open for writing.
        NotALog: If there is no log in the backup.
        OSError: From the file system.
    """
    check_switches(replace=replace)
    storage = filesystem or RealFileSystem()
    source, place = _apart(backup, path, "path")
    began = time.monotonic()
    make = partial(_copy, storage, links=False, progress=progress)
    if kind_of(storage, source) != "store":
        check_backup(storage, source, progress)
        replaced = make_room(storage, place, replace=replace)
        logs: tuple[Copied, ...] = (make(source, place),)
    else:
        directories = {SYSTEM_DIRECTORY, *_directories(storage, source)}
        for name in sorted(directories):
            check_backup(storage, source / name, progress)

        def unfinished(names: list[str]) -> bool:
            system = place / SYSTEM_DIRECTORY  # copied last
            done = SYSTEM_DIRECTORY in names and HEAD_NAME in storage.listing(system)
            return directories.issuperset(names) and not done

        replaced = make_room(storage, place, replace=replace, unfinished=unfinished)
        logs = _copy_store(storage, source, place, make)
    return BackupReport(source, place, logs, replaced, time.monotonic() - began)


def _copy(
    storage: FileSystem, source: Path, target: Path, *, links: bool, progress: Progress | None
) -> Copied:
    places = partial(backed_up_places, storage, source)
    return copy_log(storage, source, target, links=links, progress=progress, places=places)


def _apart(source: str | Path, target: str | Path, parameter: str) -> tuple[Path, Path]:
    one, other = check_directory(source), check_directory(target)
    for inner, outer in ((one.resolve(), other.resolve()), (other.resolve(), one.resolve())):
        if inner == outer or outer in inner.parents:
            raise InvalidOption(
                parameter, str(target), f"a directory beside {source}, not in it or around it"
            )
    return one, other


def _directories(storage: FileSystem, store: Path) -> set[str]:
    """Returns the directories of the logs of a store, as its system log lists them."""
    with ChangeStore.open(store, read_only=True, filesystem=storage) as opened:
        return {opened.entry(name).directory for name in opened.names()}


def _check_store(storage: FileSystem, source: Path, target: Path) -> None:
    """Refuses a target that holds anything but logs."""
    try:
        names = storage.listing(target)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise BackupRefused(
            target, "it is not a directory", "name a directory, or a path that does not exist"
        ) from None
    ours = {SYSTEM_DIRECTORY, *_directories(storage, source)}
    strange = [name for name in names if name not in ours and kind_of(storage, target / name) != "log"]
    if strange:
        raise BackupRefused(
            target,
            f"it holds files that do not belong to a backup of a store: {', '.join(strange[:3])}",
            "use another directory, or empty this one if it is not needed",
        )


def _copy_store(storage: FileSystem, source: Path, target: Path, make: _CopyLog) -> tuple[Copied, ...]:
    done: dict[str, Copied] = {}
    for _ in range(_ATTEMPTS):
        for name in sorted(_directories(storage, source) - done.keys()):
            try:
                done[name] = make(source / name, target / name)
            except NotALog:
                if name in _directories(storage, source):
                    raise  # the log still exists: its absence is not due to a drop
        system = make(source / SYSTEM_DIRECTORY, target / SYSTEM_DIRECTORY)
        if _directories(storage, target) <= done.keys():
            return (*done.values(), system)
    raise BackupRefused(
        source,
        f"logs were created while it was copied, {_ATTEMPTS} times",
        "begin again when fewer are created: the copied logs are kept",
    )

"""Backups of logs and of stores, and restoring them: the public face of `publishers.wal.backups`.

**A store** is copied log by log, and its system log last: that one tells which logs there are, so it never tells of one that is
not there. Logs that were made meanwhile are copied until it knows of no other. A log that was dropped stays in a backup that
had it, as a directory of which the system log tells nothing. A restore goes the same way.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from publishers.errors import BackupRefused, InvalidOption, NotALog
from publishers.options import check_directory, check_switches
from publishers.store.directory import SYSTEM_DIRECTORY, kind_of
from publishers.store.store import ChangeStore
from publishers.wal import FileSystem, RealFileSystem
from publishers.wal.backups import Copied, check_backup, copy_log, make_room
from publishers.wal.checks import Progress, Verdict
from publishers.wal.files.head import HEAD_NAME

__all__ = ["BackupReport", "backup", "restore"]

_ATTEMPTS: Final = 8

_Copy = Callable[[Path, Path], Copied]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup, or a restore, has done.

    Attributes:
        source: Directory that was copied.
        target: Directory that it is in now.
        logs: What was done for each log; of a store the system log is the last one.
        replaced: Where a restore has put what was in the directory before; None if there was nothing.
        seconds: How long it took.
    """

    source: Path
    target: Path
    logs: tuple[Copied, ...]
    replaced: Path | None
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst of what `penstock verify` says of the copies."""
        return max(one.report.verdict for one in self.logs)

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
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
    """Copies what a log, or each log of a store, shows; also while another process writes it.

    Run again with the same target, after an interrupt or some time later, it adds what is new. The target is a backup at
    every moment. What is withheld is not copied (``docs/backup.md``).

    Args:
        path: Directory of the log or store. Nothing in it is changed.
        target: Directory of the backup: empty, missing, or with an earlier backup of the same log.
        copy: Copy closed segments also where hard links to them would do. Without links they are copied anyway.
        filesystem: Where both are; the real one if None.
        progress: Told now and then how many bytes of how many have been copied, and then examined.

    Raises:
        BackupRefused: If the target holds something else, or retention deletes faster than can be copied.
        InvalidOption: If one of the directories lies in the other, or an argument is none.
        LogBusy: If the target is open for writing, or another backup writes into it.
        NotALog: If there is no log.
        WalCorrupted: If the log is damaged where it ends.
        OSError: What the file system raises.
    """
    check_switches(copy=copy)
    storage = filesystem or RealFileSystem()
    source, place = _apart(path, target, "target")
    began = time.monotonic()
    make = partial(copy_log, storage, links=not copy, progress=progress)
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
    """Copies a backup, after a look at every byte of it, to where it can be opened for writing.

    That opening begins an epoch, so that positions which clients have kept of what the backup does not hold are refused, with
    `PositionForked`. Interrupted, and called again, it goes on.

    Args:
        backup: Directory of the backup. Nothing in it is changed.
        path: Where the log, or the store, is to be: an empty directory, or a missing one.
        replace: If it is not empty, rename it, and say so in the report, instead of refusing it.
        filesystem: Where both are; the real one if None.
        progress: Told now and then how many bytes of how many have been examined, and copied.

    Raises:
        BackupRefused: If the backup is damaged, or the directory holds something.
        InvalidOption: If one of the directories lies in the other, or an argument is none.
        LogBusy: If the directory is open for writing.
        NotALog: If there is no log in the backup.
        OSError: What the file system raises.
    """
    check_switches(replace=replace)
    storage = filesystem or RealFileSystem()
    source, place = _apart(backup, path, "path")
    began = time.monotonic()
    make = partial(copy_log, storage, links=False, progress=progress)
    if kind_of(storage, source) != "store":
        check_backup(storage, source, progress)
        replaced = make_room(storage, place, replace=replace)
        logs: tuple[Copied, ...] = (make(source, place),)
    else:
        directories = {SYSTEM_DIRECTORY, *_directories(storage, source)}
        for name in sorted(directories):
            check_backup(storage, source / name, progress)

        def unfinished(names: list[str]) -> bool:
            system = place / SYSTEM_DIRECTORY  # which comes last
            done = SYSTEM_DIRECTORY in names and HEAD_NAME in storage.listing(system)
            return directories.issuperset(names) and not done

        replaced = make_room(storage, place, replace=replace, unfinished=unfinished)
        logs = _copy_store(storage, source, place, make)
    return BackupReport(source, place, logs, replaced, time.monotonic() - began)


def _apart(source: str | Path, target: str | Path, parameter: str) -> tuple[Path, Path]:
    one, other = check_directory(source), check_directory(target)
    for inner, outer in ((one.resolve(), other.resolve()), (other.resolve(), one.resolve())):
        if inner == outer or outer in inner.parents:
            raise InvalidOption(
                parameter, str(target), f"a directory beside {source}, not in it or around it"
            )
    return one, other


def _directories(storage: FileSystem, store: Path) -> set[str]:
    """Where the logs of a store are, as its system log tells."""
    with ChangeStore.open(store, read_only=True, filesystem=storage) as opened:
        return {opened.entry(name).directory for name in opened.names()}


def _check_store(storage: FileSystem, source: Path, target: Path) -> None:
    """Refuses a target that holds something else than logs."""
    try:
        names = storage.listing(target)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise BackupRefused(target, "it is not a directory", "name one, or what is not there yet") from None
    ours = {SYSTEM_DIRECTORY, *_directories(storage, source)}
    strange = [name for name in names if name not in ours and kind_of(storage, target / name) != "log"]
    if strange:
        raise BackupRefused(
            target,
            f"it holds what belongs to no backup of a store: {', '.join(strange[:3])}",
            "give it another directory, or empty this one if it is not needed",
        )


def _copy_store(storage: FileSystem, source: Path, target: Path, make: _Copy) -> tuple[Copied, ...]:
    done: dict[str, Copied] = {}
    for _ in range(_ATTEMPTS):
        for name in sorted(_directories(storage, source) - done.keys()):
            try:
                done[name] = make(source / name, target / name)
            except NotALog:
                if name in _directories(storage, source):
                    raise  # it was not dropped meanwhile
        system = make(source / SYSTEM_DIRECTORY, target / SYSTEM_DIRECTORY)
        if _directories(storage, target) <= done.keys():
            return (*done.values(), system)
    raise BackupRefused(
        source,
        f"logs were made while it was copied, {_ATTEMPTS} times",
        "begin again when fewer are made: what is copied is kept",
    )

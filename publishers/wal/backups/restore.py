"""Putting a log back from its backup: into a directory that holds nothing, or beside what it held before."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from publishers.errors import BackupRefused
from publishers.wal.backups.target import belongs
from publishers.wal.checks.report import Verdict
from publishers.wal.checks.verify import Progress, verify
from publishers.wal.disk.filesystem import FileSystem, sync_names
from publishers.wal.files.directory import LOCK_NAME, take_lock
from publishers.wal.files.head import HEAD_NAME

__all__ = ["check_backup", "make_room"]

_EMPTY = "name an empty directory, or give --replace, which keeps what is there beside it"


def check_backup(filesystem: FileSystem, backup: Path, progress: Progress | None) -> None:
    """Looks at every byte of a backup. One that an interrupted run has left is as good as the run before.

    Raises:
        BackupRefused: If it is damaged, or none.
    """
    report = verify(backup, filesystem=filesystem, progress=progress)
    if report.verdict > Verdict.TORN:
        worst = max(report.findings, key=lambda finding: finding.verdict)
        raise BackupRefused(
            backup,
            f"what is in it cannot be restored as it is ({worst})",
            "'penstock verify' tells what is damaged; restore another backup, or repair a copy of this one",
        )


def make_room(
    filesystem: FileSystem,
    directory: Path,
    *,
    replace: bool,
    unfinished: Callable[[list[str]], bool] | None = None,
) -> Path | None:
    """Sees to it that a directory can be filled; returns where what it held lies now, if it held something.

    Args:
        filesystem: Where.
        directory: What is to be filled.
        replace: Rename a directory that is not empty, instead of refusing it.
        unfinished: Tells by its names whether a restore was interrupted there; None for that of a log.

    Raises:
        BackupRefused: If it is not empty, and is not to be replaced.
        LogBusy: If it is open for writing.
        OSError: From the file system.
    """
    try:
        names = filesystem.listing(directory)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise BackupRefused(
            directory, "it is not a directory", "name one, or what is not there yet"
        ) from None
    if not names:
        return None
    with _nobody_writes(filesystem, (directory, *(directory / name for name in names))):
        if not replace and (unfinished or _unfinished)(names):
            return None  # what a restore has left that was interrupted is compared, and completed
        if not replace:
            raise BackupRefused(directory, f"it is not empty ({', '.join(names[:3])})", _EMPTY)
        aside = _aside(filesystem, directory)
        filesystem.rename(directory, aside)
        sync_names(filesystem, directory.parent)
        return aside


@contextlib.contextmanager
def _nobody_writes(filesystem: FileSystem, directories: tuple[Path, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for directory in directories:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if LOCK_NAME in filesystem.listing(directory):
                    stack.callback(take_lock(filesystem, directory).close)
        yield


def _unfinished(names: list[str]) -> bool:
    """Whether a restore was interrupted there: nothing but files of a backup, and no HEAD, which it writes last."""
    return HEAD_NAME not in names and all(map(belongs, names))


def _aside(filesystem: FileSystem, directory: Path) -> Path:
    names = filesystem.listing(directory.parent)
    tries = (f"{directory.name}.replaced-{number}" for number in count(1))
    return directory.with_name(next(name for name in tries if name not in names))

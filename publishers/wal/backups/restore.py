"""The checks before a restore: the backup is examined, and the target directory is emptied by a rename."""

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

_EMPTY = "name an empty directory, or give --replace, which renames this one"


def check_backup(filesystem: FileSystem, backup: Path, progress: Progress | None) -> None:
    """Examines every byte of a backup. One that was interrupted counts as the previous one.

    Raises:
        BackupRefused: If it is damaged, or not a backup.
    """
    report = verify(backup, filesystem=filesystem, progress=progress)
    if report.verdict > Verdict.TORN:
        worst = max(report.findings, key=lambda finding: finding.verdict)
        raise BackupRefused(
            backup,
            f"it is damaged ({worst})",
            "'penstock verify' shows the damage; restore another backup, or repair a copy of this one",
        )


def make_room(
    filesystem: FileSystem,
    directory: Path,
    *,
    replace: bool,
    unfinished: Callable[[list[str]], bool] | None = None,
) -> Path | None:
    """Prepares the target directory of a restore.

    Args:
        filesystem: The file system.
        directory: The target directory.
        replace: Rename a directory that is not empty, instead of refusing it.
        unfinished: Whether names in the directory are of an interrupted restore; None for the restore of a log.

    Returns:
        The new name of the previous directory; None if it was empty or missing.

    Raises:
        BackupRefused: If it is not empty, and ``replace`` is False.
        LogBusy: If it is open for writing.
        OSError: From the file system.
    """
    try:
        names = filesystem.listing(directory)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise BackupRefused(
            directory, "it is not a directory", "name a directory, or a path that does not exist"
        ) from None
    if not names:
        return None
    with _unopened(filesystem, (directory, *(directory / name for name in names))):
        if not replace and (unfinished or _unfinished)(names):
            return None  # left by an interrupted restore, which this one completes
        if not replace:
            raise BackupRefused(directory, f"it is not empty ({', '.join(names[:3])})", _EMPTY)
        aside = _aside(filesystem, directory)
        filesystem.rename(directory, aside)
        sync_names(filesystem, directory.parent)
        return aside


@contextlib.contextmanager
def _unopened(filesystem: FileSystem, directories: tuple[Path, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for directory in directories:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if LOCK_NAME in filesystem.listing(directory):
                    stack.callback(take_lock(filesystem, directory).close)
        yield


def _unfinished(names: list[str]) -> bool:
    """Whether a restore was interrupted: there are only files of a backup, and no HEAD, which is written last."""
    return HEAD_NAME not in names and all(map(belongs, names))


def _aside(filesystem: FileSystem, directory: Path) -> Path:
    names = filesystem.listing(directory.parent)
    tries = (f"{directory.name}.replaced-{number}" for number in count(1))
    return directory.with_name(next(name for name in tries if name not in names))

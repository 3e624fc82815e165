"""Checks that the files that a follower has open are still those of its path, and continue the same history.

A check of the path costs one `stat`. The contents of HEAD and TAIL are compared with their earlier contents, since a copy may have
been written into the very same files.
"""

import contextlib
import errno
from pathlib import Path

from publishers.errors import LogGone, LogReplaced, WalCorrupted
from publishers.model.position import LogIdentity, epoch_text
from publishers.wal.disk.filesystem import File, FileSystem, check_exhausted, open_file
from publishers.wal.files.head import HEAD_NAME, HeadState, read_head
from publishers.wal.format.control import Epoch

__all__ = ["Presence", "continues", "head_of"]


def head_of(file: File) -> HeadState:
    """The state in HEAD.

    Raises:
        WalCorrupted: If HEAD is damaged, or cannot be read.
    """
    try:
        state = read_head(file)
    except OSError as error:
        check_exhausted(error)
        raise WalCorrupted(0, 0, f"HEAD cannot be read ({error})") from error
    if state is None:
        raise WalCorrupted(0, 0, "HEAD has no valid slot")
    return state


class Presence:
    """The identity and history of an open log, to compare with the present files of its path.

    A single check may mislead: a directory that is being renamed, a slot of HEAD that is being written, a transient error. So
    a caller checks twice before it acts on an error.

    Args:
        filesystem: The file system.
        directory: The directory of the log.
        head_file: HEAD, as it was opened.
        head: The state in HEAD at that time.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, head_file: File, head: HeadState) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._path = directory / HEAD_NAME
        self._head_file = head_file
        self._counter = head.counter
        self.known: LogIdentity = _identity(head)

    def holds(self) -> bool:
        """Whether the path names the open log, by a single check."""
        return self._head_file.is_at(self._path)

    def check_name(self) -> None:
        """Checks the directory and the HEAD of the path.

        Raises:
            LogGone: If there is no log.
            LogReplaced: If it is another directory, or another HEAD.
            LogUnreadable: If the path cannot be inspected.
            FormatTooNew, WalCorrupted: If the path names another HEAD that cannot be read.
        """
        if self.holds():
            return
        found = self._found()
        if self.holds():  # the error has passed
            return
        if found is None:
            raise LogGone(self._directory)
        raise LogReplaced(self.known, found)

    def _found(self) -> LogIdentity | None:
        """The log at the path now; None if there is none, or its creation is not finished."""
        try:
            file = open_file(self._filesystem, self._path, "read")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ESTALE:
                return None
            raise WalCorrupted(0, 0, f"HEAD cannot be read ({error})") from error
        with contextlib.closing(file):
            head = head_of(file)
        return _identity(head) if head.offset else None

    def check_head(self, head: HeadState) -> None:
        """Compares HEAD with its earlier state.

        If the newest of its two slots is damaged or half written, the other slot counts.

        Raises:
            LogReplaced: If HEAD belongs to another log, or is an older HEAD.
        """
        if head.log_id != self.known.log_id or head.counter < self._counter - 1:
            raise LogReplaced(self.known, _identity(head))
        self._counter = max(self._counter, head.counter)

    def replaced(self) -> LogReplaced:
        """The error for another history at the path, with the identity in its HEAD.

        Raises:
            WalCorrupted: If HEAD is damaged.
        """
        return LogReplaced(self.known, _identity(head_of(self._head_file)))


def continues(epochs: tuple[Epoch, ...], wrote: Epoch, version: int) -> bool:
    """Whether a history, given by its epochs, has a version of a certain epoch; true if that is no longer known."""
    if not epochs or version < epochs[0].first_version:
        return True
    if not any((one.epoch, one.random) == (wrote.epoch, wrote.random) for one in epochs):
        return False
    end = next((one.first_version for one in epochs if one.epoch > wrote.epoch), None)
    return end is None or version < end


def _identity(head: HeadState) -> LogIdentity:
    return LogIdentity(head.log_id, epoch_text(head.epoch, head.random))

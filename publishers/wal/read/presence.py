"""Whether what a follower has open is still what its path names, and goes on from where it was.

To look at the name costs one `stat`. What HEAD and TAIL tell is compared with what they told before, since a copy may have been
written over the very same files.
"""

import contextlib
import errno
from pathlib import Path

from publishers.errors import LogGone, LogReplaced, WalCorrupted
from publishers.model.position import LogIdentity, epoch_text
from publishers.wal.disk.filesystem import File, FileSystem, open_file
from publishers.wal.files.head import HEAD_NAME, HeadState, read_head
from publishers.wal.format.control import Epoch

__all__ = ["Presence", "continues", "head_of"]


def head_of(file: File) -> HeadState:
    """What HEAD tells.

    Raises:
        WalCorrupted: If it is damaged, or cannot be read.
    """
    try:
        state = read_head(file)
    except OSError as error:
        raise WalCorrupted(0, 0, f"HEAD cannot be read ({error})") from error
    if state is None:
        raise WalCorrupted(0, 0, "HEAD has no valid slot")
    return state


class Presence:
    """What was seen of a log, to be compared with what is there.

    A single look may mislead: a name that is being switched, a slot of HEAD that is being written, an error that passes. So
    who acts on an error of these looks twice.

    Args:
        filesystem: Where.
        directory: Of the log.
        head_file: HEAD, as it was opened.
        head: What it told then.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, head_file: File, head: HeadState) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._path = directory / HEAD_NAME
        self._head_file = head_file
        self._counter = head.counter
        self.known = _identity(head)

    def holds(self) -> bool:
        """Whether the path names the log that is open, as far as one look can tell."""
        return self._head_file.is_at(self._path)

    def check_name(self) -> None:
        """Looks at what the path names.

        Raises:
            LogGone: If there is no log.
            LogReplaced: If it is another directory, or another HEAD.
            LogUnreadable: If it cannot be looked at, so nobody knows.
            FormatTooNew, WalCorrupted: If HEAD is another one, and cannot be read.
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
        """What is there now; None for nothing, or for a log that is not whole yet."""
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
        """Compares what HEAD tells with what it told before.

        Of its two slots the newest may be damaged, or half written; then the one before it counts.

        Raises:
            LogReplaced: If it is that of another log, or an older one.
        """
        if head.log_id != self.known.log_id or head.counter < self._counter - 1:
            raise LogReplaced(self.known, _identity(head))
        self._counter = max(self._counter, head.counter)

    def replaced(self) -> LogReplaced:
        """What tells that another history is there, with what HEAD tells of that.

        Raises:
            WalCorrupted: If HEAD is damaged.
        """
        return LogReplaced(self.known, _identity(head_of(self._head_file)))


def continues(epochs: tuple[Epoch, ...], wrote: Epoch, version: int) -> bool:
    """Whether a history, told by its epochs, has a version of a certain epoch; also if nobody knows any more."""
    if not epochs or version < epochs[0].first_version:
        return True
    if not any((one.epoch, one.random) == (wrote.epoch, wrote.random) for one in epochs):
        return False
    end = next((one.first_version for one in epochs if one.epoch > wrote.epoch), None)
    return end is None or version < end


def _identity(head: HeadState) -> LogIdentity:
    return LogIdentity(head.log_id, epoch_text(head.epoch, head.random))

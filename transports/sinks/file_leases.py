"""A lease on one host: a file lock, which the kernel releases when its holder dies."""

import contextlib
from pathlib import Path

from publishers.errors import InvalidOption
from publishers.options import check_directory
from publishers.wal import FileSystem, RealFileSystem
from publishers.wal.disk.filesystem import File, put_file, read_file, sync_names

__all__ = ["FileLeases"]


class FileLeases:
    """A lease among the processes of one host; see `LeaseStore`.

    A holder that is suspended, not killed, keeps it. The epoch is in a file beside it, ``PATH.epoch``.

    Args:
        path: The file; created if missing. Not on a network file system, whose locks do not behave like those of one host.
        filesystem: The file system; the real one if None.

    Raises:
        InvalidOption: If the path is invalid.
    """

    def __init__(self, path: str | Path, *, filesystem: FileSystem | None = None) -> None:
        self._path = check_directory(path)
        self._epochs = self._path.with_name(f"{self._path.name}.epoch")
        self._filesystem = filesystem or RealFileSystem()
        self._file: File | None = None

    def acquire(self, holder: str, seconds: float) -> int | None:
        """See `LeaseStore.acquire`; ``seconds`` is ignored, because the kernel releases the lock at once.

        Raises:
            InvalidOption: If ``PATH.epoch`` holds no epoch.
            OSError: If a file cannot be written.
        """
        del seconds
        self.close()
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(contextlib.closing(self._filesystem.open(self._path, "create")))
            if not file.lock() or not file.is_at(self._path):  # another holder replaced the file meanwhile
                return None
            epoch = self._newest() + 1
            put_file(self._filesystem, self._epochs, f"{epoch} {holder}\n".encode())
            sync_names(self._filesystem, self._path.parent)
            stack.pop_all()
            self._file = file
            return epoch

    def renew(self, epoch: int) -> bool:
        """See `LeaseStore.renew`: False if the file was removed or replaced, because another process may lock the new file."""
        return self._file is not None and self._file.is_at(self._path) and self._newest() == epoch

    def release(self, epoch: int) -> None:
        """See `LeaseStore.release`."""
        del epoch
        self.close()

    def close(self) -> None:
        """See `LeaseStore.close`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _newest(self) -> int:
        try:
            text = read_file(self._filesystem, self._epochs)
        except FileNotFoundError:
            return 0
        number = bytes(text).partition(b" ")[0]
        if not number.isdigit():
            raise InvalidOption(
                "path", str(self._epochs), "a file that begins with the number of an epoch, or none"
            )
        return int(number)

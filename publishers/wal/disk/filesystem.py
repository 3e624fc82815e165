"""The file system interface of the log, and the real file system. Only the modules of this room open files or call ``os``.

The log accesses the disk only through a `FileSystem`, so tests can run the same code on a simulated one. Every method may
raise `OSError`, which the caller interprets.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol
from uuid import UUID

from flow import forks
from publishers.errors import LogExhausted, LogFull, LogUnreadable
from publishers.options import Readers
from publishers.wal.disk.descriptors import DESCRIPTORS
from publishers.wal.disk.modes import DIRECTORY_MODES, FILE_MODES, PRIVATE, make_readable
from publishers.wal.disk.notify import FileNotifier, Listener, Notifier, listen

__all__ = [
    "NO_SPACE",
    "Data",
    "FencedError",
    "File",
    "FileSystem",
    "Mode",
    "RealFileSystem",
    "SyncError",
    "check_exhausted",
    "check_openable",
    "full",
    "means_full",
    "memory_as_error",
    "names_of",
    "open_file",
    "put_file",
    "read_blocks",
    "read_file",
    "sync_file",
    "sync_names",
    "write_all",
]

Mode = Literal["read", "write", "create", "private"]
Data = bytes | bytearray | memoryview

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write on a full disk, after which the log stays usable. From a sync they fail the log."""

_LACKS: Final[dict[int | None, Literal["descriptors", "memory", "disk"]]] = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.EROFS: "disk",
}
"""Likewise, what else an operation may lack that the operator can give it while the log is open."""

_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS})
"""Errors of syncing a parent directory that another user owns, that cannot be synced, or that is read-only."""

_BLOCK: Final = 1 << 20

_UNOPENABLE: Final = frozenset(
    {
        errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENOTSUP, errno.ENXIO, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip
"""Errors about the name or the permissions of the process, not about the bytes on the disk."""

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class File(Protocol):
    """An open file, without a file position: every offset is explicit."""

    def pread(self, size: int, offset: int, /) -> bytes:
        """Reads ``size`` bytes at ``offset``; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Data, offset: int, /) -> int:
        """Writes at ``offset``; returns the number of bytes written, which may be smaller."""
        ...

    def truncate(self, size: int, /) -> None:
        """Truncates the file to ``size`` bytes, or extends it with zeros."""
        ...

    def sync(self) -> None:
        """Makes everything written to the file durable."""
        ...

    def size(self) -> int:
        """The size of the file in bytes."""
        ...

    def lock(self, *, shared: bool = False) -> bool:
        """Takes the advisory lock, exclusive or shared, without waiting; returns False if it is held. Closing releases it."""
        ...

    def is_at(self, path: Path, /) -> bool:
        """Whether ``path`` is a name of this file."""
        ...

    def map(self, size: int, /) -> memoryview:
        """Maps the first ``size`` bytes, shared with every process; writable if the file is open for writing."""
        ...

    def close(self) -> None:
        """Closes the file. Idempotent."""
        ...


class FileSystem(Protocol):
    """Directories and names."""

    def open(self, path: Path, mode: Mode, /) -> File:
        """Opens a file for reading, or for reading and writing; ``create`` also creates it if it is missing.

        ``private`` is ``create``, and leaves the file to its owner alone.

        Raises at once for anything but a regular file; see `check_openable`.
        """
        ...

    def make_directory(self, path: Path, /) -> None:
        """Creates the directory and its missing parents, durably."""
        ...

    def sync_directory(self, path: Path, /) -> None:
        """Makes creations, renames and removals in the directory durable."""
        ...

    def opened_directory(self, path: Path, /) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Opens the directory; the function in the context makes creations, renames and removals in it durable."""
        ...

    def rename(self, source: Path, target: Path, /) -> None:
        """Renames atomically, replacing ``target``."""
        ...

    def unlink(self, path: Path, /) -> None:
        """Removes a name."""
        ...

    def remove_directory(self, path: Path, /) -> None:
        """Removes an empty directory; durable once its parent is synced."""
        ...

    def link(self, source: Path, target: Path, /) -> None:
        """Gives a file a second name."""
        ...

    def listing(self, path: Path, /) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def free_bytes(self, path: Path, /) -> int:
        """Free bytes for an unprivileged user."""
        ...

    def boot_id(self) -> bytes:
        """16 bytes that identify this boot of the machine."""
        ...

    def process_id(self) -> int:
        """The id of this process."""
        ...

    def random_bytes(self, size: int, /) -> bytes:
        """Random bytes from the operating system."""
        ...

    def notifier(self, directory: Path, /) -> Notifier:
        """The notifier of a log's readers in other processes; a silent one if it cannot be opened."""
        ...

    def listen(self, directory: Path, /) -> Listener:
        """A listener to the notifier of a log; one that polls if it cannot be notified."""
        ...


class FencedError(OSError):
    """Another process owns the log now: LOCK was removed or replaced while this process held it."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "another process has taken the log over")


class SyncError(OSError):
    """A sync failed, so it is unknown which of the written data are durable."""


def check_openable(error: OSError, path: Path) -> None:
    """Raises a clearer error if a file exists and cannot be opened, and returns for any other error.

    Raises:
        LogExhausted: If it cannot be opened at the moment, since a descriptor or memory is lacking.
        LogUnreadable: If the file exists and cannot be opened.
    """
    check_exhausted(error)
    if error.errno in _UNOPENABLE and not isinstance(error, SyncError):
        where = path if error.filename is None else Path(error.filename)
        raise LogUnreadable(where, error.strerror or str(error)) from error


def check_exhausted(error: OSError) -> None:
    """Raises a clearer error if a read lacks a descriptor or memory, and returns for any other error: it proves no damage.

    Raises:
        LogExhausted: If the same read may succeed later.
    """
    lacks = _LACKS.get(error.errno)
    if lacks is not None and lacks != "disk" and not isinstance(error, SyncError):
        raise LogExhausted(lacks) from error


def open_file(filesystem: FileSystem, path: Path, mode: Mode) -> File:
    """Opens a file of a log.

    Raises:
        LogExhausted: If a descriptor or memory is lacking.
        LogUnreadable: If it exists and cannot be opened.
        OSError: Any other error; FileNotFoundError if it is missing.
    """
    try:
        return filesystem.open(path, mode)
    except OSError as error:
        check_openable(error, path)
        raise


def sync_file(file: File) -> None:
    """Syncs a file.

    Raises:
        SyncError: For whatever the sync raises.
    """
    try:
        file.sync()
    except OSError as error:
        raise SyncError(error.errno, f"sync: {error.strerror}") from error


def sync_names(filesystem: FileSystem, directory: Path) -> None:
    """Syncs a directory.

    Raises:
        SyncError: For whatever the sync raises.
        OSError: If the directory cannot be opened for it.
    """
    with names_of(filesystem, directory) as sync:
        sync()


@contextlib.contextmanager
def names_of(filesystem: FileSystem, directory: Path) -> Iterator[Callable[[], None]]:
    """Opens a directory, and yields a function that syncs it: for a change that must not begin unless it can be made durable.

    Raises:
        SyncError: For whatever the sync raises.
        OSError: If the directory cannot be opened for it; then the block has not begun.
    """
    with filesystem.opened_directory(directory) as sync:
        yield partial(_sync_opened, sync)


def _sync_opened(sync: Callable[[], None]) -> None:
    try:
        sync()
    except OSError as error:
        raise SyncError(error.errno, f"sync of the directory: {error.strerror}") from error


def means_full(error: BaseException) -> bool:
    """Whether an operation failed for want of room on the disk, descriptors or memory, or since the disk is read-only.

    The caller undoes what the operation has done, and may repeat it later. An error of a sync never means that: it leaves
    unknown what is on the disk.
    """
    if isinstance(error, OSError):
        return (error.errno in NO_SPACE or error.errno in _LACKS) and not isinstance(error, SyncError)
    return isinstance(error, MemoryError)


def full(error: BaseException, free: int | None, needed: int) -> LogFull:
    """The error to raise for one that `means_full`."""
    if isinstance(error, MemoryError):
        return LogExhausted("memory")
    lacks = _LACKS.get(error.errno) if isinstance(error, OSError) else None
    return LogFull(free, needed) if lacks is None else LogExhausted(lacks)


@contextlib.contextmanager
def memory_as_error() -> Iterator[None]:
    """Turns MemoryError into the OSError that a system call would raise, for code that then has changed nothing."""
    try:
        yield
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "out of memory") from error


def write_all(file: File, data: Data, offset: int) -> None:
    """Writes all of ``data``, continuing short writes.

    Raises:
        OSError: From the file; ENOSPC if a write makes no progress.
    """
    written = file.pwrite(data, offset)
    total = len(data)
    if written == total:
        return
    view = memoryview(data)
    while written < total:
        more = file.pwrite(view[written:], offset + written)
        if more <= 0:
            raise OSError(errno.ENOSPC, "the write makes no progress")
        written += more


def read_blocks(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Reads a file between two offsets, in parts of at most 1 MiB, each with its offset.

    Raises:
        OSError: From the file.
    """
    for at in range(start, end, _BLOCK):
        yield at, file.pread(min(_BLOCK, end - at), at)


def read_file(filesystem: FileSystem, path: Path) -> bytes:
    """Reads a small file.

    Raises:
        LogExhausted: If a descriptor or memory is lacking.
        OSError: From the file system.
    """
    try:
        with contextlib.closing(filesystem.open(path, "read")) as file:
            return file.pread(file.size(), 0)
    except OSError as error:
        check_exhausted(error)
        raise


def put_file(filesystem: FileSystem, path: Path, data: Data, mode: Mode = "create") -> None:
    """Writes a small file atomically, by a rename. The rename is durable once the directory is synced.

    Args:
        filesystem: The file system.
        path: The file.
        data: Its content.
        mode: ``create``, or ``private`` for a file of its owner alone.

    Raises:
        OSError: From the file system.
    """
    unfinished = path.with_name(f"{path.name}.tmp")
    with contextlib.closing(filesystem.open(unfinished, mode)) as file:
        if file.size():
            file.truncate(0)  # left by a crash or a full disk
        write_all(file, data, 0)
        sync_file(file)
    filesystem.rename(unfinished, path)


class RealFile:
    """A file descriptor. A child of ``fork`` closes its copy, and the parent keeps the lock."""

    __slots__ = ("__weakref__", "_fd", "_identity", "_locked", "_writable")

    def __init__(self, fd: int, *, writable: bool) -> None:
        self._locked = False
        self._identity: tuple[int, int] | None = None
        self._fd = fd
        self._writable = writable
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`. The lock would last until the last copy of its descriptor is closed."""
        self._locked = False
        self.close()

    def check_kind(self, path: Path) -> None:
        """Raises unless the file is a regular file.

        Raises:
            OSError: If it is a FIFO, a directory, a socket or a device.
        """
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
        if not stat.S_ISREG(mode):
            what = _KINDS.get(stat.S_IFMT(mode), "something else")
            raise OSError(errno.ENOTSUP, f"it is {what}, not a file", str(path))

    def narrow(self) -> None:
        """Leaves the file to its owner alone, if it is that of this process."""
        if os.fstat(self._fd).st_mode & 0o077:
            with contextlib.suppress(PermissionError):
                os.fchmod(self._fd, PRIVATE)

    def pread(self, size: int, offset: int, /) -> bytes:
        """See `File.pread`."""
        return os.pread(self._fd, size, offset)

    def pwrite(self, data: Data, offset: int, /) -> int:
        """See `File.pwrite`."""
        return os.pwrite(self._fd, data, offset)

    def truncate(self, size: int, /) -> None:
        """See `File.truncate`."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """See `File.sync`. On macOS only F_FULLFSYNC makes data durable."""
        if sys.platform == "darwin":  # pragma: no cover - needs that system
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._fd)

    def size(self) -> int:
        """See `File.size`."""
        return os.fstat(self._fd).st_size

    def lock(self, *, shared: bool = False) -> bool:
        """See `File.lock`. With ``flock`` two openings in one process exclude each other too."""
        try:
            fcntl.flock(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._locked = True
        return True

    def is_at(self, path: Path, /) -> bool:
        """See `File.is_at`. It is called often, so the identity of the file is cached."""
        try:
            if self._identity is None:
                own = os.fstat(self._fd)
                self._identity = own.st_dev, own.st_ino
            found = os.stat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def map(self, size: int, /) -> memoryview:
        """See `File.map`. The mapping lives as long as the view."""
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(self._fd, size, access=access))

    def close(self) -> None:
        """See `File.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._locked:
                # A child that is forked at this moment has a copy of the descriptor that it does not close, and the file would
                # stay locked as long as the child lives.
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
            if DESCRIPTORS.low:
                DESCRIPTORS.refill()

    def __del__(self) -> None:
        self.close()  # an interrupt may come before the owner has stored the open file


class RealFileSystem:
    """The file system of this machine.

    Attributes:
        readers: Who besides the owner may read the files and directories that it makes.
    """

    readers: Readers = "owner"

    def __init__(self, readers: Readers = "owner") -> None:
        self.readers = readers

    def open(self, path: Path, mode: Mode, /) -> RealFile:
        """See `FileSystem.open`. O_NONBLOCK: opening a FIFO would wait for its other end. Regular files ignore the flag."""
        flags = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (os.O_RDONLY if mode == "read" else os.O_RDWR)

        def make() -> RealFile:
            fd = self._made(path, flags) if mode in ("create", "private") else os.open(path, flags)
            return RealFile(fd, writable=mode != "read")

        opened = partial(forks.undisturbed, make, RealFile.close)
        # A read can be repeated later, and may keep its file open for long.
        file = opened() if mode == "read" else DESCRIPTORS.spending(opened)
        try:
            file.check_kind(path)
            if mode == "private":
                file.narrow()
        except BaseException:
            file.close()
            raise
        return file

    def _made(self, path: Path, flags: int) -> int:
        """Opens a file that may be missing. What it makes has its modes whatever the umask."""
        if self.readers == "owner":
            return os.open(path, flags | os.O_CREAT, PRIVATE)
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE)
        except FileExistsError:
            return os.open(path, flags | os.O_CREAT, PRIVATE)
        os.fchmod(fd, FILE_MODES[self.readers])
        return fd

    def make_directory(self, path: Path, /) -> None:
        """See `FileSystem.make_directory`. Created directories are made durable from the top down.

        The name of an existing directory is synced too: the process that created it may have died before its sync.
        """
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has that name", str(path))
        missing = [parent for parent in (path, *path.parents) if not parent.exists()]
        there = missing[-1].parent if missing else path
        self._sync_name(there.absolute())
        for directory in reversed(missing):
            make_readable(directory, DIRECTORY_MODES[self.readers])
            self.sync_directory(directory.parent)

    def _sync_name(self, path: Path) -> None:
        """Makes the name of an existing directory durable, if this process may sync its parent."""
        if os.lstat(path).st_dev != os.stat(path.parent).st_dev:
            return  # a mount point: a power cut cannot remove its name
        try:
            self.sync_directory(path.parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise

    def sync_directory(self, path: Path, /) -> None:
        """See `FileSystem.sync_directory`."""
        with self.opened_directory(path) as sync:
            sync()

    @contextlib.contextmanager
    def opened_directory(self, path: Path, /) -> Iterator[Callable[[], None]]:
        """See `FileSystem.opened_directory`."""
        fd = DESCRIPTORS.spending(partial(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            yield partial(os.fsync, fd)
        finally:
            os.close(fd)
            if DESCRIPTORS.low:
                DESCRIPTORS.refill()

    # See `FileSystem`.
    rename: "staticmethod[[Path, Path], None]" = staticmethod(os.replace)
    unlink: "staticmethod[[Path], None]" = staticmethod(os.unlink)
    remove_directory: "staticmethod[[Path], None]" = staticmethod(os.rmdir)
    link: "staticmethod[[Path, Path], None]" = staticmethod(os.link)
    process_id: "staticmethod[[], int]" = staticmethod(os.getpid)
    random_bytes: "staticmethod[[int], bytes]" = staticmethod(os.urandom)

    def listing(self, path: Path, /) -> list[str]:
        """See `FileSystem.listing`."""
        names = DESCRIPTORS.spending(partial(os.listdir, path))
        if DESCRIPTORS.low:
            DESCRIPTORS.refill()
        return sorted(names)

    def free_bytes(self, path: Path, /) -> int:
        """See `FileSystem.free_bytes`."""
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def boot_id(self) -> bytes:
        """See `FileSystem.boot_id`. Zeros if the kernel has none; a TAIL with zeros is ignored."""
        try:
            return UUID(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()).bytes
        except (OSError, ValueError):
            return bytes(16)

    def notifier(self, directory: Path, /) -> Notifier:
        """See `FileSystem.notifier`."""
        return FileNotifier.open(directory, self.readers)

    def listen(self, directory: Path, /) -> Listener:
        """See `FileSystem.listen`."""
        return listen(directory)

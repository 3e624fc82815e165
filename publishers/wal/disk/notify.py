"""Notifications between processes: the writer of a log notifies its read-only openings.

The writer calls its `Notifier` after TAIL has moved; a read-only opening waits with a `Listener`. A notification has no
content: the reader then reads TAIL. One notification may stand for many moves of TAIL or for none, and may be lost, so a reader
also reads TAIL at intervals.

A reader with write access to ``readers/`` binds a datagram socket there, and receives one byte per commit group. Any other
reader, or one whose socket path would be too long, watches BELL by inotify: the writer rewrites its only byte after each commit
group, since inotify does not report stores into the mapped TAIL. A reader that can do neither polls.

The writer finds sockets by listing ``readers/`` at intervals. It cannot see watches, so each watching reader holds a shared lock
on BELL. A new listener is notified at once. Without listeners a commit pays nothing.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol
from uuid import uuid4

from flow import forks
from publishers.options import Readers
from publishers.wal.disk.descriptors import DESCRIPTORS, NO_DESCRIPTOR
from publishers.wal.disk.modes import MEETING_MODES, PRIVATE, make_file, make_readable

__all__ = [
    "BELL_NAME",
    "LONGEST_PATH",
    "READERS_NAME",
    "FileListener",
    "FileNotifier",
    "Listener",
    "ListenerKind",
    "Notifier",
    "PollingListener",
    "SilentNotifier",
    "listen",
]

BELL_NAME: Final = "BELL"
READERS_NAME: Final = "readers"

ListenerKind = Literal["datagram", "inotify", "poll"]

LONGEST_PATH: Final = 107
"""Most bytes in the path of a socket on Linux: 108 with the terminating zero."""

_SUFFIX: Final = ".sock"
_BYTE: Final = b"\a"
_DRAIN: Final = 4096
_SOCKETS: Final = 1_000  # that a commit notifies; readers beyond them poll each second
_IN_MODIFY: Final = 0x2
_IN_NONBLOCK: Final = os.O_NONBLOCK
_IN_CLOEXEC: Final = os.O_CLOEXEC
_GONE: Final = frozenset({errno.ECONNREFUSED, errno.EPROTOTYPE})
"""Errors of sending to a socket whose process has died, or to a file that is not a datagram socket."""


class Notifier(Protocol):
    """Notifies listeners in other processes."""

    def look(self) -> None:
        """Finds the listeners, and notifies new ones; called at intervals. Never raises."""
        ...

    def notify(self) -> None:
        """Notifies every listener. Never waits and never raises. Thread-safe."""
        ...

    def close(self) -> None:
        """Closes its files. Idempotent."""
        ...


class Listener(Protocol):
    """Receives the notifications of a writer."""

    @property
    def kind(self) -> ListenerKind:
        """How it is notified; ``poll`` if it is never notified."""
        ...

    def wait(self, timeout: float, /) -> bool:
        """Waits for a notification, for `wake`, or for ``timeout`` seconds; returns whether it was notified. One thread at a time."""
        ...

    def wake(self) -> None:
        """Ends the current or the next `wait` of another thread."""
        ...

    def close(self) -> None:
        """Closes its files, after the last `wait` has ended. Idempotent."""
        ...


class SilentNotifier:
    """A notifier without listeners."""

    __slots__ = ()

    def look(self) -> None:
        """See `Notifier.look`."""

    def notify(self) -> None:
        """See `Notifier.notify`."""

    def close(self) -> None:
        """See `Notifier.close`."""


class PollingListener:
    """A listener that is never notified, so a follower reads TAIL after each ``timeout``."""

    __slots__ = ("_asleep", "kind")

    def __init__(self) -> None:
        self.kind: ListenerKind = "poll"
        # A lock, not an Event, which an interrupt can leave half set.
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self, timeout: float, /) -> bool:
        """See `Listener.wait`."""
        self._asleep.acquire(timeout=timeout)
        return False

    def wake(self) -> None:
        """See `Listener.wake`."""
        with contextlib.suppress(RuntimeError):  # already woken
            self._asleep.release()

    def close(self) -> None:
        """See `Listener.close`."""


class FileNotifier:
    """Notifies the sockets in ``readers/`` and the watches on BELL.

    Attributes:
        sent: Datagrams that were sent.
        pending: Datagrams that were not sent, because the queue of the socket was full.
    """

    def __init__(self, directory: Path, readers: Readers = "owner") -> None:
        """Creates ``readers/`` and BELL if they are missing.

        Args:
            directory: The directory of the log.
            readers: Who may read the log, and put sockets into ``readers/``.

        Raises:
            OSError: If ``readers/``, BELL or a socket cannot be created.
        """
        self.sent: int = 0
        self.pending: int = 0
        self._readers = directory.absolute() / READERS_NAME
        self._lock = threading.Lock()
        self._sockets: tuple[str, ...] = ()
        self._watched = False
        make_readable(self._readers, MEETING_MODES[readers])
        make_file(directory / BELL_NAME, readers)
        self._file = os.open(directory / BELL_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        except BaseException:
            os.close(self._file)
            raise
        forks.register(self)
        self.look()

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`."""
        self._lock = threading.Lock()
        self.close()

    @classmethod
    def open(cls, directory: Path, readers: Readers = "owner") -> Notifier:
        """Opens the notifier of a log; if that fails, returns a silent one, and readers poll."""
        try:
            return cls(directory, readers)
        except OSError:
            return SilentNotifier()

    def look(self) -> None:
        """See `Notifier.look`."""
        with self._lock:
            if self._file < 0:
                return
            try:
                names = DESCRIPTORS.spending(partial(os.listdir, self._readers))
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    return  # the known sockets are still notified
                names = []
            sockets = tuple(str(self._readers / name) for name in names if name.endswith(_SUFFIX))[:_SOCKETS]
            if DESCRIPTORS.low:
                DESCRIPTORS.refill()
            known, self._sockets = self._sockets, sockets
            watched, self._watched = self._watched, self._is_watched()
        for path in sockets:
            if path not in known:
                self._send(path)
        if self._watched and not watched:
            self._touch_bell()

    def _is_watched(self) -> bool:
        """Whether a reader holds the shared lock on BELL."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError:
            return True
        return False

    def notify(self) -> None:
        """See `Notifier.notify`. Costs one system call per socket, and one for all watches."""
        for path in self._sockets:
            self._send(path)
        if self._watched:
            self._touch_bell()

    def _send(self, path: str) -> None:
        try:
            self._socket.sendto(_BYTE, path)
            self.sent += 1
        except BlockingIOError:
            self.pending += 1  # its queue is full, so the reader wakes anyway
        except OSError as error:
            self._drop(path)
            if error.errno in _GONE:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _drop(self, path: str) -> None:
        with self._lock:
            self._sockets = tuple(other for other in self._sockets if other != path)

    def _touch_bell(self) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _BYTE, 0)

    def close(self) -> None:
        """See `Notifier.close`."""
        with self._lock:
            self._sockets, self._watched = (), False
            file, self._file = self._file, -1
            if file >= 0:
                self._socket.close()
                os.close(file)


class FileListener:
    """Polls two descriptors: one becomes readable at a notification, the other at `wake`."""

    def __init__(self, kind: ListenerKind, source: "_Socket | _Watch") -> None:
        self.kind: ListenerKind = kind
        self._source = source
        self._descriptor = source.fileno()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._closed = False
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`."""
        self._close(self._source.detach)
        self._woken = self._waker = -1  # a late `wake` must not write into the next file of that number

    def wait(self, timeout: float, /) -> bool:
        """See `Listener.wait`."""
        notified = False
        for descriptor, _ in self._poll.poll(timeout * 1000.0):
            with contextlib.suppress(BlockingIOError):
                while os.read(descriptor, _DRAIN):
                    notified = notified or descriptor == self._descriptor
        return notified

    def wake(self) -> None:
        """See `Listener.wake`."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._waker, _BYTE)

    def close(self) -> None:
        """See `Listener.close`."""
        self._close(self._source.close)

    def _close(self, close_source: Callable[[], None]) -> None:
        if not self._closed:
            self._closed = True
            close_source()
            os.close(self._woken)
            os.close(self._waker)


class _Socket:
    """A datagram socket in ``readers/``."""

    def __init__(self, readers: Path) -> None:
        """Binds it.

        Raises:
            OSError: If its path is too long, or the directory is missing or not writable.
        """
        self._path = str(readers / f"{os.getpid()}-{uuid4().hex[:8]}{_SUFFIX}")
        if len(os.fsencode(self._path)) > LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, "too long for a socket", self._path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(self._path)
            # The writer may be another user; a notification reveals nothing.
            os.chmod(self._path, 0o666)  # noqa: S103 - see above
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self.detach()

    def detach(self) -> None:
        """Closes it. Its name stays: the parent process still uses the socket."""
        self._socket.close()


class _Watch:
    """An inotify watch on BELL, with the shared lock by which the writer detects it.

    The standard library has no inotify, so this calls the C library.
    """

    def __init__(self, path: Path) -> None:
        """Watches.

        Raises:
            OSError: If inotify is missing or exhausted, or the file cannot be read.
        """
        library = ctypes.CDLL(None, use_errno=True)
        init = getattr(library, "inotify_init1", None)
        if init is None:
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptor = -1
        try:
            self._descriptor = init(_IN_NONBLOCK | _IN_CLOEXEC)
            if (
                self._descriptor < 0
                or library.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY) < 0
            ):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
            # Fails only while the writer tests the lock. Then the writer does not detect this listener, which polls.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        for descriptor in (self._descriptor, self._file):
            if descriptor >= 0:
                os.close(descriptor)

    detach = close


def listen(directory: Path, kinds: Sequence[ListenerKind] = ("datagram", "inotify")) -> Listener:
    """Opens a listener of a log, of the first of ``kinds`` that works here; else one that polls."""
    for kind in kinds:
        with contextlib.suppress(OSError):
            source = (
                _Socket(directory.absolute() / READERS_NAME)
                if kind == "datagram"
                else _Watch(directory / BELL_NAME)
            )
            try:
                return FileListener(kind, source)
            except OSError:
                source.close()
                raise
    return PollingListener()

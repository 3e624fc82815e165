"""A file system in memory that loses what was not synced, in every way that a real one may.

Each file has what the kernel shows (``current``), what is on the medium (``durable``), and the writes between the two;
each directory has its names the same way. At a power cut

* in 15 % of the cases nothing pending survives, in 10 % everything does;
* else each 512-byte sector of each pending write fares on its own: 60 % are written, of 15 % only the length of the file
  grew, 5 % are torn inside, 20 % are absent; pending truncations happen or do not;
* of the pending changes of names, in 80 % of the cases a prefix survives, as with a journal, else any subset.

A sync that fails drops the pending writes from what will reach the medium, while they stay readable until the power
goes; the next sync succeeds, as Linux has it. The death of a process alone leaves the page cache as it is.

Changing operations are counted, and one of them can be made to fail or to be the last.
"""

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from publishers.wal.disk.filesystem import Data, Mode
from publishers.wal.disk.notify import PollingListener, SilentNotifier
from tests.simulation.medium import Inode, apply, rename, tear


class PowerCut(BaseException):
    """The machine, or the process, is gone; nobody can handle that."""


def _key(path: PurePath) -> str:
    """A directory as the disk knows it; text is hashed and compared far sooner than a path is."""
    text = str(path)
    return "" if text == "/" else text


def _split(path: PurePath) -> tuple[str, str]:
    directory, _, name = str(path).rpartition("/")
    return directory, name


class SimulatedFile:
    def __init__(
        self, system: "SimulatedFileSystem", inode: Inode, path: PurePath, *, writable: bool
    ) -> None:
        self._system = system
        self._inode = inode
        self._path = path
        self._writable = writable
        self._life = system.life
        self._closed = False

    def _check(self) -> None:
        if self._life != self._system.life:
            raise PowerCut
        self._system.check()
        if self._closed:
            raise OSError(errno.EBADF, "closed")

    def _check_writable(self) -> None:
        self._check()
        if not self._writable:
            raise OSError(errno.EBADF, "not open for writing")

    def pread(self, size: int, offset: int, /) -> bytes:
        self._check()
        self._system.reading()
        return bytes(memoryview(self._inode.current)[offset : offset + size])

    def pwrite(self, data: Data, offset: int, /) -> int:
        self._check_writable()
        data = bytes(data)
        kind = self._system.operation("pwrite", self._path, len(data), offset)
        inode = self._inode
        growth = max(offset + len(data) - len(inode.current), 0)
        room = self._system.room()
        if growth > room:
            taken = len(data) - (growth - room)
            if taken <= 0:
                raise OSError(errno.ENOSPC, "simulated: the disk is full")
            data = data[:taken]
        if kind in ("short", "crash", "EIO"):
            data = data[: self._system.random.randrange(1 if kind == "short" else 0, len(data) + 1)]
        if data:
            apply(inode.current, offset, data)
            inode.pending.append((offset, data))
        if kind not in (None, "short"):
            self._system.strike(kind)
        return len(data)

    def truncate(self, size: int, /) -> None:
        self._check_writable()
        kind = self._system.operation("truncate", self._path, size)
        if kind is None or kind == "short" or (kind == "crash" and self._system.random.random() < 0.5):
            apply(self._inode.current, size, None)
            self._inode.pending.append((size, None))
        if kind not in (None, "short"):
            self._system.strike(kind)

    def sync(self) -> None:
        self._check_writable()
        kind = self._system.operation("sync", self._path)
        inode = self._inode
        if kind == "crash":
            self._system.strike(kind)
        if kind in (None, "short"):
            for offset, data in inode.pending:
                apply(inode.durable, offset, data)
            inode.pending.clear()
        else:
            inode.pending.clear()
            self._system.strike(kind)

    def size(self) -> int:
        self._check()
        return len(self._inode.current)

    def lock(self, *, shared: bool = False) -> bool:
        self._check()
        holder = self._inode.locked_by
        if (
            holder is not None
            and holder is not self
            and holder._life == self._system.life
            and not holder._closed
        ):
            return False
        if not shared:  # else it is held for an instant, in which nothing else happens here
            self._inode.locked_by = self
        return True

    def is_at(self, path: Path, /) -> bool:
        self._check()
        directory, name = _split(path)
        return self._system._names.get(directory, {}).get(name) is self._inode

    def map(self, size: int, /) -> memoryview:
        self._check()
        self._inode.mapped = True
        view = memoryview(self._inode.current)[:size]
        return view if self._writable else view.toreadonly()

    def close(self) -> None:
        self._closed = True


class SimulatedFileSystem:
    """A disk, the kernel before it, and the faults between them.

    Attributes:
        operations: Changing operations so far.
        faults: What happens at which operation: ``crash``, ``EIO``, ``ENOSPC`` or ``short``.
        read_faults: Numbers of reads that fail with EIO.
        capacity: Bytes that all files may have together.
        trace: What was done, if tracing.
        entropy: What the system's own random bytes are drawn from; give copies of one log another seed each.

    Args:
        directories: Whether to make and to remove a directory are operations as well, which a power cut may undo.
            Without, they are durable at once, and not counted: for a single log, which makes few and removes none.
    """

    def __init__(
        self, seed: int = 0, *, capacity: int = 1 << 40, trace: bool = False, directories: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.entropy = random.Random(f"entropy of {seed}")
        self.capacity = capacity
        self.operations = 0
        self.reads = 0
        self.faults: dict[int, str] = {}
        self.read_faults: set[int] = set()
        self.life = 0
        self.dead = False
        self.trace: list[str] | None = [] if trace else None
        self.boot = 1
        self._directories = directories
        self._names: dict[str, dict[str, Inode]] = {"": {}}
        self._durable: dict[str, dict[str, Inode]] = {"": {}}
        self._pending: dict[str, list[tuple[str, str, Inode | None]]] = {"": []}

    # --- faults ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if self.dead:
            raise PowerCut

    def operation(self, what: str, path: PurePath, *details: int) -> str | None:
        """Counts an operation; returns the fault that strikes it."""
        self.check()
        self.operations += 1
        kind = self.faults.get(self.operations)
        if self.trace is not None:
            name = path.name.rstrip("0123456789.-tmp") if path.suffix == ".tmp" else path.name
            self.trace.append(f"{self.operations:5} {what} {name} {details or ''} {kind or ''}")
        return kind

    def reading(self) -> None:
        self.reads += 1
        if self.reads in self.read_faults:
            raise OSError(errno.EIO, f"simulated at read {self.reads}")

    def strike(self, kind: str) -> None:
        if kind == "crash":
            self.dead = True
            raise PowerCut
        raise OSError(getattr(errno, kind), f"simulated {kind} at operation {self.operations}")

    def room(self) -> int:
        if self.capacity >= 1 << 40:
            return self.capacity
        used = sum(len(inode.current) for names in self._names.values() for inode in names.values())
        return max(self.capacity - used, 0)

    def kill(self) -> None:
        """The process dies; the kernel keeps what it has."""
        self.life += 1
        self.dead = False

    def restart(self) -> None:
        """The machine is started anew, and the kernel has written everything back before."""
        for names in self._names.values():
            for inode in names.values():
                inode.durable, inode.mapped, inode.locked_by = bytearray(inode.current), False, None
                inode.pending.clear()
        for directory, pending in self._pending.items():
            self._durable[directory] = dict(self._names[directory])
            pending.clear()
        self.boot += 1
        self.kill()

    def power_cut(self) -> None:
        """The machine loses power, and starts again."""
        rng = self.random
        roll = rng.random()
        survive = "nothing" if roll < 0.15 else "everything" if roll < 0.25 else "sectors"
        if self.trace is not None:
            self.trace.append(f"      power cut, {survive} pending survives")
        inodes = {id(inode): inode for names in self._names.values() for inode in names.values()}
        gone: list[str] = []
        for directory, pending in self._pending.items():
            for inode in self._durable[directory].values():
                inodes[id(inode)] = inode
            gone += self._cut_names(directory, pending, survive)
        for directory in gone:
            self._forget_directory(directory)
        for inode in inodes.values():
            self._cut_inode(inode, survive)
        self._names = {directory: dict(names) for directory, names in self._durable.items()}
        self.boot += 1
        self.kill()

    def _cut_names(
        self, directory: str, pending: list[tuple[str, str, Inode | None]], survive: str
    ) -> list[str]:
        """Decides about what is pending in a directory; answers which directories in it are not there afterwards."""
        rng = self.random
        if survive == "nothing":
            kept = []
        elif survive == "everything":
            kept = pending
        elif rng.random() < 0.8:
            kept = pending[: rng.randrange(len(pending) + 1)]
        else:
            kept = [change for change in pending if rng.random() < 0.5]
        for change in kept:
            rename(self._durable[directory], *change)
        gone = [
            f"{directory}/{change[1]}"
            for change in pending
            if (change[0] == "rmdir" and change in kept) or (change[0] == "mkdir" and change not in kept)
        ]
        pending.clear()
        return gone

    def _forget_directory(self, directory: str) -> None:
        for names in (self._names, self._durable, self._pending):
            for known in [known for known in names if f"{known}/".startswith(f"{directory}/")]:
                del names[known]

    def _cut_inode(self, inode: Inode, survive: str) -> None:
        rng = self.random
        durable = inode.durable
        if survive != "nothing":
            for offset, data in inode.pending:
                if survive == "everything":
                    apply(durable, offset, data)
                elif data is None:
                    if rng.random() < 0.5:
                        apply(durable, offset, None)
                else:
                    tear(rng, durable, offset, data)
        if inode.mapped and rng.random() < 0.5:
            inode.durable = durable = bytearray(inode.current)
        inode.pending.clear()
        inode.current = bytearray(durable)
        inode.locked_by = None
        inode.mapped = False

    # --- FileSystem --------------------------------------------------------------------------------------------------

    def _directory(self, directory: str) -> dict[str, Inode]:
        if self.dead:
            raise PowerCut
        names = self._names.get(directory)
        if names is None:
            place = directory
            while place:
                parent, _, name = place.rpartition("/")
                if name in self._names.get(parent, {}):
                    raise NotADirectoryError(errno.ENOTDIR, directory)
                place = parent
            raise FileNotFoundError(errno.ENOENT, directory)
        return names

    def open(self, path: Path, mode: Mode, /) -> SimulatedFile:
        directory, name = _split(path)
        names = self._directory(directory)
        inode = names.get(name)
        if inode is None:
            if str(path) in self._names:
                raise IsADirectoryError(errno.EISDIR, str(path))
            if mode not in ("create", "private"):
                raise FileNotFoundError(errno.ENOENT, str(path))
            inode = Inode()
            self._change("create", path, ("set", name, inode))
        return SimulatedFile(self, inode, path, writable=mode != "read")

    def _change(self, what: str, path: PurePath, *changes: tuple[str, str, Inode | None]) -> None:
        kind = self.operation(what, path)
        if kind is None or kind == "short" or (kind == "crash" and self.random.random() < 0.5):
            directory, _ = _split(path)
            for change in changes:
                rename(self._names[directory], *change)
                self._pending[directory].append(change)
        if kind not in (None, "short"):
            self.strike(kind)

    def make_directory(self, path: Path, /) -> None:
        self.check()
        if self._directories:
            self._make_directories(path)
            return
        if _key(path) in self._names:
            return
        for place in (*reversed(path.parents), path):
            parent, name = _split(place)
            if name in self._names.get(parent, {}):
                raise FileExistsError(errno.EEXIST, str(place))
            directory = _key(place)
            for names in (self._names, self._durable):
                names.setdefault(directory, {})
            self._pending.setdefault(directory, [])

    def _make_directories(self, path: Path) -> None:
        """As `RealFileSystem.make_directory` does it."""
        missing = [place for place in (path, *path.parents) if _key(place) not in self._names]
        there = missing[-1].parent if missing else path
        self.sync_directory(there.parent)
        for place in reversed(missing):
            parent, name = _split(place)
            if name in self._directory(parent):
                raise FileExistsError(errno.EEXIST, str(place))
            directory = _key(place)
            kind = self.operation("make_directory", place)
            if kind is None or kind == "short" or (kind == "crash" and self.random.random() < 0.5):
                self._forget_directory(directory)  # whose removal is pending
                self._pending[parent] = [one for one in self._pending[parent] if one != ("rmdir", name, None)]
                self._pending[parent].append(("mkdir", name, None))
                self._names[directory], self._durable[directory], self._pending[directory] = {}, {}, []
            if kind not in (None, "short"):
                self.strike(kind)
            self.sync_directory(place.parent)

    def sync_directory(self, path: Path, /) -> None:
        directory = _key(path)
        self._directory(directory)
        kind = self.operation("sync_directory", path)
        pending = self._pending[directory]
        if kind == "crash":
            self.strike(kind)
        if kind in (None, "short"):
            for change in pending:
                rename(self._durable[directory], *change)
                if change[0] == "rmdir":
                    self._forget_directory(f"{directory}/{change[1]}")
            pending.clear()
        else:
            # Unlike file data, names stay dirty: a journal that cannot be written stops the file system.
            self.strike(kind)

    @contextlib.contextmanager
    def opened_directory(self, path: Path, /) -> Iterator[Callable[[], None]]:
        self._directory(_key(path))
        yield lambda: self.sync_directory(path)

    def rename(self, source: Path, target: Path, /) -> None:
        directory, name = _split(source)
        inode = self._directory(directory).get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, str(source))
        self._change("rename", target, (f"move {name}", target.name, inode))

    def unlink(self, path: Path, /) -> None:
        directory, name = _split(path)
        if name not in self._directory(directory):
            raise FileNotFoundError(errno.ENOENT, str(path))
        self._change("unlink", path, ("remove", name, None))

    def remove_directory(self, path: Path, /) -> None:
        if self.listing(path):
            raise OSError(errno.ENOTEMPTY, str(path))
        kind = self.operation("remove_directory", path)
        if kind is None or kind == "short" or (kind == "crash" and self.random.random() < 0.5):
            parent, name = _split(path)
            if self._directories:
                del self._names[_key(path)]
                self._pending[parent].append(("rmdir", name, None))
            else:
                self._forget_directory(_key(path))
        if kind not in (None, "short"):
            self.strike(kind)

    def link(self, source: Path, target: Path, /) -> None:
        directory, name = _split(source)
        inode = self._directory(directory).get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, str(source))
        directory, name = _split(target)
        if name in self._directory(directory):
            raise FileExistsError(errno.EEXIST, str(target))
        self._change("link", target, ("set", name, inode))

    def listing(self, path: Path, /) -> list[str]:
        directory = _key(path)
        names = [*self._directory(directory)]
        if len(self._names) > 2 or not directory:
            above = f"{directory}/"
            below = [other[len(above) :] for other in self._names if other.startswith(above)]
            names += [name for name in below if "/" not in name]
        names.sort()
        return names

    def free_bytes(self, path: Path, /) -> int:
        self.check()
        return self.room()

    def boot_id(self) -> bytes:
        return self.boot.to_bytes(16, "little")

    def process_id(self) -> int:
        return 1000 + self.life

    def random_bytes(self, size: int, /) -> bytes:
        return self.entropy.randbytes(size)

    def notifier(self, directory: Path, /) -> SilentNotifier:
        return SilentNotifier()

    def listen(self, directory: Path, /) -> PollingListener:
        return PollingListener()

    # --- for tests -----------------------------------------------------------------------------------------------------

    def names(self, path: PurePath) -> dict[str, Inode]:
        """What the kernel shows of a directory; nothing if it is none."""
        return self._names.get(_key(path), {})

    def content(self, path: Path) -> bytearray:
        """What a file holds, to be looked at or damaged (the medium and the cache alike)."""
        return self._directory(_key(path.parent))[path.name].current

    def replace(self, path: Path, data: bytes) -> None:
        """Gives a file other bytes, durably."""
        names = self._directory(_key(path.parent))
        inode = Inode(bytearray(data), bytearray(data))
        names[path.name] = inode
        self._durable[_key(path.parent)][path.name] = inode

    def snapshot(self, path: Path) -> dict[str, bytes]:
        """All files of a directory."""
        return {name: bytes(inode.current) for name, inode in self._directory(_key(path)).items()}

    @classmethod
    def of(
        cls, path: Path, files: dict[str, bytes], seed: int = 0, *, boot: int = 1
    ) -> "SimulatedFileSystem":
        """A file system with one directory of files, on a machine that was started so often."""
        system = cls(seed)
        system.boot = boot
        system.make_directory(path)
        names = {name: Inode(bytearray(data), bytearray(data)) for name, data in files.items()}
        system._names[_key(path)], system._durable[_key(path)] = names, names.copy()
        return system

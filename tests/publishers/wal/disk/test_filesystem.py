"""The contract of `FileSystem`, kept by the real one and by the simulated one alike."""

import errno
import os
import resource
from pathlib import Path

import pytest

from publishers.wal.disk.filesystem import (
    FileSystem,
    RealFileSystem,
    SyncError,
    means_full,
    sync_file,
    sync_names,
    write_all,
)
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem


@pytest.fixture(params=["real", "simulated"])
def system(request):
    return RealFileSystem() if request.param == "real" else SimulatedFileSystem()


@pytest.fixture
def home(system: FileSystem, tmp_path: Path) -> Path:
    path = tmp_path / "some" / "where"
    system.make_directory(path)
    return path


def test_what_was_written_is_read_back_at_its_offset(system, home):
    file = system.open(home / "a", "create")
    assert file.pwrite(b"abcdef", 0) == 6
    assert file.pwrite(memoryview(b"XY"), 2) == 2
    assert file.pread(100, 0) == b"abXYef"
    assert file.pread(2, 4) == b"ef"
    assert file.pread(2, 6) == b""
    assert file.size() == 6
    file.close()
    file.close()


def test_a_write_behind_the_end_leaves_zeros_before_it(system, home):
    file = system.open(home / "a", "create")
    file.pwrite(b"x", 5)
    assert file.pread(10, 0) == b"\0\0\0\0\0x"
    file.close()


def test_truncate_cuts_and_lengthens_with_zeros(system, home):
    file = system.open(home / "a", "create")
    file.pwrite(b"abcdef", 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.sync()
    file.close()


def test_opening_what_is_missing_says_so(system, home):
    for mode in ("read", "write"):
        with pytest.raises(FileNotFoundError):
            system.open(home / "missing", mode)
    for call in (system.unlink, system.listing, system.sync_directory):
        with pytest.raises(FileNotFoundError):
            call(home / "missing")
    with pytest.raises(FileNotFoundError):
        system.rename(home / "missing", home / "b")
    with pytest.raises(FileNotFoundError):
        system.link(home / "missing", home / "b")


def test_a_file_open_for_reading_refuses_writes(system, home):
    system.open(home / "a", "create").close()
    file = system.open(home / "a", "read")
    with pytest.raises(OSError, match=r"."):
        file.pwrite(b"x", 0)
    file.close()


def test_create_keeps_what_is_there(system, home):
    file = system.open(home / "a", "create")
    file.pwrite(b"abc", 0)
    file.close()
    file = system.open(home / "a", "create")
    assert file.pread(10, 0) == b"abc"
    file.close()


def test_rename_replaces_and_keeps_open_files_valid(system, home):
    for name in "ab":
        file = system.open(home / name, "create")
        file.pwrite(name.encode(), 0)
        file.close()
    old = system.open(home / "b", "read")
    system.rename(home / "a", home / "b")
    assert system.listing(home) == ["b"]
    new = system.open(home / "b", "read")
    assert (old.pread(1, 0), new.pread(1, 0)) == (b"b", b"a")
    system.unlink(home / "b")
    assert new.pread(1, 0) == b"a"
    assert system.listing(home) == []
    old.close()
    new.close()


def test_a_link_is_a_second_name_of_one_file(system, home):
    file = system.open(home / "a", "create")
    system.link(home / "a", home / "b")
    file.pwrite(b"x", 0)
    other = system.open(home / "b", "read")
    assert other.pread(1, 0) == b"x"
    with pytest.raises(FileExistsError):
        system.link(home / "a", home / "b")
    file.close()
    other.close()


def test_the_lock_excludes_another_opening_until_it_is_closed(system, home):
    first = system.open(home / "a", "create")
    second = system.open(home / "a", "create")
    assert first.lock()
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock()
    second.close()


def test_a_map_is_shared_between_openings(system, home):
    file = system.open(home / "a", "create")
    file.truncate(4096)
    writable = file.map(4096)
    reader = system.open(home / "a", "read")
    readable = reader.map(4096)
    file.close()
    reader.close()
    writable[10:13] = b"abc"
    assert bytes(readable[10:13]) == b"abc"
    with pytest.raises(TypeError):
        readable[0] = 1
    writable.release()
    readable.release()


def test_directories_appear_in_the_listing_and_can_be_synced(system, home):
    system.make_directory(home / "inner")
    system.open(home / "a", "create").close()
    system.make_directory(home / "inner")
    assert system.listing(home) == ["a", "inner"]
    system.sync_directory(home)
    with pytest.raises((FileExistsError, NotADirectoryError)):
        system.make_directory(home / "a")


def test_the_machine_tells_about_itself(system, home):
    assert system.free_bytes(home) > 0
    assert len(system.boot_id()) == 16
    assert system.boot_id() == system.boot_id()
    assert system.process_id() > 0


class Stubborn:
    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.data = bytearray()

    def pwrite(self, data, offset) -> int:
        assert offset == len(self.data)
        self.data += bytes(data[: self.takes])
        return min(self.takes, len(data))


def test_short_writes_are_continued():
    file = Stubborn(3)
    write_all(file, b"abcdefgh", 0)
    assert file.data == b"abcdefgh"


def test_a_write_without_progress_means_a_full_disk():
    with pytest.raises(OSError, match="no progress") as caught:
        write_all(Stubborn(0), b"abc", 0)
    assert means_full(caught.value)


def test_what_a_sync_raises_never_means_a_full_disk():
    system = SimulatedFileSystem()
    system.make_directory(Path("/log"))
    file = system.open(Path("/log/a"), "create")
    system.faults = {2: "ENOSPC", 3: "EIO"}
    with pytest.raises(SyncError) as caught:
        sync_file(file)
    assert caught.value.errno == errno.ENOSPC
    assert not means_full(caught.value)
    with pytest.raises(SyncError):
        sync_names(system, Path("/log"))


def _synced(system, text: bytes) -> Path:
    path = Path("/log/a")
    system.make_directory(path.parent)
    file = system.open(path, "create")
    file.pwrite(text, 0)
    file.sync()
    system.sync_directory(path.parent)
    return path


@pytest.mark.parametrize("seed", range(40))
def test_the_simulated_disk_keeps_what_was_synced_and_may_lose_the_rest(seed):
    system = SimulatedFileSystem(seed)
    path = _synced(system, b"x" * 3000)
    file = system.open(path, "write")
    file.pwrite(b"y" * 3000, 3000)
    system.power_cut()
    with pytest.raises(PowerCut):
        file.pread(1, 0)
    content = system.content(path)
    assert content[:3000] == b"x" * 3000
    assert set(content[3000:]) <= {0, ord("y")}


def test_the_simulated_disk_forgets_names_that_were_not_synced():
    outcomes = set()
    for seed in range(60):
        system = SimulatedFileSystem(seed)
        path = _synced(system, b"x")
        system.rename(path, path.with_name("b"))
        system.open(path.with_name("c"), "create").close()
        system.power_cut()
        outcomes.add(tuple(system.listing(path.parent)))
    assert outcomes == {("a",), ("b",), ("a", "c"), ("b", "c")}


def test_a_failed_sync_of_the_simulated_disk_loses_data_that_stay_readable():
    system = SimulatedFileSystem()
    path = _synced(system, b"old")
    file = system.open(path, "write")
    file.pwrite(b"new", 0)
    system.faults = {system.operations + 1: "EIO"}
    with pytest.raises(OSError, match="simulated EIO"):
        file.sync()
    assert file.pread(3, 0) == b"new"
    file.sync()
    system.kill()
    assert system.content(path) == b"new"
    system.power_cut()
    assert system.content(path) == b"old"


def test_the_simulated_disk_can_be_full():
    system = SimulatedFileSystem(capacity=10)
    path = _synced(system, b"12345678")
    file = system.open(path, "write")
    assert file.pwrite(b"abcd", 8) == 2
    with pytest.raises(OSError, match="full") as caught:
        file.pwrite(b"cd", 10)
    assert means_full(caught.value)
    assert file.pwrite(b"AB", 0) == 2


def test_a_machine_that_tells_no_boot_id_has_one_that_is_never_believed(monkeypatch):
    def missing(path, encoding=None):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert RealFileSystem().boot_id() == bytes(16)


def test_a_file_size_limit_is_a_short_write_and_then_a_full_disk(tmp_path):
    """With RLIMIT_FSIZE the kernel itself writes short and then raises EFBIG."""
    file = RealFileSystem().open(tmp_path / "a", "create")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        assert file.pwrite(b"x" * 6000, 8000) == 2000
        with pytest.raises(OSError, match="large") as caught:
            write_all(file, b"x" * 6000, 8000)
        assert means_full(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.close()


def test_a_file_knows_whether_a_name_is_still_its_own(system, home):
    file = system.open(home / "a", "create")
    assert file.is_at(home / "a")
    system.link(home / "a", home / "b")
    system.open(home / "c", "create").close()
    assert file.is_at(home / "b")
    assert not file.is_at(home / "c")
    assert not file.is_at(home / "missing")
    system.rename(home / "c", home / "a")
    assert not file.is_at(home / "a")
    system.unlink(home / "b")
    assert not file.is_at(home / "b")
    file.close()


def test_a_bell_may_be_rung_and_an_ear_waited_at(system, home):
    notifier, listener = system.notifier(home), system.listen(home)
    notifier.look()
    notifier.notify()
    assert listener.wait(0.001) is (listener.kind != "poll")
    listener.wake()
    assert listener.wait(60) is False
    notifier.close()
    listener.close()


def test_only_an_empty_directory_can_be_removed(system, home):
    system.make_directory(home / "inner")
    system.open(home / "inner" / "a", "create").close()
    with pytest.raises(OSError, match=r"inner"):
        system.remove_directory(home / "inner")
    system.unlink(home / "inner" / "a")
    system.remove_directory(home / "inner")
    assert system.listing(home) == []
    with pytest.raises(FileNotFoundError):
        system.listing(home / "inner")


def test_a_directory_that_is_there_is_made_durable_as_well(tmp_path):
    """F38: Whoever made it may have died before he could sync its name."""
    synced = []

    class Noting(RealFileSystem):
        def sync_directory(self, path, /):
            synced.append(path)
            super().sync_directory(path)

    Noting().make_directory(tmp_path)
    Noting().make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path.parent, tmp_path.parent, tmp_path, tmp_path / "a"]


class Unable(RealFileSystem):
    """A directory cannot be synced, for one reason or another."""

    def __init__(self, path, number):
        self.path = path
        self.number = number

    def sync_directory(self, path, /):
        if path == self.path:
            raise OSError(self.number, os.strerror(self.number))
        super().sync_directory(path)


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "EINVAL", "ENOTSUP", "EROFS"])
def test_a_directory_is_opened_whose_parent_cannot_be_synced(tmp_path, name):
    """F38: it was made by somebody else, or its name is as durable as it will ever be."""
    home = tmp_path / "log"
    home.mkdir()
    Unable(tmp_path, getattr(errno, name)).make_directory(home)
    with pytest.raises(OSError, match=r"."):
        Unable(home, getattr(errno, name)).make_directory(home / "new")


def test_a_disk_that_fails_when_a_name_is_made_durable_is_told_of(tmp_path):
    """F38."""
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        Unable(tmp_path.parent, errno.EIO).make_directory(tmp_path)


def test_where_a_disk_is_mounted_there_is_no_name_to_be_made_durable():
    """F38: the directory above is of another file system, which may not even know of such a sync."""
    mounted = next(path for path in map(Path, ("/proc", "/dev")) if os.path.ismount(path))
    Unable(mounted.parent, errno.EIO).make_directory(mounted)


@pytest.mark.parametrize("step", range(1, 6))
def test_directories_may_be_struck_like_files(step):
    system = SimulatedFileSystem(seed=step, directories=True)
    system.faults[step] = "crash"
    with pytest.raises(PowerCut):
        system.make_directory(Path("/a/b"))
    system.kill()
    system.make_directory(Path("/a/b"))
    for _ in range(3):
        system.power_cut()
    assert system.listing(Path("/a")) == ["b"]
    system.remove_directory(Path("/a/b"))
    assert system.listing(Path("/a")) == []
    system.sync_directory(Path("/a"))
    system.power_cut()
    assert system.listing(Path("/a")) == []


def test_a_removal_that_is_not_synced_may_be_undone():
    left = set()
    for seed in range(60):
        system = SimulatedFileSystem(seed, directories=True)
        system.make_directory(Path("/a"))
        system.remove_directory(Path("/a"))
        system.power_cut()
        left.add(tuple(system.listing(Path("/"))))
    assert left == {(), ("a",)}


def test_a_file_that_a_child_lets_go_of_keeps_the_lock_of_its_parent(tmp_path):
    """F143: the lock belongs to what both have a descriptor of; to close one of them frees it as little as it may be freed."""
    system = RealFileSystem()
    file = system.open(tmp_path / "LOCK", "create")
    assert file.lock()
    parent = os.dup(file._fd)
    file.forked(1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)
    file.close()
    other = system.open(tmp_path / "LOCK", "write")
    assert not other.lock()
    os.close(parent)
    assert other.lock()
    other.close()

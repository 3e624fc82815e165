"""A small file that lies there twice: each crash and each damaged copy leaves a whole one."""

import contextlib
import itertools

import pytest

from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.mirrored_file import COPY_SUFFIX, MirroredFile, MirroredState
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG

NAMES = ("SMALL", "SMALL" + COPY_SUFFIX)


def small(system, path=LOG):
    system.make_directory(path)
    return MirroredFile(system, path, "SMALL")


@pytest.fixture(params=["real", "simulated"])
def twin(request, tmp_path):
    return small(RealFileSystem(), tmp_path) if request.param == "real" else small(SimulatedFileSystem())


def test_where_there_is_none_there_is_none(twin):
    assert twin.read() == MirroredState(None, exists=False, even=True, damaged=())


def test_what_was_written_last_is_read_from_both(twin):
    for text in (b"one", b"", b"two\nlines", b"a shorter one"):
        twin.write(text)
        assert twin.read() == MirroredState(text, exists=True, even=True, damaged=())


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "missing"])
@pytest.mark.parametrize("hurt", [NAMES[:1], NAMES[1:], NAMES])
def test_one_whole_copy_is_enough_and_the_other_one_is_named(hurt, harm):
    """F37."""
    system = SimulatedFileSystem()
    twin = small(system)
    twin.write(b"text")
    for name in hurt:
        content = system.content(LOG / name)
        if harm == "missing":
            system.unlink(LOG / name)
        elif harm == "flip":
            content[1] ^= 1
        else:
            del content[0 if harm == "empty" else -1 :]
    found = twin.read()
    whole = len(hurt) == 1
    assert found.text == (b"text" if whole else None)
    assert found.exists == (whole or harm != "missing")
    assert found.even == (harm == "missing" and not whole)
    assert found.damaged == (() if harm == "missing" else hurt)
    twin.write(b"again")
    assert twin.read() == MirroredState(b"again", exists=True, even=True, damaged=())


@pytest.mark.parametrize("kind", ["crash", "EIO", "ENOSPC", "short"])
def test_after_a_fault_at_any_operation_the_old_text_or_the_new_one_is_there(kind):
    """F37, F38: in each copy by itself; a later write makes them equal again."""
    seen = set()
    for operation, seed in itertools.product(range(1, 30), range(3)):
        system = SimulatedFileSystem(seed)
        twin = small(system)
        twin.write(b"old" * 300)
        system.faults = {system.operations + operation: kind}
        with contextlib.suppress(PowerCut, OSError):
            twin.write(b"new" * 300)
        system.faults = {}
        system.power_cut() if kind == "crash" else system.kill()
        found = twin.read()
        assert found.text in (b"old" * 300, b"new" * 300), (operation, seed)
        assert found.damaged == (), (operation, seed)
        seen.add((found.text[:3], found.even))
        twin.write(b"next")
        assert twin.read() == MirroredState(b"next", exists=True, even=True, damaged=())
    assert (b"new", True) in seen
    assert kind == "short" or {(b"old", True), (b"new", False)} <= seen


def test_a_copy_that_cannot_be_read_is_not_taken_for_none():
    """F50."""
    system = SimulatedFileSystem()
    twin = small(system)
    twin.write(b"text")
    system.read_faults = {system.reads + 1}
    with pytest.raises(OSError, match="simulated"):
        twin.read()


def test_what_was_left_unfinished_does_not_lengthen_what_is_written_next():
    system = SimulatedFileSystem()
    twin = small(system)
    system.replace(LOG / "SMALL.tmp", b"a longer text that a full disk has broken off")
    twin.write(b"short")
    assert twin.read() == MirroredState(b"short", exists=True, even=True, damaged=())

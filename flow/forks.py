"""Objects with descriptors or locks are notified in each child of ``fork``, and release what belongs to the parent.

In the child only the forking thread continues. Locks that other threads held stay locked for ever, and their unfinished
work stays unfinished. Each descriptor is another name for the parent's: the lock of a file outlives the parent for as long
as the child keeps its copy, and so does a connection. So each registered object is called in each child, before ``fork``
returns there, to release what belongs to the parent (`Forkable.forked`); from then on it refuses every use.

This covers ``os.fork``, ``os.forkpty`` and ``multiprocessing`` with the start method ``fork``. A fork that bypasses the
interpreter, such as one by a C library, notifies no object.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet

__all__ = ["Forkable", "forget", "register", "undisturbed"]

_T = TypeVar("_T")


class Forkable(Protocol):
    """An object that must not be used in a child."""

    def forked(self, pid: int, /) -> None:
        """Release what belongs to the parent, in the child.

        It closes copies of descriptors and replaces inherited locks by new ones. It acquires no lock, writes nothing, signals
        no subscriber and calls no user code: the fork may have happened in the middle of any operation.

        Args:
            pid: The parent, to which the object belongs.
        """
        ...


_registered: "WeakSet[Forkable]" = WeakSet()
_pid = os.getpid()
_begun = _ended = 0


def register(thing: Forkable) -> None:
    """Notify an object in each child that is forked while the object is alive; children of that child do not notify it again."""
    _registered.add(thing)


def forget(thing: Forkable) -> None:
    """Notify an object no more; idempotent."""
    _registered.discard(thing)


def undisturbed(make: Callable[[], _T], undo: Callable[[_T], object]) -> _T:
    """Make an object with a descriptor so that every child that inherits the descriptor notifies the object.

    A system call that opens a file runs without the interpreter's lock. If another thread forks between the call and the
    registration, the child gets a descriptor that no object there knows. In that case it is closed here and opened again.

    Args:
        make: Opens and registers the object.
        undo: Closes it.
    """
    while True:
        begun, quiet = _begun, _begun == _ended
        made = make()
        if quiet and _begun == begun:
            return made
        undo(made)


def _before() -> None:
    global _begun  # noqa: PLW0603 - there is one process
    _begun += 1


def _in_parent() -> None:
    global _ended  # noqa: PLW0603 - there is one process
    _ended += 1


def _in_child() -> None:
    global _registered, _pid, _ended
    inherited, parent = list(_registered), _pid
    _registered, _pid, _ended = WeakSet(), os.getpid(), _begun
    with contextlib.ExitStack() as each:  # each object is notified, even if an earlier one raises
        for thing in inherited:
            each.callback(thing.forked, parent)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

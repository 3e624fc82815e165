"""What a child of ``fork`` inherits: who has a descriptor or a lock is told there, and lets go of it.

In the child only the thread that forked goes on. Locks that other threads held stay locked for ever, what those threads
had begun stays half done, and each descriptor is another name for the parent's own: the lock of a file outlives the
parent for as long as the child keeps its copy, and so does a connection. So whatever is registered here is asked, in
each child and before ``fork`` returns there, to let go of what is the parent's (`Forkable.forked`); from then on it
refuses.

This covers ``os.fork``, ``os.forkpty`` and ``multiprocessing`` with the start method ``fork``. What forks without the
interpreter, such as a library in C, tells nobody.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet

__all__ = ["Forkable", "forget", "register", "undisturbed"]

_T = TypeVar("_T")


class Forkable(Protocol):
    """What must not be used in a child."""

    def forked(self, pid: int, /) -> None:
        """Let go of what is the parent's, in the child.

        Closes copies of descriptors and puts new locks in the place of inherited ones. It acquires no lock, writes nothing,
        signals nobody and calls no code of a user: the state may be that in the middle of anything.

        Args:
            pid: The process to which it belongs.
        """
        ...


_registered: "WeakSet[Forkable]" = WeakSet()
_pid = os.getpid()
_begun = _ended = 0


def register(thing: Forkable) -> None:
    """Have something told in each child that is forked while it is alive; in children of those it is not told again."""
    _registered.add(thing)


def forget(thing: Forkable) -> None:
    """Have it told no more; again is harmless."""
    _registered.discard(thing)


def undisturbed(make: Callable[[], _T], undo: Callable[[_T], object]) -> _T:
    """Make something with a descriptor so that no child has that without being told.

    A system call that opens runs without the interpreter's lock. Should another thread fork between the call and the
    registration, the child gets a descriptor of which nothing in it knows; then it is closed here and opened once more.

    Args:
        make: Opens and registers it.
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
    with contextlib.ExitStack() as each:  # whatever one of them raises, the others are told
        for thing in inherited:
            each.callback(thing.forked, parent)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

"""What a writer does when it has given back the lock: it lets everybody have what it wrote."""

from collections.abc import Collection, Iterable
from typing import TypeVar

from flow.broadcast.company import release
from flow.broadcast.cursor import Cursor
from flow.broadcast.ring import Ring

__all__ = ["conclude", "deliver"]

T = TypeVar("T")


def wake(cursors: Iterable[Cursor[T]], error: Exception | None = None) -> None:
    """Let the drains look at the ring, or fail; what passes through one must not leave the others asleep."""
    passing: BaseException | None = None
    for cursor in cursors:
        try:
            if error is None:
                cursor.signal()
            else:
                cursor.fail(error)
        except BaseException as interrupt:  # noqa: BLE001 - KeyboardInterrupt of a subscriber; raised below
            passing = interrupt
    if passing is not None:
        raise passing


def deliver(ring: Ring[T], loose: Collection[Cursor[T]], items: tuple[T, ...] = (), *, owned: bool) -> None:
    """Let everybody have what was written: those who stand together at once, the others by their drains.

    Args:
        ring: Whose lock the caller has given back.
        loose: The others, as they were when it was written.
        items: What was passed on instead of being written, if it was.
        owned: Whether the caller owns the company.
    """
    try:
        if owned:
            ring.company.serve(items)
    finally:
        if loose:
            wake(loose)
            with ring.lock:
                ring.company.admit()


def conclude(
    leaving: Iterable[Cursor[T]], cursors: Iterable[Cursor[T]], error: Exception | None = None
) -> None:
    """Let everybody notice the end of the stream, which the caller has noted under the lock.

    Args:
        leaving: Those whom the company let go.
        cursors: All of them.
        error: With which it ended, if it failed.
    """
    try:
        wake(cursors, error)
    finally:
        passing = release(leaving)
    if passing is not None:
        raise passing

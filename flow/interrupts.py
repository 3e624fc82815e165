"""Keeps Ctrl-C out of what must not be left half done.

CPython runs handlers of signals in the main thread of the main interpreter only, between two instructions, and the one of
SIGINT raises `KeyboardInterrupt` there. Within ``with SHIELD:`` that thread has another handler, which notes the signal. On
leaving, the old one is put back, and called if a signal was noted: whatever it does, it does it there. So a program, or
``asyncio.run``, IPython or PySpark, has its own handler in place whenever its code runs.

A section holds bookkeeping only: nothing that waits for another thread's progress, and no code of a user. It may contain a
sync, which can take long: from `LONGEST` on a signal goes to the old handler at once. What that raises in the middle is met
as any other exception is.
"""

import os
import sys
import threading
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]  # `signal` asks an enum first: 9 us, not 0.5
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Final

__all__ = ["LONGEST", "SHIELD", "Shield"]

LONGEST: Final = 1.0
"""Seconds for which a section keeps a signal waiting."""


class Shield:
    """A section without interrupts; sections may be nested. In any other thread, or interpreter, it does nothing."""

    __slots__ = ("_began", "_depth", "_handler", "_main", "_note", "_noted", "_signals")

    def __init__(self) -> None:
        self._main: int | None = threading.main_thread().ident
        self._signals = False
        self._depth = self._noted = 0
        self._began = 0.0
        self._handler: Callable[[int, FrameType | None], object] | None = None
        self._note = self._noting
        os.register_at_fork(after_in_child=self._forked)

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        if self._depth:
            self._depth += 1
            return
        if not self._signals and not self._has_signals():
            return
        handler = getsignal(SIGINT)
        # The note is there still if the handler of another signal has raised where the old one was to be put back. What
        # cannot be called ends the process, ignores the signal, or belongs to a library in C.
        if handler is not self._note:
            self._handler = handler if callable(handler) else None
        if self._handler is not None:
            self._noted, self._began = 0, monotonic()
            signal(SIGINT, self._note)
        self._depth = 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._main or not self._depth:
            return
        # In this order: behind the last line of a section the old handler may raise at any instruction.
        self._depth -= 1
        if not self._depth and self._handler is not None:
            handler, self._handler = self._handler, None
            signal(SIGINT, handler)
            if self._noted:
                self._pass_on(handler, sys._getframe())  # noqa: SLF001 - handlers are given where it struck

    def _has_signals(self) -> bool:
        """Whether signals come to this interpreter; in another one, asking for the handler ends with an abort of the process."""
        try:
            signal(SIGINT, None)  # refused in any case, with another error where no signal comes
        except TypeError:
            self._signals = True
        except ValueError:
            self._main = None
        return self._signals

    def _noting(self, _number: int, frame: FrameType | None) -> None:
        self._noted += 1
        handler = self._handler
        if handler is not None and monotonic() - self._began > LONGEST:
            self._depth, self._handler = 0, None
            signal(SIGINT, handler)
            self._pass_on(handler, frame)

    def _pass_on(self, handler: Callable[[int, FrameType | None], object], frame: FrameType | None) -> None:
        """Calls the old handler once for each signal."""
        while self._noted:
            self._noted -= 1
            handler(SIGINT, frame)

    def _forked(self) -> None:
        """Begins anew in a child, whose main thread is the one that forked, while the parent's may have been in a section."""
        self._main = threading.get_ident()
        handler, self._handler, self._depth = self._handler, None, 0
        if handler is not None:
            signal(SIGINT, handler)


SHIELD: Final = Shield()
"""The one shield of the process."""

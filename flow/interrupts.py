"""Keeps Ctrl-C out of sections that must not be interrupted.

CPython runs signal handlers only in the main thread of the main interpreter, between two instructions; the handler of
SIGINT raises `KeyboardInterrupt` there. Within ``with SHIELD:`` that thread has another handler, which notes the signal. On
leaving, the old handler is restored, and called if a signal was noted, so its effect happens there. The program's own
handler, or that of ``asyncio.run``, IPython or PySpark, is thus in place whenever their code runs.

A section holds bookkeeping only: it neither waits for another thread nor runs user code. It may contain a
sync, which can take long: after `LONGEST` a signal calls the old handler at once. An exception that it raises in the middle
of the section is handled like any other exception.
"""

import os
import sys
import threading
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]  # `signal` converts to an enum first: 9 us instead of 0.5
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Final

__all__ = ["LONGEST", "SHIELD", "Shield"]

LONGEST: Final = 1.0
"""Seconds for which a section may delay a signal."""


class Shield:
    """A section without interrupts. In any other thread or interpreter it has no effect.

    Sections may be nested; `LONGEST` begins anew with each.
    """

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
            self._began = monotonic()
            return
        if not self._signals and not self._has_signals():
            return
        handler = getsignal(SIGINT)
        # The note may still be installed, if the handler of another signal raised just before the old handler was restored. A
        # handler that is not callable ends the process, ignores the signal, or belongs to a C library.
        if handler is not self._note:
            self._handler = handler if callable(handler) else None
        if self._handler is not None:
            self._noted, self._began = 0, monotonic()
            signal(SIGINT, self._note)
        self._depth = 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._main or not self._depth:
            return
        # In this order: after the last line of a section the old handler may raise at any instruction.
        self._depth -= 1
        if not self._depth and self._handler is not None:
            handler, self._handler = self._handler, None
            signal(SIGINT, handler)
            if self._noted:
                self._pass_on(handler, sys._getframe())  # noqa: SLF001 - handlers receive the frame of the interrupt

    def _has_signals(self) -> bool:
        """Whether this interpreter receives signals; in any other one, even reading the handler would abort the process."""
        try:
            signal(SIGINT, None)  # always refused; the kind of error shows whether signals come here
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
        """Call the old handler once for each signal."""
        while self._noted:
            self._noted -= 1
            handler(SIGINT, frame)

    def _forked(self) -> None:
        """Reset in a child: its main thread is the one that forked, while the parent's may have been in a section."""
        self._main = threading.get_ident()
        handler, self._handler, self._depth = self._handler, None, 0
        if handler is not None:
            signal(SIGINT, handler)


SHIELD: Final = Shield()
"""The only shield of the process."""

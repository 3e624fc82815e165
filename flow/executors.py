"""Executors run signals. There are no global schedulers: each subscription names its executor.

* `INLINE`: the thread that signals or requests.
* a ``concurrent.futures.Executor``: as a serial strand, some hundred signals a turn.
* an event loop, through the only `LoopExecutor` of that loop.
"""

import asyncio
import contextvars
import logging
import queue
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from flow import forks
from flow.errors import Rejected

_log = logging.getLogger("flow")

__all__ = [
    "INLINE",
    "RETRY",
    "SATURATED",
    "AnyExecutor",
    "Branch",
    "Executor",
    "LoopExecutor",
    "Rescue",
    "Resubmitter",
    "executor_of",
    "loop_executor",
    "require_loop",
    "require_no_loop",
    "running_loop",
]

Task = Callable[[], None]

SATURATED: Final = (queue.Full, Rejected)
"""Errors of ``submit`` that mean the executor is only full, so that the call is retried. Any other error is final."""


@runtime_checkable
class Executor(Protocol):
    """Runs callables, later or at once; every ``concurrent.futures.Executor`` is one."""

    def submit(self, task: Task, /) -> object:
        """Accept the task or raise: ``queue.Full`` or `flow.Rejected` if full, anything else if closed.

        An executor that runs the task before it returns should be replaced by `INLINE`.
        """
        ...


AnyExecutor = Executor | asyncio.AbstractEventLoop
"""An executor, or an event loop, which stands for its `LoopExecutor`."""


class Rescue(Protocol):
    """Retries wake-ups that a full executor has rejected, on threads of its own."""

    def resubmit(self, run: Task, executor: Executor, /) -> None:
        """Call ``executor.submit(run)`` soon, and again until it raises none of `SATURATED`.

        Returns at once, before any submit, and raises nothing. The executor may be `INLINE`: then ``run`` delivers the end of a
        subscription, which must happen on a thread of the rescue.
        """
        ...


class Branch(Executor, Protocol):
    """The executor of one subscriber on an event loop that is not always ready; all other subscribers share the loop's executor.

    A component that delivers to many subscribers on the loop may bypass ``submit``, on the loop, unless it is ``busy``.

    Attributes:
        trunk: The executor of the loop.
    """

    trunk: "LoopExecutor"

    def busy(self) -> bool:
        """Whether a delivery has to wait; called on the loop only."""
        ...


class _Inline:
    __slots__ = ()

    def submit(self, task: Task, /) -> None:
        """Run the task now."""
        task()

    def __repr__(self) -> str:
        return "flow.INLINE"


INLINE: Final[Executor] = _Inline()
"""Runs tasks on the calling thread. A drain never re-enters itself, so requests inside signals do not deepen the stack
(rule 3.3)."""


class LoopExecutor:
    """Runs callables on an event loop, and wakes it once, however many there are; from any thread.

    At most one ``call_soon_threadsafe`` is pending. After `turn` callables the loop runs other work. There is one
    instance a loop: use `loop_executor`. The loop is held weakly. The queue holds at most one callable for each drain.
    """

    __slots__ = ("__weakref__", "_awake", "_context", "_left", "_lock", "_loop", "_tasks", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, turn: int = 64) -> None:
        self._loop = weakref.ref(loop)
        self._turn = turn
        self._left = 0
        self._lock = threading.Lock()
        self._tasks: deque[Task] = deque()
        self._awake = False
        # An empty context: else each wake-up would copy, and keep, the context of the submitting thread.
        self._context = contextvars.Context()
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`."""
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        """Whether the loop is gone or closed, so that submitted tasks no longer run."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    @property
    def awake(self) -> bool:
        """Whether tasks wait."""
        return self._awake

    def submit(self, task: Task, /) -> None:
        """Run the task on the loop, soon and in order.

        Raises:
            RuntimeError: If the loop is closed.
        """
        loop = self._loop()
        if loop is None or loop.is_closed():
            raise RuntimeError("the event loop is closed")
        try:
            with self._lock:
                self._tasks.append(task)
                if self._awake:
                    return
                self._awake = True
            loop.call_soon_threadsafe(self._run, context=self._context)
        except Exception:
            with self._lock:
                self._awake = False
                # The loop has just closed. Tasks that other threads queued meanwhile never run either; their owners check `closed`.
                self._tasks.clear()
            raise
        except BaseException:
            # An interrupt, such as KeyboardInterrupt: wake the loop for the other tasks; to wake it twice is harmless.
            loop.call_soon_threadsafe(self._run, context=self._context)
            raise

    def hand_over(self, task: Task, lost: Task, context: contextvars.Context | None = None) -> None:
        """Run the task on the loop, with a wake-up of its own; if the loop closes before the task begins, ``lost`` runs instead.

        Args:
            task: Runs on the loop.
            lost: Runs on the thread that closes the loop. It must not raise.
            context: Context of the task; ``None`` is a copy of the caller's.

        Raises:
            RuntimeError: If the loop is closed; then neither runs.
        """
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is closed")
        handed = _HandedOver(task, lost)
        try:
            loop.call_soon_threadsafe(handed, context=context)
        except BaseException:
            handed.lost = None
            raise

    def spend(self, count: int) -> None:
        """Count the running callable as ``count`` more, so that the loop runs other work after enough signals."""
        self._left -= count

    def _run(self) -> None:
        self._left = self._turn
        task: Task | None = None
        try:
            while self._left > 0:
                self._left -= 1
                with self._lock:
                    if not self._tasks:
                        break
                    task = self._tasks[0]
                    del self._tasks[0]
                now, task = task, None
                now()
        finally:
            try:
                self._leave(task)
            except BaseException:
                self._leave(task)  # an interrupt: the loop must come back to the waiting tasks
                raise

    def _leave(self, task: Task | None) -> None:
        """Yield to the loop, and reschedule if tasks wait; ``task`` is one that an interrupt kept from beginning."""
        with self._lock:
            if task is not None and not (self._tasks and self._tasks[0] is task):
                self._tasks.appendleft(task)
            self._awake = bool(self._tasks)
        loop = self._loop()
        if self._awake and loop is not None and not loop.is_closed():
            loop.call_soon(self._run, context=self._context)


class _HandedOver:
    """A callback that only its loop references. A closing loop discards it, and its finalizer notices that it never ran."""

    __slots__ = ("__weakref__", "lost", "task")

    def __init__(self, task: Task, lost: Task) -> None:
        self.task = task
        self.lost: Task | None = lost
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the loop is the parent's, so its end in the child must not call ``lost``."""
        self.lost = None

    def __call__(self) -> None:
        self.lost = None
        self.task()

    def __del__(self) -> None:
        if self.lost is not None:
            self.lost()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopExecutor] = weakref.WeakKeyDictionary()


def loop_executor(loop: asyncio.AbstractEventLoop) -> LoopExecutor:
    """Return the only executor of a loop, so that one wake-up serves all its tasks."""
    # No lock: a child of fork could inherit it locked by a thread that does not exist there. The first entry stays.
    return _loops.get(loop) or _loops.setdefault(loop, LoopExecutor(loop))


def executor_of(where: AnyExecutor | None) -> Executor:
    """Return the executor that a caller has named; ``None`` is `INLINE`.

    Raises:
        TypeError: If it is neither an event loop nor has a ``submit``.
    """
    if where is None or where is INLINE:
        return INLINE
    if isinstance(where, asyncio.AbstractEventLoop):
        return loop_executor(where)
    if isinstance(where, Executor):
        return where
    raise TypeError(f"executor: {where!r}; an executor with submit(), an event loop or None is expected")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def require_loop(what: str, otherwise: str = "") -> asyncio.AbstractEventLoop:
    """Return the event loop that runs on this thread.

    Args:
        what: What needs it.
        otherwise: What the caller may write where none runs, besides the ways to run one.

    Raises:
        RuntimeError: If none runs; it tells how to run one, also in a shell and under trio.
    """
    loop = running_loop()
    if loop is not None:
        return loop
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        raise RuntimeError(
            f"{what} needs asyncio, and trio runs here; write: await trio.to_thread.run_sync(asyncio.run, main())"
        )
    raise RuntimeError(
        f"{what} needs a running event loop, and none runs here; {otherwise}write: asyncio.run(main()),"
        " or in a shell, where await then works: python -m asyncio"
    )


def require_no_loop(what: str, instead: str) -> None:
    """Refuse a call that would block the thread of an event loop, and with it the signals for which the call waits.

    Args:
        what: The call.
        instead: What the caller may write there.

    Raises:
        RuntimeError: If an event loop runs on this thread.
    """
    if running_loop() is not None:
        raise RuntimeError(
            f"{what} would block the event loop that runs here, as in a coroutine or a notebook; write: {instead}"
        )


class Resubmitter:
    """The `Rescue` of drains without another one: a single daemon thread, which exists only while wake-ups wait.

    The queue is bounded by the number of drains: each has at most one wake-up.
    """

    __slots__ = ("__weakref__", "_condition", "_interval", "_serving", "_waiting")

    def __init__(self, interval: float = 0.002) -> None:
        """Set the pause between two attempts, in seconds."""
        self._interval = interval
        self._condition = threading.Condition()
        self._waiting: deque[tuple[Task, Executor]] = deque()
        self._serving = False
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the thread does not exist in the child, and the waiting wake-ups belong to the parent."""
        self._condition = threading.Condition()
        self._waiting = deque()
        self._serving = False

    def resubmit(self, run: Task, executor: Executor, /) -> None:
        """Queue the wake-up for the next attempt."""
        with self._condition:
            self._waiting.append((run, executor))
            if self._serving:
                return
            thread = threading.Thread(target=self._serve, name="flow-resubmit", daemon=True)
            thread.start()
            self._serving = True

    def _serve(self) -> None:
        refused: list[tuple[Task, Executor]] = []
        while True:
            with self._condition:
                self._waiting.extendleft(reversed(refused))
                if not self._waiting:
                    self._serving = False
                    return
                self._condition.wait(self._interval)
                batch = list(self._waiting)
                self._waiting.clear()
            refused = [waiting for waiting in batch if not _accepted(*waiting)]
            batch.clear()


def _accepted(run: Task, executor: Executor) -> bool:
    try:
        executor.submit(run)
    except SATURATED:
        return False
    except BaseException as error:  # noqa: BLE001 - a subscriber's SystemExit must not strand the other wake-ups
        _log.error("dropped by the thread that resubmits", exc_info=error)
    return True


RETRY: Final[Rescue] = Resubmitter()
"""The rescue of all drains without another one."""

"""A scheduler for real threads: one runs at a time, and a choice says at each step which one goes on.

The threads of a run are the test's own thread and every thread that is started meanwhile. A step ends before a lock is
acquired and after it is released, likewise at conditions, events, semaphores, queues, starts and joins
(`tests.interleaving.primitives` stands in for them), and before each line of the files that a test names. Nothing else
runs meanwhile, so the choices alone decide the order: the same choices make the same run.

Time stands still, except that each step takes `TICK`; if all threads wait, the first deadline comes at once.
"""

import gc
import sys
import threading
import traceback
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, Final, Protocol

__all__ = ["TICK", "Abandoned", "Actor", "Choice", "Deadlock", "Endless", "Scheduler"]

TICK: Final = 0.0001
"""Seconds that a step takes."""

_PATIENCE: Final = (
    60.0  # real seconds without a step, after which a thread waits for something that takes no part
)
_SHOWN: Final = 40  # last switches in a report
_START: Final = threading.Thread.start
_JOIN: Final = threading.Thread.join


class Abandoned(BaseException):
    """Ends a thread of a run that has failed elsewhere."""


class Deadlock(AssertionError):
    """All threads wait."""


class Endless(AssertionError):
    """A run takes more steps than it may."""


class Actor:
    """A thread of a run.

    Attributes:
        place: Its number, in the order of the starts; 0 is the test's own thread.
        wanted: Tells whether it may go on; None if it may.
        deadline: When it stops waiting; None for never.
        at: What it is about to do: words, or a line of code.
        done: Whether it has ended.
        error: What ended it.
    """

    __slots__ = ("at", "deadline", "done", "error", "go", "ident", "name", "place", "wanted")

    def __init__(self, place: int, name: str) -> None:
        self.place, self.name, self.ident = place, name, 0
        self.go = allocate_lock()
        self.go.acquire()
        self.wanted: Callable[[], bool] | None = None
        self.deadline: float | None = None
        self.at: str | tuple[CodeType, int] = "begin"
        self.done = False
        self.error: BaseException | None = None

    def ready(self, now: float) -> bool:
        """Whether it can make a step."""
        if self.done:
            return False
        if self.wanted is None or self.wanted():
            return True
        return self.deadline is not None and now >= self.deadline

    def __str__(self) -> str:
        at = self.at if isinstance(self.at, str) else f"{_short(self.at[0].co_filename)}:{self.at[1]}"
        return f"{self.place} {self.name}: {at}"


class Choice(Protocol):
    """Says which thread makes the next step."""

    def pick(self, ready: Sequence[Actor], current: Actor | None) -> Actor:
        """Picks one of several that are ready; ``current`` is the one that made the last step, if it is among them."""


class Scheduler:
    """One run of threads.

    Args:
        choice: Picks the next thread within `together`, where several could go on. Before and after, a thread goes on
            until it waits, and then the first one that can.
        files: Ends of the names of source files of which each line is a step, such as ``commits/queue.py``.
        most: Most steps.

    Attributes:
        now: The time in seconds.
        trail: The places of the threads that were picked: the schedule.
    """

    def __init__(self, choice: Choice, *, files: Iterable[str] = (), most: int = 100_000) -> None:
        self.now = 1000.0
        self.trail: list[int] = []
        self._choice = choice
        self._files = tuple(files)
        self._traced: dict[CodeType, bool] = {}
        self._left = most
        self._choosing = False
        self._failure: BaseException | None = None
        self._actors: list[Actor] = []
        self._by_ident: dict[int, Actor] = {}
        self._by_thread: dict[threading.Thread, Actor] = {}
        self._switches: deque[str] = deque(maxlen=_SHOWN)

    # For tests.

    def run(self, scenario: Callable[["Scheduler"], object]) -> None:
        """Runs a scenario on this thread, with all threads that it starts; each of them must end without an error.

        Raises:
            Deadlock: If all threads wait.
            Endless: If the run takes too many steps.
        """
        actor = self._add("scenario")
        self._enter(actor)
        try:
            scenario(self)
            if not self.until(self._is_over, "the end of the others", 1.0):
                gc.collect()  # a pool without a reference ends its threads
                self.until(self._is_over, "the end of the others")
            for one in self._actors:
                if one.error is not None:
                    raise one.error
        except BaseException as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._abandon()
        if self._failure is not None:
            raise self._failure

    def together(self, *bodies: Callable[[], object]) -> None:
        """Runs callables at the same time, each on a thread, in the order that the choice takes; raises the first error."""
        threads = [
            threading.Thread(target=body, name=getattr(body, "__name__", str(place)), daemon=True)
            for place, body in enumerate(bodies)
        ]
        for thread in threads:
            thread.start()
        self._choosing = True
        for thread in threads:
            thread.join()
        self._choosing = False
        actors = [self._by_thread[thread] for thread in threads]
        errors = [actor.error for actor in actors if actor.error is not None]
        for actor in actors:
            actor.error = None
        if errors:
            raise errors[0]

    def report(self) -> str:
        """Tells what each thread is about to do or waits for, and the last switches."""
        frames = sys._current_frames()
        lines = []
        for actor in self._actors:
            if not actor.done:
                stack = traceback.extract_stack(frames.get(actor.ident))
                where = [f"{_short(f.filename)}:{f.lineno} {f.name}" for f in stack if _concerns(f.filename)]
                lines.append(f"  {actor}\n      in {' < '.join(reversed(where[-4:]))}")
        return "\n".join([*lines, " the last switches:", *(f"  {switch}" for switch in self._switches)])

    # For what stands in for locks and threads.

    def point(self, at: str | tuple[CodeType, int]) -> None:
        """Ends a step: others may run before this returns."""
        actor = self._by_ident.get(threading.get_ident())
        if actor is not None and self._failure is None:
            self._switch(actor, at)

    def until(self, wanted: Callable[[], bool], at: str, timeout: float | None = None) -> bool:
        """Ends a step, and waits until something holds; False if the time is up first. It still holds when this returns."""
        actor = self._by_ident.get(threading.get_ident())
        if actor is None or self._failure is not None:
            if not wanted():
                raise Abandoned
            return True
        actor.wanted, actor.deadline = wanted, None if timeout is None else self.now + timeout
        try:
            self._switch(actor, at)
        finally:
            actor.wanted = actor.deadline = None
        return wanted()

    def start(self, thread: threading.Thread) -> None:
        """Starts a thread, which waits for its first turn."""
        if threading.get_ident() not in self._by_ident:
            _START(thread)
            return
        actor = self._by_thread[thread] = self._add(thread.name)
        run = thread.run

        def live() -> None:
            self._enter(actor)
            actor.go.acquire()
            try:
                if self._failure is None:
                    sys.settrace(self._trace if self._files else None)
                    run()
            except BaseException as error:
                actor.error = None if isinstance(error, Abandoned) else error
            finally:
                sys.settrace(None)
                self._leave(actor)

        thread.run = live  # type: ignore[method-assign]  # of this one thread
        _START(thread)
        self.point(f"start {thread.name}")

    def join(self, thread: threading.Thread, timeout: float | None = None) -> None:
        """Waits for the end of a thread."""
        actor = self._by_thread.get(thread)
        if actor is None:
            _JOIN(thread, timeout)
        elif self.until(lambda: actor.done, f"join {thread.name}", timeout):
            _JOIN(thread)

    def _is_over(self) -> bool:
        return all(actor.done for actor in self._actors[1:])

    # From here on, only the thread that runs gets in.

    def _add(self, name: str) -> Actor:
        actor = Actor(len(self._actors), name)
        self._actors.append(actor)
        return actor

    def _enter(self, actor: Actor) -> None:
        actor.ident = threading.get_ident()
        self._by_ident[actor.ident] = actor

    def _switch(self, actor: Actor, at: str | tuple[CodeType, int]) -> None:
        actor.at = at
        self.now += TICK
        self._left -= 1
        if self._left < 0:
            self._failure = Endless(f"the run does not end\n{self.report()}")
        following = self._next(actor)
        if following is not actor:
            following.go.release()
            self._await_turn(actor)
        if self._failure is not None:
            raise Abandoned

    def _await_turn(self, actor: Actor) -> None:
        if actor.place:
            actor.go.acquire()
            return
        left = self._left
        while not actor.go.acquire(timeout=_PATIENCE):
            if left == self._left:
                self._failure = AssertionError(
                    f"a thread waits for something that takes no part in the run\n{self.report()}"
                )
                raise self._failure
            left = self._left

    def _next(self, current: Actor) -> Actor:
        """The thread for the next step. After a failure it is the one that has failed, which ends, and then the first one."""
        if self._failure is not None:
            return self._actors[0] if current.done else current
        if not self._choosing and current.ready(self.now):
            return current
        ready = [one for one in self._actors if one.ready(self.now)]
        if not ready:
            deadlines = [one.deadline for one in self._actors if not one.done and one.deadline is not None]
            if not deadlines:
                self._failure = Deadlock(f"all threads wait\n{self.report()}")
                return self._next(current)
            self.now = max(self.now, min(deadlines))
            ready = [one for one in self._actors if one.ready(self.now)]
        following = ready[0]
        if self._choosing and len(ready) > 1:
            following = self._choice.pick(ready, current if current in ready else None)
            self.trail.append(following.place)
        if following is not current:
            self._switches.append(f"{current}   ->   {following}")
        return following

    def _leave(self, actor: Actor) -> None:
        actor.done, actor.at = True, "end"
        del self._by_ident[actor.ident]
        if actor.place and not self._actors[0].done:
            self._next(actor).go.release()

    def _abandon(self) -> None:
        """Ends the threads that are left after a failure, one after the other."""
        first = self._actors[0]
        first.done = True
        del self._by_ident[first.ident]
        for thread, actor in self._by_thread.items():
            if not actor.done:
                actor.go.release()
                _JOIN(thread, 5.0)

    def _trace(self, frame: FrameType, _event: str, _what: Any) -> Any:
        code = frame.f_code
        traced = self._traced.get(code)
        if traced is None:
            traced = self._traced[code] = code.co_filename.endswith(self._files)
        return self._trace_lines if traced else None

    def _trace_lines(self, frame: FrameType, event: str, _what: Any) -> Any:
        if event == "line":
            self.point((frame.f_code, frame.f_lineno))
        return self._trace_lines


def _concerns(filename: str) -> bool:
    return (
        "/interleaving/scheduler" not in filename
        and "/interleaving/primitives" not in filename
        and (
            "/publishers/" in filename
            or "/flow/" in filename
            or "/transports/" in filename
            or "/tests/" in filename
        )
    )


def _short(filename: str) -> str:
    return "/".join(filename.split("/")[-2:])

"""Runs a scenario in many orders: all with few preemptions, or by chance; and one again, from the schedule that a failure prints."""

import contextlib
import gc
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from flow import hooks
from tests.interleaving.primitives import installed
from tests.interleaving.scheduler import Actor, Choice, Scheduler

__all__ = ["Fewest", "Priorities", "Replay", "Walk", "explore", "written"]

SCHEDULE: Final = "PENSTOCK_SCHEDULE"
"""The variable that holds the name of a scenario and the only schedule to run."""


ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = frozenset(
    f"{path}"
    for part in ("flow", "publishers", "transports", "tests")
    for path in (ROOT / part).rglob("*.py")
)


class Replay:
    """A schedule that is known; after its end, and where it does not fit, a thread goes on until it waits."""

    def __init__(self, trail: Sequence[int]) -> None:
        self._trail = iter(trail)

    def pick(self, ready: Sequence[Actor], current: Actor | None) -> Actor:
        place = next(self._trail, None)
        return next((one for one in ready if one.place == place), current or ready[0])


class Walk:
    """By chance: at each step the thread goes on, or any other does. A seed decides how often."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._stay = self._chance.choice([0.0, 0.5, 0.8, 0.95])

    def pick(self, ready: Sequence[Actor], current: Actor | None) -> Actor:
        if current is not None and self._chance.random() < self._stay:
            return current
        return self._chance.choice(ready)


class Priorities:
    """By priorities drawn by chance: the first thread that is ready runs. At a few steps the one that runs becomes the last.

    A fault that needs ``depth`` such steps is found with a known probability, however many threads and steps there are
    (Burckhardt and others, 2010).
    """

    def __init__(self, seed: int, depth: int = 3, length: int = 400) -> None:
        self._chance = random.Random(seed)
        self._changes = set(self._chance.sample(range(length), depth))
        self._ranks: dict[int, float] = {}
        self._steps = 0

    def pick(self, ready: Sequence[Actor], current: Actor | None) -> Actor:
        for one in ready:
            self._ranks.setdefault(one.place, self._chance.random())
        if self._steps in self._changes and current is not None:
            self._ranks[current.place] = -float(self._steps)
        self._steps += 1
        return max(ready, key=lambda one: self._ranks[one.place])


class Fewest:
    """A known beginning, after which no thread is preempted; notes what else could have been chosen.

    Attributes:
        others: For each step, the other places that could have been picked, and whether that would have been a preemption.
    """

    def __init__(self, beginning: Sequence[int]) -> None:
        self._beginning = Replay(beginning)
        self.others: list[tuple[list[int], bool]] = []

    def pick(self, ready: Sequence[Actor], current: Actor | None) -> Actor:
        picked = self._beginning.pick(ready, current)
        self.others.append(([one.place for one in ready if one is not picked], current is not None))
        return picked


def written(trail: Sequence[int]) -> str:
    """A schedule as words: ``1*12 2*3`` are twelve steps of thread 1 and three of thread 2."""
    return " ".join(f"{place}*{len(list(steps))}" for place, steps in groupby(trail))


def read(text: str) -> list[int]:
    """A schedule from its words."""
    trail: list[int] = []
    for part in text.split():
        place, _, count = part.partition("*")
        trail += [int(place)] * int(count or 1)
    return trail


def once(scenario: Callable[[Scheduler], object], choice: Choice, files: Sequence[str] = ()) -> list[int]:
    """Runs a scenario in one order; answers its schedule, which a failure tells too.

    An error that is dropped or logged anywhere fails the run.
    """
    run = Scheduler(choice, files=files)
    collecting = gc.isenabled()
    gc.disable()  # finalizers run at their own time, and would make steps
    try:
        with _no_error_is_dropped(), installed(run):
            run.run(scenario)
    except BaseException as error:
        error.add_note(
            f"again: {SCHEDULE}='{scenario.__name__}: {written(run.trail)}' python -m pytest -n0 <this test>"
        )
        raise
    finally:
        if collecting:
            gc.enable()
    return run.trail


@contextlib.contextmanager
def _no_error_is_dropped() -> Iterator[None]:
    dropped: list[BaseException] = []
    logged = _Errors(dropped)
    before, hooks.on_dropped_error = hooks.on_dropped_error, lambda error, _: dropped.append(error)
    logging.getLogger().addHandler(logged)
    try:
        yield
    finally:
        hooks.on_dropped_error = before
        logging.getLogger().removeHandler(logged)
    if dropped:
        raise dropped[0]


class _Errors(logging.Handler):
    def __init__(self, found: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._found.append(error or AssertionError(record.getMessage()))


def explore(
    scenario: Callable[[Scheduler], object],
    *,
    preemptions: int = 1,
    most: int = 100,
    walks: int = 0,
    seed: int = 0,
    files: Sequence[str] = (),
    known: Sequence[str] = (),
) -> int:
    """Runs a scenario in many orders.

    Args:
        scenario: Builds what it needs, runs threads by `Scheduler.together`, and checks what came of it.
        preemptions: Most preemptions of the orders that are enumerated: switches from a thread that could have gone on.
        most: Most such orders; if there are more, these are drawn from all, the same in each run.
        walks: Number of orders that are drawn by chance, without a bound of preemptions.
        seed: Where the drawing begins.
        files: As for `Scheduler`.
        known: Schedules that failed once; they are run first.

    Returns:
        The number of orders.
    """
    unknown = [file for file in files if not any(path.endswith(file) for path in SOURCES)]
    assert not unknown, f"{unknown}: no such files, so that nothing would be interrupted at their lines"
    if (given := os.environ.get(SCHEDULE)) is not None:
        name, _, schedule = given.partition(": ")
        if name == scenario.__name__:
            once(scenario, Replay(read(schedule)), files)
        return 1
    for words in known:
        once(scenario, Replay(read(words)), files)
    runs = len(known)
    for beginning in _enumerated(scenario, preemptions, most, seed, files):
        runs += beginning
    length = 400
    for number in range(walks):
        choice = Walk(seed + number) if number % 2 else Priorities(seed + number, length=length)
        length = max(50, len(once(scenario, choice, files)))
        runs += 1
    return runs


def _enumerated(
    scenario: Callable[[Scheduler], object], preemptions: int, most: int, seed: int, files: Sequence[str]
) -> Iterator[int]:
    chance = random.Random(seed)
    # Each is a schedule, after how many steps it is left, for which threads, and how often that may preempt.
    waiting: list[tuple[list[int], int, list[int], int]] = [([], 0, [], preemptions)]
    while waiting and most:
        place = chance.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        before, steps, instead, left = waiting.pop()
        beginning = before[:steps] + instead
        choice = Fewest(beginning)
        trail = once(scenario, choice, files)
        for step, (others, preempts) in enumerate(choice.others[len(beginning) :], len(beginning)):
            if left or not preempts:
                waiting += [(trail, step, [other], left - preempts) for other in others]
        most -= 1
        yield 1

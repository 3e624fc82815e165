"""All orders of the steps of a queue, or some at random; a world is made anew for each, and led to where it shall go on."""

import random
from collections.abc import Callable, Iterable
from typing import Final

from tests.model.explorer import Fault
from tests.model.queue_entries import QueuePlan
from tests.model.queue_invariants import check, check_rest
from tests.model.queue_world import QueueWorld

__all__ = ["replay", "search", "wander"]

_RARE: Final = 16
"""How much rarer a fault is than a step, so that there is something for it to harm."""
_PACES: Final = (1, 16, 256)
"""Threads differ in how fast they are, and each for some time only."""

Schedule = tuple[tuple[str, str], ...]


def search(plan: QueuePlan, most: int = 10**7) -> int:
    """Tries every order, depth first and the steps of a state shuffled; answers how many states there are, at most so many.

    Raises:
        Fault: If something was wrong in one of them.
    """
    chance = random.Random(0)
    seen: set[object] = set()
    branches: list[Schedule] = [()]
    while branches and len(seen) < most:
        schedule = branches.pop()
        world = replay(plan, schedule)
        while (key := world.key()) not in seen:
            seen.add(key)
            if world.resting:
                _checked(plan, schedule, check_rest, world)
            steps = world.steps()
            chance.shuffle(steps)
            branches += [(*schedule, other) for other in steps[1:]]
            if not steps:
                break
            schedule = (*schedule, steps[0])
            _checked(plan, schedule, take, world, *steps[0])
    return len(seen)


def wander(plan: QueuePlan, seed: int) -> int:
    """Takes random steps until nothing is left to do; answers how many.

    Raises:
        Fault: If something was wrong on the way.
    """
    chance = random.Random(seed)
    world = QueueWorld(plan)
    schedule: list[tuple[str, str]] = []
    paces: dict[str, int] = {}
    while steps := world.steps():
        if world.resting:
            _checked(plan, schedule, check_rest, world)
        if chance.random() < 1 / _RARE:
            paces = {}
        weights = [
            paces.setdefault(thread, chance.choice(_PACES)) * (1 if what in world.left else _RARE)
            for thread, what in steps
        ]
        schedule.append(step := chance.choices(steps, weights)[0])
        _checked(plan, schedule, take, world, *step)
    _checked(plan, schedule, check_rest, world)
    return len(schedule)


def replay(plan: QueuePlan, schedule: Schedule) -> QueueWorld:
    """Makes a world in which these steps have been taken."""
    world = QueueWorld(plan)
    for step in schedule:
        take(world, *step)
    return world


def take(world: QueueWorld, thread: str, what: str) -> None:
    """One step, and the look whether all is well behind it."""
    world.take(thread, what)
    check(world)


def _checked(
    plan: QueuePlan, schedule: Iterable[tuple[str, str]], what: Callable[..., None], *given: object
) -> None:
    try:
        what(*given)
    except Exception as wrong:
        told = "\n".join(f"{thread}: {step}" for thread, step in schedule)
        raise Fault(f"{wrong!r}\n{plan!r}\n{told}") from wrong

"""Breadth first through all orders of steps."""

from collections import deque

from tests.model.invariants import check, check_rest
from tests.model.world import Plan, World, Wrong

__all__ = ["Fault", "explore"]


class Fault(AssertionError):
    """Where some order of steps led, and which: the shortest one."""


def explore(plan: Plan, most: int = 10**7) -> int:
    """Tries every order; answers how many states there are, at most so many.

    Raises:
        Fault: If something was wrong in one of them.
    """
    first = World(plan)
    came: dict[object, tuple[object, str]] = {first.key(): (None, "")}
    waiting = deque([(first, first.key())])
    while waiting and len(came) < most:
        world, key = waiting.popleft()
        if world.resting:
            try:
                check_rest(world)
            except Wrong as wrong:
                raise Fault(_told(plan, came, key, str(wrong))) from wrong
        for step in world.steps():
            after = world.copy()
            try:
                after.take(step)
                check(after)
            except Exception as wrong:
                raise Fault(_told(plan, came, key, f"{step}: {wrong!r}")) from wrong
            reached = after.key()
            if reached not in came:
                came[reached] = (key, step)
                waiting.append((after, reached))
    return len(came)


def _told(plan: Plan, came: dict[object, tuple[object, str]], key: object, wrong: str) -> str:
    steps = []
    while key is not None:
        key, step = came[key]
        steps.append(step)
    return f"{wrong}\n{plan}\n" + "\n".join(reversed(steps))

"""What enters a queue in the tests of it, and what a mistake has to get through unnoticed."""

import itertools
from collections.abc import Iterator

from tests.model.queue_entries import QueuePlan
from tests.model.schedules import search, wander

__all__ = ["LARGE", "plans", "try_all"]

THREADS = ("c", "c", "cc", "h", "e", "s", "sp", "t", "f", "q", "z")
FAULTS = ({"interrupts": 1}, {"room": 5}, {"fulls": 1}, {"failures": 1})


def plans() -> list[QueuePlan]:
    """Each three of what can meet: threads, and what can go wrong; two more commits where there is only one thread."""
    found = {}
    for three in itertools.combinations([*THREADS, *FAULTS], 3):
        threads = tuple(one for one in three if isinstance(one, str))
        faults = {name: value for one in three if isinstance(one, dict) for name, value in one.items()}
        if threads:
            plan = QueuePlan(threads if len(threads) > 1 else (*threads, "c", "c"), **faults)
            found[str(plan)] = plan
    return list(found.values())


LARGE = [
    QueuePlan(("cc", "cc", "sp", "t", "h", "z"), interrupts=2, fulls=1, failures=1),
    QueuePlan(("cc", "ch", "spp", "f", "hc", "e"), interrupts=1, room=9),
    QueuePlan(("ccc", "ccc", "ss", "r", "e"), prompt=1),
    QueuePlan(("cc", "sp", "q", "h", "t", "z"), interrupts=1, interval=True),
    QueuePlan(("hf", "ss", "q", "c")),
    QueuePlan(("sp", "ee"), fulls=1),
]


def try_all() -> Iterator[None]:
    """What a mistake has to get through, piece by piece."""
    for seed in range(400):
        yield None
        for plan in LARGE:
            wander(plan, seed)
    for plan in plans():
        yield None
        search(plan, 300)

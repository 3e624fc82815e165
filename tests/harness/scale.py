"""How much of what is random or exhaustive a run tries."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["LONG", "SCALE", "each", "scaled"]

SCALE: Final = float(os.environ.get("PENSTOCK_TEST_SCALE", "0.5"))
"""Multiplies the counts of long loops and samples: half of each in a commit's run, several times as much in long ones."""

LONG: Final = SCALE > 1
"""Whether this run looks for what is new. A commit's run tries the same cases each time: what passed once does not fail by
chance on another machine."""


def scaled(count: int) -> int:
    """So many, or the part of it that this run tries; at least one."""
    return max(1, int(count * SCALE))


def each(numbers: Sequence[int] | None = None) -> Iterable[int]:
    """All of ``numbers``, or of 0, 1, 2 and so on; in a commit's run one of four, the same in each run."""
    stride = 1 if LONG else 4
    return itertools.count(0, stride) if numbers is None else numbers[::stride]

"""How much of what is random or exhaustive a run tries."""

import itertools
import os
import random
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["SCALE", "each", "scaled"]

SCALE: Final = float(os.environ.get("PENSTOCK_TEST_SCALE", "0.5"))
"""Multiplies the counts of long loops and samples: half of each in a commit's run, several times as much in long ones."""


def scaled(count: int) -> int:
    """So many, or the part of it that this run tries; at least one."""
    return max(1, int(count * SCALE))


def each(numbers: Sequence[int] | None = None) -> Iterable[int]:
    """All of ``numbers``, or of 0, 1, 2 and so on; in a commit's run one of four, from a random one on."""
    stride = 1 if SCALE > 1 else 4
    start = random.randrange(stride)
    print(f"from {start}, in steps of {stride}")  # noqa: T201 - shown where the test fails
    return itertools.count(start, stride) if numbers is None else numbers[start::stride]

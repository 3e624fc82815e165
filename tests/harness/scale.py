"""Scales random and exhaustive tests to the length of a run."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["LONG", "SCALE", "each", "scaled"]

SCALE: Final = float(os.environ.get("PENSTOCK_TEST_SCALE", "0.25"))
"""Factor for the counts of long loops and samples: a quarter in a commit's run, several times as much in long runs."""

LONG: Final = SCALE > 1
"""Whether this run searches for new failures. A commit's run tries the same cases each time, so it never fails by chance on
another machine."""


def scaled(count: int) -> int:
    """Returns ``count`` scaled for this run, at least 1."""
    return max(1, int(count * SCALE))


def each(numbers: Sequence[int] | None = None, *, beginning: int = 0) -> Iterable[int]:
    """Returns all ``numbers`` (None: 0, 1, 2, ...); in a commit's run every eighth, the same in each run.

    Args:
        numbers: What an exhaustive test tries.
        beginning: How many are passed over first in a commit's run; by tests that try all of them together.
    """
    stride = 1 if LONG else 8
    return itertools.count(0, stride) if numbers is None else numbers[beginning % stride :: stride]

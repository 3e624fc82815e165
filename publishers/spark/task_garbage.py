"""Cheaper garbage collection in Spark's Python workers, which collect after every task."""

import gc
import itertools

__all__ = ["spare_what_is_loaded"]

_tasks = itertools.count(1)


def spare_what_is_loaded() -> None:
    """Exempts all existing objects from garbage collection, once, at the second task of this process.

    A worker of Spark runs a full collection after each task. It visits every object of every module, which takes as long as reading
    some hundred thousand rows. At the start of the second task no existing object is garbage, since a collection has just run.
    """
    if next(_tasks) == 2:
        gc.freeze()

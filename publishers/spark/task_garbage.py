"""Collections of garbage in the Python workers of Spark, which come after every task."""

import gc
import itertools

__all__ = ["spare_what_is_loaded"]

_tasks = itertools.count(1)


def spare_what_is_loaded() -> None:
    """Lets collections pass over what the second task of this process finds.

    A worker of Spark collects all garbage after each of its tasks, and for that goes through every object of every module: it takes
    as long as reading some hundred thousand rows. At the second task nothing that is there is garbage, since Spark has just looked.
    """
    if next(_tasks) == 2:
        gc.freeze()

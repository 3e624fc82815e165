"""What turns publishers into other publishers, by family.

An operator is what a function like `map` returns: a callable from publisher to publisher. `pipe` applies some in a
row. Each subscriber has its own chain, and its demand reaches the source through it. The names are those of the field,
so import the package rather than what is in it::

    from flow import operators as op

    flow.pipe(publisher, op.filter(bool), op.map(str), op.take(10))

`Flow` has the same as methods.
"""

from flow.operators.batching import buffer
from flow.operators.buffering import (
    on_backpressure_buffer,
    on_backpressure_drop,
    on_backpressure_error,
    on_backpressure_latest,
    publish_on,
)
from flow.operators.combining import concat, merge, zip  # noqa: A004 - said above
from flow.operators.fluent import Flow
from flow.operators.limiting import limit_rate, skip, take, take_while
from flow.operators.link import Operator
from flow.operators.observing import tap
from flow.operators.pipeline import pipe
from flow.operators.recovering import AT_ONCE, USUAL, Backoff, on_error_resume, retry, timeout
from flow.operators.timing import TIMERS, Alarm, ThreadTimers, Timers
from flow.operators.transforming import distinct_until_changed, filter, flat_map, map, scan  # noqa: A004 - said above

__all__ = [
    "AT_ONCE",
    "TIMERS",
    "USUAL",
    "Alarm",
    "Backoff",
    "Flow",
    "Operator",
    "ThreadTimers",
    "Timers",
    "buffer",
    "concat",
    "distinct_until_changed",
    "filter",
    "flat_map",
    "limit_rate",
    "map",
    "merge",
    "on_backpressure_buffer",
    "on_backpressure_drop",
    "on_backpressure_error",
    "on_backpressure_latest",
    "on_error_resume",
    "pipe",
    "publish_on",
    "retry",
    "scan",
    "skip",
    "take",
    "take_while",
    "tap",
    "timeout",
    "zip",
]

"""Operators turn publishers into other publishers; each is in the module of its family, or in one of its own name.

A function such as `map` returns an operator: a callable from publisher to publisher. `pipe` applies several in
sequence. Each subscriber has its own chain, through which its demand reaches the source. The functions have the names of
the field, some of them those of builtins, so import the package rather than its content::

    from flow import operators as op

    flow.pipe(publisher, op.filter(bool), op.map(str), op.take(10))

`Flow` has the same operators as methods.
"""

from flow.operators.backpressure import (
    limit_rate,
    on_backpressure_buffer,
    on_backpressure_drop,
    on_backpressure_error,
    on_backpressure_latest,
    publish_on,
)
from flow.operators.buffer import buffer
from flow.operators.combining import (
    concat,
    flat_map,
    merge,
    zip,  # noqa: A004 - said above
)
from flow.operators.fluent import Flow, pipe
from flow.operators.limiting import skip, take, take_while, timeout
from flow.operators.link import Operator
from flow.operators.recovering import AT_ONCE, USUAL, RetryDelay, on_error_resume, retry
from flow.operators.tap import tap
from flow.operators.timers import TIMERS, Alarm, ThreadTimers, Timers
from flow.operators.transforming import (
    distinct_until_changed,
    filter,  # noqa: A004 - said above
    map,  # noqa: A004 - said above
    scan,
)

__all__ = [
    "AT_ONCE",
    "TIMERS",
    "USUAL",
    "Alarm",
    "Flow",
    "Operator",
    "RetryDelay",
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

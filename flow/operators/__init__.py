"""Operators turn publishers into other publishers; each is in a module of its own name.

A function such as `map` returns an operator: a callable from publisher to publisher. `pipe` applies several in
sequence. Each subscriber has its own chain, through which its demand reaches the source. The functions have the names of
the field, some of them those of builtins, so import the package rather than its content::

    from flow import operators as op

    flow.pipe(publisher, op.filter(bool), op.map(str), op.take(10))

`Flow` has the same operators as methods.
"""

from flow.operators.buffer import buffer
from flow.operators.concat import concat
from flow.operators.distinct_until_changed import distinct_until_changed
from flow.operators.filter import filter  # noqa: A004 - said above
from flow.operators.flat_map import flat_map
from flow.operators.fluent import Flow
from flow.operators.limit_rate import limit_rate
from flow.operators.link import Operator
from flow.operators.map import map  # noqa: A004 - said above
from flow.operators.merge import merge
from flow.operators.on_backpressure_buffer import on_backpressure_buffer
from flow.operators.on_backpressure_drop import on_backpressure_drop
from flow.operators.on_backpressure_error import on_backpressure_error
from flow.operators.on_backpressure_latest import on_backpressure_latest
from flow.operators.on_error_resume import on_error_resume
from flow.operators.pipe import pipe
from flow.operators.publish_on import publish_on
from flow.operators.retry import AT_ONCE, USUAL, RetryDelay, retry
from flow.operators.scan import scan
from flow.operators.skip import skip
from flow.operators.take import take
from flow.operators.take_while import take_while
from flow.operators.tap import tap
from flow.operators.timeout import timeout
from flow.operators.timers import TIMERS, Alarm, ThreadTimers, Timers
from flow.operators.zip import zip  # noqa: A004 - said above

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

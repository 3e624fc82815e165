"""Reactive Streams for Python: publishers and subscribers in which the subscriber sets the pace.

Standard library only. See `flow.contracts` for the protocols and `flow.drain` for the one delivery engine.
"""

from flow import hooks
from flow.clock import SYSTEM_CLOCK, Clock, SystemClock
from flow.contracts import UNBOUNDED, BatchSubscriber, Processor, Publisher, Subscriber, Subscription
from flow.drain import COMPLETED, Completed, Drain, Failed, Feed, Outcome
from flow.errors import FlowError, IllegalRequestError, Lagged, Rejected
from flow.executors import INLINE, Executor, LoopExecutor, Rescue, executor_of, loop_executor

__all__ = [
    "COMPLETED",
    "INLINE",
    "SYSTEM_CLOCK",
    "UNBOUNDED",
    "BatchSubscriber",
    "Clock",
    "Completed",
    "Drain",
    "Executor",
    "Failed",
    "Feed",
    "FlowError",
    "IllegalRequestError",
    "Lagged",
    "LoopExecutor",
    "Outcome",
    "Processor",
    "Publisher",
    "Rejected",
    "Rescue",
    "Subscriber",
    "Subscription",
    "SystemClock",
    "executor_of",
    "hooks",
    "loop_executor",
]

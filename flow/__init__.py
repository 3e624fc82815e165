"""Reactive Streams for Python: publishers, and subscribers that set the pace.

* `flow.contracts`: the four protocols. `flow.drain`: the only delivery engine.
* `flow.operators`: `Flow`, `pipe` and the operators. `flow.sources`: publishers to begin with.
* `flow.broadcast`: hot multicast. `flow.bridges`: iterators, coroutines, callbacks and reactivex.
* `flow.executors`: where signals run. `flow.tck`: the verification kit.

Standard library only.
"""

from flow import hooks, operators
from flow.bridges.async_iterable import from_async_iterable
from flow.bridges.async_subscriber import AsyncSubscriber, subscribe_async
from flow.bridges.callbacks import CallbackSubscription, subscribe
from flow.bridges.inbox import OnLag
from flow.bridges.iterators import AsyncItems, BlockingItems, IterablePublisher, aiter, iter_blocking  # noqa: A004 - the name users type is flow.aiter
from flow.bridges.reactivex import from_observable, to_observable
from flow.broadcast import (
    Broadcast,
    BroadcastClosed,
    BroadcastStart,
    BroadcastStatistics,
    Connectable,
    CursorStatistics,
    Disconnected,
    Lag,
    OfferResult,
    publish,
    replay,
    share,
)
from flow.clock import SYSTEM_CLOCK, Clock, SystemClock
from flow.contracts import UNBOUNDED, BatchSubscriber, Processor, Publisher, Subscriber, Subscription
from flow.drain import COMPLETED, Completed, Drain, Failed, Feed, Outcome
from flow.errors import FlowError, Forked, IllegalRequestError, Lagged, Overflowed, Rejected
from flow.executors import INLINE, Executor, LoopExecutor, Rescue, executor_of, loop_executor
from flow.operators import Flow, Operator, pipe
from flow.overflow import Meter, Overflow, OverflowStatistics
from flow.sources import Source, empty, error, from_iterable, generate, never

__all__ = [
    "COMPLETED",
    "INLINE",
    "SYSTEM_CLOCK",
    "UNBOUNDED",
    "AsyncItems",
    "AsyncSubscriber",
    "BatchSubscriber",
    "BlockingItems",
    "Broadcast",
    "BroadcastClosed",
    "BroadcastStart",
    "BroadcastStatistics",
    "CallbackSubscription",
    "Clock",
    "Completed",
    "Connectable",
    "CursorStatistics",
    "Disconnected",
    "Drain",
    "Executor",
    "Failed",
    "Feed",
    "Flow",
    "FlowError",
    "Forked",
    "IllegalRequestError",
    "IterablePublisher",
    "Lag",
    "Lagged",
    "LoopExecutor",
    "Meter",
    "OfferResult",
    "OnLag",
    "Operator",
    "Outcome",
    "Overflow",
    "OverflowStatistics",
    "Overflowed",
    "Processor",
    "Publisher",
    "Rejected",
    "Rescue",
    "Source",
    "Subscriber",
    "Subscription",
    "SystemClock",
    "aiter",
    "empty",
    "error",
    "executor_of",
    "from_async_iterable",
    "from_iterable",
    "from_observable",
    "generate",
    "hooks",
    "iter_blocking",
    "loop_executor",
    "never",
    "operators",
    "pipe",
    "publish",
    "replay",
    "share",
    "subscribe",
    "subscribe_async",
    "to_observable",
]

"""Channels: a message reaches the current subscriptions of its channel, and is not stored."""

import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Final, Self

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber
from flow.executors import INLINE, AnyExecutor, Executor, running_loop
from flow.overflow import Backlog, Overflow
from publishers.channels.errors import ChannelsClosed
from publishers.channels.listener import ChannelStatistics, Message, MessageListener
from publishers.channels.lookup import Lookup
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.lossless import encodable
from publishers.options import check_whole

__all__ = ["ChannelFeed", "Channels"]


_PATTERN_MAX: Final = 1024
_COUNT: Final = "a whole number from 1"


class Channels:
    """Names on which messages are published, and subscriptions to names and patterns of names.

    A channel exists while it has a publisher or a subscription. All methods may be called from any thread; every subscription
    receives messages in the order in which they were published. As a context manager it closes on exit.

    Args:
        capacity: Most messages that wait for one subscription without a bound of its own.
        overflow: What happens to a further message; with ``flow.Overflow.ERROR`` that subscription ends with
            ``flow.Overflowed``.
        dispatch_threads: Threads that deliver to subscribers without an executor or an event loop.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    def __init__(
        self, *, capacity: int = 1024, overflow: Overflow = Overflow.ERROR, dispatch_threads: int = 4
    ) -> None:
        check_whole("dispatch_threads", dispatch_threads, _COUNT, 1)
        check_whole("capacity", capacity, _COUNT, 1)
        self._capacity = capacity
        self._overflow = _check_overflow(overflow)
        self._threads = dispatch_threads
        self._lock = threading.Lock()
        self._lookup = Lookup()
        self._pool: ThreadPoolExecutor | None = None
        self._ids = count(1)
        self._closed = False
        self._published = self._unheard = self._passed_on = 0
        self._lost = 0  # by subscriptions that have ended

    def messages(
        self,
        *channels: str,
        patterns: str | Collection[str] = (),
        capacity: int | None = None,
        overflow: Overflow | None = None,
    ) -> "ChannelFeed":
        """Returns a publisher of the messages of channels. A message that matches several names and patterns is delivered once.

        Args:
            channels: Names, exactly.
            patterns: Patterns of names, in which ``*`` stands for any number of bytes and ``?`` for one; nothing else in
                them is special.
            capacity: Most messages that wait for a subscriber; the bound of these channels if None.
            overflow: What happens to a further message; the policy of these channels if None. A loss is reported in
                ``Message.missed``, and at once to the subscriber's ``on_lagged(missed)`` if it has that.

        Raises:
            InvalidOption: If there is neither a name nor a pattern, one is not a text, or a bound is invalid.
        """
        listed = [patterns] if isinstance(patterns, str) else list(patterns)
        for parameter, values in (("channels", channels), ("patterns", listed)):
            for value in values:
                _check_name(parameter, value)
        criterions = [Criterion(keys=channels)] if channels else []
        if listed:
            criterions.append(Criterion(key_globs=listed))
        if not criterions:
            raise InvalidOption("channels", channels, "at least one name, or a pattern")
        bound = self._capacity if capacity is None else capacity
        check_whole("capacity", bound, _COUNT, 1)
        policy = self._overflow if overflow is None else _check_overflow(overflow)
        return ChannelFeed(self, Criteria.of(criterions), bound, policy)

    def publish(self, channel: str, content: object) -> int:
        """Publishes a message to the current subscriptions of a channel; never waits.

        Args:
            channel: Name of the channel.
            content: Any object; it is not copied.

        Returns:
            The number of subscriptions that accepted it.

        Raises:
            InvalidOption: If the name is not a text, or empty.
            ChannelsClosed: If these channels were closed.
        """
        _check_name("channel", channel)
        message = Message(channel, content)
        with self._lock:
            if self._closed:
                raise ChannelsClosed
            concerned = self._lookup.find(channel)
            taken = sum([listener.offer(message) for listener in concerned])
            self._published += 1
            self._passed_on += taken
            self._unheard += not taken
        _wake(deque(concerned))
        return taken

    def statistics(self) -> ChannelStatistics:
        """Returns the statistics at this moment."""
        with self._lock:
            listeners = self._lookup.listeners()
            published, unheard, passed_on = self._published, self._unheard, self._passed_on
            lost, evaluations, closed = self._lost, self._lookup.evaluations, self._closed
        subscriptions = tuple(listener.statistics() for listener in listeners)
        return ChannelStatistics(
            published,
            unheard,
            passed_on,
            lost + sum(one.dropped for one in subscriptions),
            evaluations,
            closed,
            subscriptions,
        )

    def close(self) -> None:
        """Completes every subscription after its waiting messages; later subscriptions are completed at once. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            listeners = self._lookup.listeners()
            for listener in listeners:
                listener.close()
        _wake(deque(listeners))
        self._dismiss()

    @property
    def closed(self) -> bool:
        """Whether these channels were closed, and deliver no new message."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the feeds and subscriptions.

    def admit(
        self,
        subscriber: Subscriber[Message],
        feed: "ChannelFeed",
        executor: AnyExecutor | None,
        name: str,
    ) -> None:
        """Registers a subscription for a subscriber, and starts it."""
        backlog = partial(Backlog[Message], feed.overflow, feed.capacity)
        where = running_loop() if executor is None else executor
        with self._lock:
            listener = MessageListener(
                next(self._ids),
                subscriber,
                feed.criteria,
                backlog,
                executor=self._dispatcher() if where is None else where,
                name=name,
                leave=self._leave,
            )
            if self._closed:
                listener.close()
            else:
                self._lookup.add(listener)
        listener.start()

    def _dispatcher(self) -> Executor:
        if self._closed:
            return INLINE  # only on_subscribe and the end are left to deliver
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "penstock-channels")
        return self._pool

    def _leave(self, listener: MessageListener) -> None:
        with self._lock:
            self._lookup.remove(listener)
            self._lost += listener.dropped
        if self._closed:
            self._dismiss()

    def _dismiss(self) -> None:
        """Shuts the pool down after the last subscription has ended."""
        with self._lock:
            pool, self._pool = (self._pool, None) if not self._lookup.listeners() else (None, self._pool)
        if pool is not None:
            pool.shutdown(wait=False)


class ChannelFeed(IterablePublisher[Message]):
    """A publisher of the messages of channels (Reactive Streams 1.0.4), from the moment of each subscribe on.

    ``for`` and ``async for`` accept it too.

    Attributes:
        criteria: The names and patterns, as keys and globs.
        capacity: Most messages that wait for each subscriber.
        overflow: What happens to a further message.
    """

    def __init__(self, channels: Channels, criteria: Criteria, capacity: int, overflow: Overflow) -> None:
        self._channels = channels
        self.criteria = criteria
        self.capacity = capacity
        self.overflow = overflow

    def subscribe(
        self,
        subscriber: Subscriber[Message],
        /,
        *,
        executor: AnyExecutor | None = None,
        name: str | None = None,
    ) -> None:
        """Begins a subscription; on closed channels it calls ``on_subscribe`` and ``on_complete``.

        Args:
            subscriber: Receives the signals; its optional ``on_next_batch`` and ``on_lagged`` are used.
            executor: Runs the signals: an executor, an event loop, or ``flow.INLINE`` (on the publishing or requesting
                thread, which couples publishers to the subscriber). None: the running event loop if there is one, else a small pool.
            name: Its name in statistics.

        Raises:
            TypeError: If the subscriber is None or lacks a method (Reactive Streams §1.9), or the executor is invalid.
        """
        self._channels.admit(subscriber, self, executor, name or type(subscriber).__name__)


def _wake(listeners: deque[MessageListener]) -> None:
    try:
        while listeners:
            listeners[0].wake()
            listeners.popleft()
    finally:
        if listeners:
            # After an interrupt, such as KeyboardInterrupt, the rest must still be woken; to wake twice is harmless.
            _wake(listeners)


def _check_overflow(value: Overflow) -> Overflow:
    if not isinstance(value, Overflow) or value is Overflow.BUFFER:
        raise InvalidOption("overflow", value, "a member of flow.Overflow with a bound: not BUFFER")
    return value


def _check_name(parameter: str, value: str) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidOption(parameter, value, "text that is not empty")
    if parameter == "patterns" and len(value) > _PATTERN_MAX:
        raise InvalidOption(parameter, value[:40] + "...", f"at most {_PATTERN_MAX} characters long")
    if not encodable(value):
        raise InvalidOption(parameter, value, "text that UTF-8 can hold")

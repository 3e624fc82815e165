"""The common part of operators without a queue: signals pass straight down, demand straight up."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from flow.contracts import Publisher, Subscriber, Subscription
from flow.drain.feed import GONE
from flow.misuse import require_publisher, require_subscriber

__all__ = [
    "Fitting",
    "In",
    "Lifted",
    "Link",
    "Operator",
    "Out",
    "at_least",
    "lift",
    "none_is_no_element",
    "one_by_one",
    "present",
    "present_all",
    "require_publishers",
]

A = TypeVar("A")
B = TypeVar("B")
A_contra = TypeVar("A_contra", contravariant=True)
B_co = TypeVar("B_co", covariant=True)

if TYPE_CHECKING:
    # Without the default, mypy would report the body of a lambda that is not yet in a pipe, whose types it cannot infer.
    from typing_extensions import TypeVar as _Defaulted

    In = _Defaulted("In", default=Any)
    Out = _Defaulted("Out", default=Any)
else:
    In = TypeVar("In")
    Out = TypeVar("Out")

Operator = Callable[[Publisher[A]], Publisher[B]]
"""A function from publisher to publisher. It subscribes to nothing; each subscriber has its own chain of links.

Functions that return an operator for elements of any type write this type out: then the type variable belongs to the
returned callable, not to the function.
"""


class Fitting(Protocol[A_contra, B_co]):
    """An `Operator` made from functions, whose parameter types a type checker infers from the publisher in the pipe.

    It has a ``__qualname__``, as functions have: mypy would treat a protocol with ``__call__`` alone as a generic function, and
    require a lambda in it to accept any element.
    """

    __qualname__: str

    def __call__(self, publisher: Publisher[A_contra], /) -> Publisher[B_co]:
        """Return the resulting publisher."""
        ...


class Lifted(Generic[B]):
    """The result of an operator: a publisher that is cold or hot like its source (rule 1.11).

    Args:
        join: Subscribes the operator to the source on behalf of a subscriber.
    """

    __slots__ = ("_join",)

    def __init__(self, join: Callable[[Subscriber[B]], object]) -> None:
        self._join = join

    def subscribe(self, subscriber: Subscriber[B], /) -> None:
        """Subscribe the subscriber through the operator."""
        require_subscriber(subscriber)
        self._join(subscriber)


class Link(Generic[A, B]):
    """A subscriber to its upstream, and the subscription of its downstream.

    It signals only from inside a signal of its upstream, so its signals are as serial as those (rule 1.3). An illegal
    request is passed on unchanged, so that upstream signals the error in turn (rule 3.9). Whatever ends the link, it first
    drops the references to both sides (rules 2.3, 3.13). An exception of a downstream subscriber propagates through it to the
    drain above, which reports it. The link has ``on_lagged`` and ``on_state`` if its downstream has them, and passes them on.

    A subclass with `_on_batch` receives batches for a `flow.BatchSubscriber`, and passes the result of each on
    in one call. It still has `on_next`, because a batch of one element costs a list and two calls more.

    Args:
        downstream: Receives ``on_subscribe`` with this link.
    """

    __slots__ = ("__weakref__", "_downstream", "_greeted", "_upstream")

    def __init__(self, downstream: Subscriber[B]) -> None:
        self._downstream: Subscriber[B] = downstream
        self._upstream: Subscription = GONE
        self._greeted = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first subscription, and cancel any other (rule 2.5)."""
        present(subscription, "the subscription")
        if self._greeted:
            subscription.cancel()
            return
        self._greeted = True
        self._upstream = subscription
        self._send_signal("on_subscribe", self)
        self._begin()

    def _begin(self) -> None:
        """Called after the subscriber has received its subscription."""

    def on_next(self, item: A, /) -> None:
        """Receive one element."""
        raise NotImplementedError

    def on_error(self, error: Exception, /) -> None:
        """Pass the error on."""
        present(error, "the error")
        self._end().on_error(error)

    def on_complete(self) -> None:
        """Pass the end on."""
        self._end().on_complete()

    def request(self, n: int, /) -> None:
        """Request elements of upstream."""
        self._upstream.request(n)

    def cancel(self) -> None:
        """Cancel upstream, and drop the references to both sides."""
        upstream = self._upstream
        self._end()
        upstream.cancel()

    @property
    def on_lagged(self) -> Callable[[object], None]:
        """Pass on the number of lost elements."""
        return self._beside("on_lagged")

    @property
    def on_state(self) -> Callable[[object], None]:
        """Pass on the state of a feed."""
        return self._beside("on_state")

    def _beside(self, name: str) -> Callable[[object], None]:
        """Return the optional signal of this name, if downstream has it. ``__getattr__`` would slow down every attribute."""
        if callable(getattr(self._downstream, name, None)):
            return partial(self._send_signal, name)
        raise AttributeError(name)

    def _send_signal(self, name: str, what: object) -> None:
        """Send a signal of this name, if downstream has it; a downstream that raises is cancelled and dropped (rule 2.13)."""
        handler = getattr(self._downstream, name, None)
        if handler is not None:
            try:
                handler(what)
            except BaseException:
                self.cancel()
                raise

    def _pass(self, item: B) -> None:
        """`_send_signal` for an element, without looking up the method each time."""
        try:
            self._downstream.on_next(item)
        except BaseException:
            self.cancel()
            raise

    def _pass_all(self, items: Sequence[B], failure: Exception | None = None) -> None:
        """`_pass` for several elements, or none; then fail if there is a failure."""
        downstream: Any = self._downstream
        if items and downstream is not GONE:
            try:
                downstream.on_next_batch(items)
            except BaseException:
                self.cancel()
                raise
        if failure is not None:
            self._finish(failure)

    def _end(self) -> Subscriber[B]:
        """Drop the references to both sides; return the downstream for the terminal signal."""
        downstream, self._downstream = self._downstream, GONE
        self._upstream = GONE
        return downstream

    def _finish(self, error: Exception | None = None) -> None:
        """Cancel upstream before it ends, and complete or fail with the error (rule 1.4)."""
        upstream = self._upstream
        downstream = self._end()
        upstream.cancel()
        if error is None:
            downstream.on_complete()
        else:
            downstream.on_error(error)


class _OneByOne(Link[B, B]):
    """Passes single elements to a `flow.BatchSubscriber` as batches of one."""

    __slots__ = ()

    def on_next(self, item: B, /) -> None:
        downstream: Any = self._downstream
        # A downstream that another thread cancelled is dropped before upstream knows.
        if downstream is not GONE:
            downstream.on_next_batch((item,))


def lift(
    link: Callable[..., Link[Any, Any]], make: Callable[[], tuple[Any, ...]] = tuple
) -> Operator[Any, Any]:
    """Make an operator from a link, of which each subscriber has its own.

    Args:
        link: The class of the link. With `Link._on_batch` a `flow.BatchSubscriber` receives batches, else batches of one.
        make: Called for each link; returns its arguments after the subscriber.
    """
    above_batches = _batchwise(link)

    def join(source: Publisher[Any], subscriber: Subscriber[Any]) -> None:
        if above_batches is not None and _takes_batches(subscriber):
            source.subscribe(above_batches(subscriber, *make()))
        else:
            source.subscribe(link(one_by_one(subscriber), *make()))

    return lambda source: Lifted(partial(join, source))


@cache
def _batchwise(link: Any) -> type[Link[Any, Any]] | None:
    """Return the class of a link with `Link._on_batch` for use above a `flow.BatchSubscriber`; else None.

    It is a class of its own, because upstream calls only ``on_next_batch`` of a subscriber that has that; a subscriber without
    batches must receive its elements one by one.
    """
    on_batch = getattr(link, "_on_batch", None)
    if on_batch is None:
        return None
    members = {"__slots__": (), "on_next": _on_batch_of_one, "on_next_batch": on_batch}
    return type(f"{link.__name__}OfBatches", (link,), members)


def _on_batch_of_one(self: Any, item: object, /) -> None:
    """Receive one element of an upstream without batches."""
    present(item, "the element")
    self.on_next_batch((item,))


def _takes_batches(subscriber: object) -> bool:
    return callable(getattr(subscriber, "on_next_batch", None))


def one_by_one(subscriber: Subscriber[B]) -> Subscriber[B]:
    """Return a subscriber to single elements: that of a `flow.BatchSubscriber` calls only ``on_next_batch``."""
    return _OneByOne(subscriber) if _takes_batches(subscriber) else subscriber


def present(value: object, what: str) -> None:
    """Refuse ``None`` (rule 2.13).

    Raises:
        TypeError: If the value is ``None``.
    """
    if value is None:
        raise TypeError(f"rule 2.13: {what} is None")


def present_all(items: Sequence[object]) -> None:
    """Refuse ``None`` in a list or tuple; other sequences are trusted not to contain it, as in `flow.Drain`.

    Raises:
        TypeError: If an item is ``None``.
    """
    if type(items) in (list, tuple) and any(item is None for item in items):
        raise none_is_no_element()


def none_is_no_element() -> TypeError:
    """Return the error of a stream whose function returned ``None``."""
    return TypeError(
        "rule 2.13: None is not an element; leave it out with filter, or give a value of your own"
    )


def at_least(name: str, value: int, least: int = 1) -> int:
    """Check a count, and return it.

    Raises:
        ValueError: If it is not an integer, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: {value!r}; an integer of at least {least} is expected")
    return value


def require_publishers(others: Sequence[object]) -> None:
    """Refuse objects that are not publishers.

    Raises:
        TypeError: If an object has no ``subscribe``.
    """
    for number, publisher in enumerate(others, 1):
        require_publisher(f"publisher {number}", publisher)

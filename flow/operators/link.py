"""What operators without a queue have in common: signals go straight down, demand goes straight up."""

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
    # What mypy knows of a lambda outside of its pipe; without the default it would complain of what the lambda does.
    from typing_extensions import TypeVar as _Defaulted

    In = _Defaulted("In", default=Any)
    Out = _Defaulted("Out", default=Any)
else:
    In = TypeVar("In")
    Out = TypeVar("Out")

Operator = Callable[[Publisher[A]], Publisher[B]]
"""What turns a publisher into another. It subscribes to nothing; each subscriber has its own chain of links.

Functions that return one for elements of any type write it out: then its variable is not theirs, but of what they return.
"""


class Fitting(Protocol[A_contra, B_co]):
    """An `Operator` that was made of functions, whose parameters type checkers infer from the publisher that is piped.

    It has a name, as functions have, since mypy takes a protocol that can only be called for a generic function, and a
    lambda in it for one that must do with any element.
    """

    __qualname__: str

    def __call__(self, publisher: Publisher[A_contra], /) -> Publisher[B_co]:
        """Return the other publisher."""
        ...


class Lifted(Generic[B]):
    """A publisher seen through an operator; as cold or as hot as what it is made from (rule 1.11).

    Args:
        join: Puts what the operator does between the source and a subscriber.
    """

    __slots__ = ("_join",)

    def __init__(self, join: Callable[[Subscriber[B]], object]) -> None:
        self._join = join

    def subscribe(self, subscriber: Subscriber[B], /) -> None:
        """Join the subscriber to the source."""
        require_subscriber(subscriber)
        self._join(subscriber)


class Link(Generic[A, B]):
    """The subscriber of what is above, and the subscription of who is below.

    It signals only from inside a signal of its upstream, so its signals are as serial as those (rule 1.3); an illegal
    request is passed on as it is, so that upstream tells of it in turn (rule 3.9). Whatever ends it, it forgets both
    sides first (rules 2.3, 3.13). What a subscriber below raises goes through it to the drain above, which reports it.
    It has ``on_lagged`` and ``on_state`` if who is below has them, and passes on what they are told.

    A subclass that has `_on_batch` too is given batches for a `flow.BatchSubscriber`, and passes on what becomes of each
    in one call. It has `on_next` all the same: a batch of one costs a list and two calls more.

    Args:
        downstream: Gets ``on_subscribe`` with this link.
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
        self._tell("on_subscribe", self)
        self._begin()

    def _begin(self) -> None:
        """Do what there is to do when the subscriber has its subscription."""

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
        """Ask upstream for as many."""
        self._upstream.request(n)

    def cancel(self) -> None:
        """Cancel upstream, and forget both sides."""
        upstream = self._upstream
        self._end()
        upstream.cancel()

    @property
    def on_lagged(self) -> Callable[[object], None]:
        """Pass on that elements were lost."""
        return self._beside("on_lagged")

    @property
    def on_state(self) -> Callable[[object], None]:
        """Pass on where a feed stands."""
        return self._beside("on_state")

    def _beside(self, name: str) -> Callable[[object], None]:
        """The signal beside the stream, if it is there below. With ``__getattr__`` every attribute would be slower."""
        if callable(getattr(self._downstream, name, None)):
            return partial(self._tell, name)
        raise AttributeError(name)

    def _tell(self, name: str, what: object) -> None:
        """Give a signal of this name, if there is one below; who raises then is cancelled and forgotten (rule 2.13)."""
        tell = getattr(self._downstream, name, None)
        if tell is not None:
            try:
                tell(what)
            except BaseException:
                self.cancel()
                raise

    def _pass(self, item: B) -> None:
        """`_tell` of an element, without looking for the signal each time."""
        try:
            self._downstream.on_next(item)
        except BaseException:
            self.cancel()
            raise

    def _pass_all(self, items: Sequence[B], failure: Exception | None = None) -> None:
        """`_pass` for some elements, or none; then fail, if there is a failure."""
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
        """Forget both sides; return who was below, for the terminal signal."""
        downstream, self._downstream = self._downstream, GONE
        self._upstream = GONE
        return downstream

    def _finish(self, error: Exception | None = None) -> None:
        """Complete, or fail with the error, before upstream does: cancel it (rule 1.4)."""
        upstream = self._upstream
        downstream = self._end()
        upstream.cancel()
        if error is None:
            downstream.on_complete()
        else:
            downstream.on_error(error)


class _OneByOne(Link[B, B]):
    """Gives a `flow.BatchSubscriber` batches of one."""

    __slots__ = ()

    def on_next(self, item: B, /) -> None:
        downstream: Any = self._downstream
        if downstream is not GONE:  # who leaves on another thread is forgotten before upstream knows
            downstream.on_next_batch((item,))


def lift(
    link: Callable[..., Link[Any, Any]], make: Callable[[], tuple[Any, ...]] = tuple
) -> Operator[Any, Any]:
    """Make an operator of a link, of which each subscriber has its own.

    Args:
        link: If it has `Link._on_batch`, a `flow.BatchSubscriber` gets batches, else batches of one.
        make: Called for each link; makes its arguments behind the subscriber.
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
    """The class of the same link above a `flow.BatchSubscriber`, if it has `Link._on_batch`.

    It is another class, since what has ``on_next_batch`` is given nothing else, and elements that a subscriber takes one
    by one have to come so.
    """
    on_batch = getattr(link, "_on_batch", None)
    if on_batch is None:
        return None
    members = {"__slots__": (), "on_next": _on_batch_of_one, "on_next_batch": on_batch}
    return type(f"{link.__name__}OfBatches", (link,), members)


def _on_batch_of_one(self: Any, item: object, /) -> None:
    """Receive one element, of an upstream that has no batches."""
    present(item, "the element")
    self.on_next_batch((item,))


def _takes_batches(subscriber: object) -> bool:
    return callable(getattr(subscriber, "on_next_batch", None))


def one_by_one(subscriber: Subscriber[B]) -> Subscriber[B]:
    """Return what takes single elements: of a `flow.BatchSubscriber`, only ``on_next_batch`` is called."""
    return _OneByOne(subscriber) if _takes_batches(subscriber) else subscriber


def present(value: object, what: str) -> None:
    """Refuse ``None`` (rule 2.13).

    Raises:
        TypeError: If it is.
    """
    if value is None:
        raise TypeError(f"rule 2.13: {what} is None")


def present_all(items: Sequence[object]) -> None:
    """Refuse ``None`` in a list or tuple; other sequences vouch for themselves, as they do to a `flow.Drain`.

    Raises:
        TypeError: If it is there.
    """
    if type(items) in (list, tuple) and any(item is None for item in items):
        raise none_is_no_element()


def none_is_no_element() -> TypeError:
    """What ends a stream whose function gave ``None``."""
    return TypeError(
        "rule 2.13: None is not an element; leave it out with filter, or give a value of your own"
    )


def at_least(name: str, value: int, least: int = 1) -> int:
    """Return a count if it is one.

    Raises:
        ValueError: If it is no integer, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: {value!r}; an integer of at least {least} is expected")
    return value


def require_publishers(others: Sequence[object]) -> None:
    """Refuse what cannot be subscribed to.

    Raises:
        TypeError: If one has no ``subscribe``.
    """
    for number, publisher in enumerate(others, 1):
        require_publisher(f"publisher {number}", publisher)

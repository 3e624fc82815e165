"""What keeps the rules between a source that does not wait and a subscriber that does.

Each operator is certified twice: paced, where the source gives what was asked for below and nothing may be lost, so that
every test counts; and hurried, where the source pushes from a thread of its own, and elements go.
"""

import itertools
import threading
from types import SimpleNamespace

import flow
from flow import operators as op
from flow.demand import refusal
from flow.overflow import Overflow
from flow.tck import PublisherVerification

OPERATORS = {
    "Drop": op.on_backpressure_drop,
    "Latest": op.on_backpressure_latest,
    "Error": op.on_backpressure_error,
    "BufferError": lambda: op.on_backpressure_buffer(4),
    "BufferDropOldest": lambda: op.on_backpressure_buffer(4, Overflow.DROP_OLDEST),
    "BufferDropLatest": lambda: op.on_backpressure_buffer(4, Overflow.DROP_LATEST),
}


class Paced:
    """A source behind an operator that asks for everything, which gives only what is asked for in front of it."""

    def __init__(self, source, operator):
        self.source = source
        self.operator = operator

    def subscribe(self, subscriber, /):
        gate = Gate()

        def behind(inside, /):
            gate.inside = inside
            self.source.subscribe(gate)

        self.operator(SimpleNamespace(subscribe=behind)).subscribe(
            None if subscriber is None else Front(subscriber, gate)
        )


class Gate:
    """The subscriber of the source: it lets pass what comes, and keeps back the demand of the operator."""

    def __init__(self):
        self.inside = self.upstream = None
        self.early = []

    def on_subscribe(self, subscription, /):
        self.inside.on_subscribe(self)
        self.upstream = subscription
        if self.inside is None:
            subscription.cancel()
        for n in self.early:
            subscription.request(n)

    def draw(self, n):
        if self.upstream is None:
            self.early.append(n)  # an operator with a queue greets before it subscribes
        else:
            self.upstream.request(n)

    def on_next(self, item, /):
        self.inside.on_next(item)

    def on_error(self, error, /):
        inside, self.inside = self.inside, None
        inside.on_error(error)

    def on_complete(self):
        inside, self.inside = self.inside, None
        inside.on_complete()

    def request(self, n, /):
        if n != flow.UNBOUNDED:
            self.draw(n)  # a wrong one, which the source refuses

    def cancel(self):
        self.inside = None
        if self.upstream is not None:
            self.upstream.cancel()


class Front:
    """Between the operator and the subscriber: what is requested is granted here, and then drawn from the source."""

    def __init__(self, subscriber, gate):
        self.subscriber = subscriber
        self.gate = gate
        self.granted = None

    def on_subscribe(self, subscription, /):
        self.granted = subscription
        self.subscriber.on_subscribe(self)

    def on_next(self, item, /):
        try:
            self.subscriber.on_next(item)
        except BaseException:
            self.subscriber = None
            raise

    def on_error(self, error, /):
        subscriber, self.subscriber = self.subscriber, None
        subscriber.on_error(error)

    def on_complete(self):
        subscriber, self.subscriber = self.subscriber, None
        subscriber.on_complete()

    def request(self, n, /):
        self.granted.request(n)
        if refusal(n) is None:
            self.gate.draw(n)

    def cancel(self):
        self.granted.cancel()
        self.subscriber = None


class PacedSuite(PublisherVerification):
    timeout = 0.002
    rounds = 20
    strict = True
    multicast = "cold"
    reports = True
    plenty = 2_000

    def make_publisher(self, n):
        return Paced(flow.from_iterable(range(n)), self.make())

    def make_failed_publisher(self):
        return self.make()(flow.error(RuntimeError("it fails")))


class Hurried:
    """Pushes ``n`` elements from a thread for each subscriber, and does not care who has asked."""

    def __init__(self, n):
        self.n = n

    def subscribe(self, subscriber, /):
        pusher = Pusher(subscriber, self.n)
        subscriber.on_subscribe(pusher)
        threading.Thread(target=pusher.run, daemon=True).start()


class Pusher:
    def __init__(self, subscriber, n):
        self.subscriber = subscriber
        self.n = n
        self.cancelled = threading.Event()

    def request(self, n, /):
        if refusal(n) is not None:
            self.n = -1
            self.refused = refusal(n)

    def cancel(self):
        self.cancelled.set()

    def run(self):
        try:
            for number in itertools.count():
                if self.cancelled.is_set() or not 0 <= number < self.n:
                    break
                self.subscriber.on_next(number)
            if not self.cancelled.is_set():
                if self.n < 0:
                    self.subscriber.on_error(self.refused)
                else:
                    self.subscriber.on_complete()
        except Exception as error:  # what a subscriber behind a link raises is reported by who drives
            flow.hooks.report(error, self.subscriber)
        finally:
            self.subscriber = None


class HurriedSuite(PublisherVerification):
    """Nothing is counted; but nothing comes unasked, nothing overlaps, nothing follows the end, nothing is kept."""

    timeout = 0.01
    rounds = 20
    lossy = True
    multicast = "cold"
    reports = True
    plenty = 1_000

    def make_publisher(self, n):
        return self.make()(Hurried(n))

    def make_failed_publisher(self):
        return self.make()(flow.error(RuntimeError("it fails")))


for _name, _make in OPERATORS.items():
    globals()[f"TestPaced{_name}"] = type(f"TestPaced{_name}", (PacedSuite,), {"make": staticmethod(_make)})
for _name in ("Drop", "Latest", "BufferDropOldest", "BufferDropLatest"):
    globals()[f"TestHurried{_name}"] = type(
        f"TestHurried{_name}", (HurriedSuite,), {"make": staticmethod(OPERATORS[_name])}
    )

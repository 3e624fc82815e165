"""Two naive publishers, typical first attempts, and the rules of Reactive Streams that they break.

``python examples/naive_publishers.py`` tests both with `flow.tck`, and prints the failures; ``pip install reactivex pytest`` first.
"""

import contextlib
import io
import queue
from collections.abc import Callable
from typing import Any

import reactivex

from penstock_cdc import flow, tck

PLENTY = 500


class Registration:
    """The bridge's subscription. It cannot request, since an observable has no demand."""

    disposable: Any = None
    disposed = False

    def request(self, _n: int, /) -> None:
        """Does nothing: an observable has no demand."""

    def cancel(self) -> None:
        self.disposed = True
        if self.disposable is not None:
            self.disposable.dispose()


class NaiveBridge:
    """An observable with renamed signals: it passes each element on at once, requested or not."""

    def __init__(self, observable: "reactivex.Observable[Any]") -> None:
        self.observable = observable

    def subscribe(self, subscriber: flow.Subscriber[Any], /) -> None:
        if subscriber is None:
            raise TypeError("the subscriber is None")
        registration = Registration()
        subscriber.on_subscribe(registration)
        registration.disposable = self.observable.subscribe(
            subscriber.on_next, subscriber.on_error, subscriber.on_complete
        )


class Mailbox:
    """One subscriber of the broadcaster, and its queue."""

    def __init__(self, subscriber: flow.Subscriber[Any]) -> None:
        self.subscriber = subscriber
        self.waiting: queue.Queue[Any] = queue.Queue()  # unbounded: grows while the subscriber is slower
        self.ended = False

    def request(self, n: int, /) -> None:
        for _ in range(n):
            if self.ended or self.waiting.empty():
                return
            item = self.waiting.get()
            if item is None:
                self.ended = True
                self.subscriber.on_complete()
                return
            self.subscriber.on_next(item)

    def cancel(self) -> None:
        self.ended = True


class Broadcaster:
    """Keeps a list of subscribers, and copies each element into the queue of each."""

    def __init__(self) -> None:
        self.mailboxes: list[Mailbox] = []
        self.published: list[Any] = []

    def subscribe(self, subscriber: flow.Subscriber[Any], /) -> None:
        if subscriber is None:
            raise TypeError("the subscriber is None")
        mailbox = Mailbox(subscriber)
        self.mailboxes.append(mailbox)
        for item in self.published:
            mailbox.waiting.put(item)
        subscriber.on_subscribe(mailbox)

    def publish(self, item: Any) -> None:
        self.published.append(item)
        for mailbox in self.mailboxes:
            mailbox.waiting.put(item)


def bridge(n: int) -> NaiveBridge:
    if n == tck.ENDLESS:
        return NaiveBridge(reactivex.concat(reactivex.range(1, PLENTY + 1), reactivex.never()))
    return NaiveBridge(reactivex.range(1, n + 1))


def broadcaster(n: int) -> Broadcaster:
    made = Broadcaster()
    for item in range(1, min(n, PLENTY) + 1):
        made.publish(item)
    if n != tck.ENDLESS:
        made.publish(None)
    return made


def broken_rules(make: Callable[[int], Any]) -> dict[str, list[str]]:
    """Returns the names of the failed tests by rule."""

    class Suite(tck.PublisherVerification):
        timeout = 0.005
        patience = 0.2
        rounds = 4
        plenty = PLENTY
        multicast = "cold"

        def make_publisher(self, n: int) -> Any:
            return make(n)

    found: dict[str, list[str]] = {}
    with contextlib.redirect_stdout(io.StringIO()):  # hides the seeds that random tests print
        results = tck.run(Suite)
    for name, result in results.items():
        if result.outcome == "failed":
            found.setdefault(result.rule, []).append(name)
    return found


def main() -> None:
    for title, make in (("naive bridge", bridge), ("queue per subscriber", broadcaster)):
        print(f"{title} breaks")
        found = broken_rules(make)
        for rule in sorted(found, key=lambda text: [int(part) for part in text.split(".")]):
            print(f"  rule {rule}: {', '.join(name.removeprefix('test_') for name in found[rule])}")


if __name__ == "__main__":
    main()

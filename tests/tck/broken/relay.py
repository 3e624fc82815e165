"""An honest processor, from which broken ones differ in one thing each."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from flow.contracts import Subscriber, Subscription
from flow.drain import COMPLETED, Drain, Failed, Outcome

__all__ = ["HonestProcessor", "Outlet"]


class Outlet:
    """What one subscriber of a processor has not taken yet: the feed of its drain."""

    def __init__(self, relay: "HonestProcessor") -> None:
        self.relay = relay
        self.items: deque[Any] = deque()
        self.drain: Drain[Any]

    def pull(self, limit: int, /) -> Sequence[Any]:
        """Take what is here, and see to it that more comes."""
        self.relay.refill()
        with self.relay.lock:
            taken = [self.items.popleft() for _ in range(min(limit, len(self.items)))]
        if taken:
            self.relay.refill()
        return taken

    def outcome(self) -> Outcome | None:
        """How it ended, when everything was taken."""
        return None if self.items else self.relay.outcome

    def release(self) -> None:
        """Leave."""
        self.relay.leave(self)


class HonestProcessor:
    """Passes everything on to all its subscribers; the slowest may be ``buffer_size`` elements behind.

    Hot: it requests when the first subscriber does, and cancels when the last one leaves.
    """

    def __init__(self, buffer_size: int) -> None:
        self.lock = threading.Lock()
        self.buffer_size = buffer_size
        self.upstream: Subscription | None = None
        self.outlets: tuple[Outlet, ...] = ()
        self.outcome: Outcome | None = None
        self.coming = 0  # requested upstream, and not yet here
        self.wanted = False

    # As a publisher.

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Join; from now on, or to be told the end."""
        outlet = Outlet(self)
        outlet.drain = Drain(subscriber, outlet)
        with self.lock:
            self.outlets += (outlet,)
        outlet.drain.start()

    def refill(self) -> None:
        """Request what there is room for."""
        with self.lock:
            self.wanted = True
            need, upstream = self.room(), self.upstream
            if upstream is None or need <= 0:
                return
            self.coming += need
        upstream.request(need)

    def room(self) -> int:
        """How many more elements all subscribers can take; under the lock."""
        if not self.outlets:
            return 0
        return self.buffer_size - self.coming - max(len(outlet.items) for outlet in self.outlets)

    def leave(self, outlet: Outlet) -> None:
        """Forget a subscriber, and the publisher with the last of them."""
        with self.lock:
            self.outlets = tuple(each for each in self.outlets if each is not outlet)
            last = not self.outlets
        if last:
            self.close()
        else:
            self.refill()

    def close(self) -> None:
        """Nobody is left."""
        with self.lock:
            upstream, self.upstream = self.upstream, None
            self.outcome = self.outcome or COMPLETED
        if upstream is not None:
            upstream.cancel()

    # As a subscriber.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Accept the first."""
        if subscription is None:
            raise TypeError("rule 2.13: the subscription is None")
        with self.lock:
            refused = self.upstream is not None or self.outcome is not None
            if not refused:
                self.upstream = subscription
            wanted = self.wanted
        if refused:
            self.refuse(subscription)
        elif wanted:
            self.refill()

    def refuse(self, subscription: Subscription) -> None:
        """Cancel a second subscription (rule 2.5)."""
        subscription.cancel()

    def on_next(self, item: Any, /) -> None:
        """Pass on."""
        if item is None:
            raise TypeError("rule 2.13: the element is None")
        with self.lock:
            self.coming -= 1
            outlets = self.outlets
            for outlet in outlets:
                outlet.items.append(item)
        for outlet in outlets:
            outlet.drain.signal()

    def on_error(self, error: Exception, /) -> None:
        """Pass on, at once."""
        if error is None:
            raise TypeError("rule 2.13: the error is None")
        for outlet in self.end(Failed(error)):
            outlet.drain.fail(error)

    def on_complete(self) -> None:
        """Pass on, after everything else."""
        for outlet in self.end(COMPLETED):
            outlet.drain.signal()

    def end(self, outcome: Outcome) -> tuple[Outlet, ...]:
        """Nothing comes any more; returns who is to be told."""
        with self.lock:
            self.upstream = None
            self.outcome = outcome
            return self.outlets

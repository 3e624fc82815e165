"""A publisher that a test drives by hand, and the probe to which a subscriber reports."""

import threading
from typing import Any

from flow.contracts import Subscriber
from flow.tck.witness import Witness, broken, unless

__all__ = ["Probe", "Stage"]


class Probe(Witness):
    """The object to which a white-box subscriber reports, with the methods of a subscriber.

    After handling a signal, the subscriber under test calls the method of the same name. It passes its puppet to
    ``on_subscribe``: an object with ``request(n)`` and ``cancel()``, which makes the subscriber call its subscription so.
    The subscriber itself requests nothing.
    """


class Stage:
    """The upstream of a subscriber: a subscription that records calls, and signals on command.

    Attributes:
        requested: Number of elements requested in total.
        cancelled: Number of cancels.
        during: The terminal signal in progress, inside which no method may be called (rule 2.3).
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.requested: int = 0
        self.cancelled: int = 0
        self.sent: int = 0
        self.wrong: list[object] = []
        self.during: str | None = None
        self.called_during: list[str] = []
        self._lock = threading.Lock()
        self._inside = 0

    # Called by the subscriber.

    def request(self, n: Any, /) -> None:
        """Record a request."""
        with self._lock:
            self._note("request")
            if type(n) is int and n > 0:
                self.requested += n
            else:
                self.wrong.append(n)

    def cancel(self) -> None:
        """Record a cancel."""
        with self._lock:
            self._note("cancel")
            self.cancelled += 1

    # Called by a test.

    def greet(self, subscriber: Subscriber[Any]) -> None:
        """Signal ``on_subscribe``."""
        self._signal("2.13", subscriber, "on_subscribe", self)

    def expect_request(self, least: int = 1, rule: str = "2.1") -> None:
        """Wait until ``least`` elements are requested beyond those sent."""
        unless(
            lambda: self.requested - self.sent >= least,
            self.patience,
            rule,
            f"{self.requested} elements were requested and {self.sent} sent, {least} more should be requested",
        )

    def expect_cancel(self, rule: str, why: str) -> None:
        """Wait until it is cancelled."""
        unless(lambda: self.cancelled, self.patience, rule, f"cancel was not called {why}")

    def expect_refusal(self, subscriber: Subscriber[Any]) -> None:
        """Check that a second subscription is cancelled, and this one is not (rule 2.5)."""
        second = Stage(self.patience)
        second.greet(subscriber)
        second.expect_cancel("2.5", "on a second subscription")
        if self.cancelled:
            broken("2.5", "the first subscription was cancelled, and not the second one only")

    def send(self, subscriber: Subscriber[Any], item: Any) -> None:
        """Signal an element."""
        self.sent += 1
        self._signal("2.13", subscriber, "on_next", item)

    def complete(self, subscriber: Subscriber[Any], rule: str = "2.9") -> None:
        """Signal the completion."""
        self._signal(rule, subscriber, "on_complete")

    def fail(self, subscriber: Subscriber[Any], error: Exception, rule: str = "2.10") -> None:
        """Signal a failure."""
        self._signal(rule, subscriber, "on_error", error)

    def expect_no_call(self) -> None:
        """Check that no method was called from inside the terminal signal."""
        if self.called_during:
            broken("2.3", self.called_during[0])

    def verify(self) -> None:
        """Check that every request was legal."""
        if self.wrong:
            broken("3.9", f"request({self.wrong[0]!r}) is no request of a positive number")

    def _note(self, name: str) -> None:
        if self.during is not None and threading.get_ident() == self._inside:
            self.called_during.append(f"{name}() inside {self.during}")

    def _signal(self, rule: str, subscriber: Subscriber[Any], name: str, *arguments: Any) -> None:
        self._inside = threading.get_ident()
        if name in ("on_complete", "on_error"):
            self.during = name
        try:
            getattr(subscriber, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the fault
            broken(rule, f"{name} raised {error!r}; it has to return normally")
        finally:
            self.during = None

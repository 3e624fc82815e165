"""A publisher that a test plays by hand, and the probe that a subscriber reports to."""

import threading
from typing import Any

from flow.contracts import Subscriber
from flow.tck.witness import Witness, broken, unless

__all__ = ["Probe", "Stage"]


class Probe(Witness):
    """What a white-box subscriber reports to, by the names of the signals.

    After it has handled a signal, the subscriber under test calls the method of the same name. What it gives to
    ``on_subscribe`` is its puppet: whatever has ``request(n)`` and ``cancel()``, and makes it call its subscription so.
    The subscriber itself requests nothing.
    """


class Stage:
    """The other side of a subscriber: a subscription that notes what is called, and signals by hand.

    Attributes:
        requested: What was requested in all.
        cancelled: How often it was cancelled.
        during: The terminal signal that is being given, in which nothing may be called (rule 2.3).
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.requested = 0
        self.cancelled = 0
        self.sent = 0
        self.wrong: list[object] = []
        self.during: str | None = None
        self.called_during: list[str] = []
        self._lock = threading.Lock()
        self._inside = 0

    # What the subscriber calls.

    def request(self, n: Any, /) -> None:
        """Note a request."""
        with self._lock:
            self._note("request")
            if type(n) is int and n > 0:
                self.requested += n
            else:
                self.wrong.append(n)

    def cancel(self) -> None:
        """Note a cancel."""
        with self._lock:
            self._note("cancel")
            self.cancelled += 1

    # What a test does.

    def greet(self, subscriber: Subscriber[Any]) -> None:
        """Give ``on_subscribe``."""
        self._signal("2.13", "on_subscribe", lambda: subscriber.on_subscribe(self))

    def expect_request(self, least: int = 1, rule: str = "2.1") -> None:
        """Wait until so much was requested beyond what was sent."""
        unless(
            lambda: self.requested - self.sent >= least,
            self.patience,
            rule,
            f"{self.requested} elements were requested and {self.sent} sent, {least} more should be requested",
        )

    def expect_cancel(self, rule: str, why: str) -> None:
        """Wait until it was cancelled."""
        unless(lambda: self.cancelled, self.patience, rule, f"cancel was not called {why}")

    def send(self, subscriber: Subscriber[Any], item: Any) -> None:
        """Give an element."""
        self.sent += 1
        self._signal("2.13", "on_next", lambda: subscriber.on_next(item))

    def complete(self, subscriber: Subscriber[Any], rule: str = "2.9") -> None:
        """Give the completion."""
        self._signal(rule, "on_complete", subscriber.on_complete, ends=True)

    def fail(self, subscriber: Subscriber[Any], error: Exception, rule: str = "2.10") -> None:
        """Give a failure."""
        self._signal(rule, "on_error", lambda: subscriber.on_error(error), ends=True)

    def expect_no_call(self) -> None:
        """Nothing was called from inside the terminal signal."""
        if self.called_during:
            broken("2.3", self.called_during[0])

    def verify(self) -> None:
        """Tell whether a request was wrong."""
        if self.wrong:
            broken("3.9", f"request({self.wrong[0]!r}) is no request of a positive number")

    def _note(self, name: str) -> None:
        if self.during is not None and threading.get_ident() == self._inside:
            self.called_during.append(f"{name}() inside {self.during}")

    def _signal(self, rule: str, name: str, call: Any, *, ends: bool = False) -> None:
        self._inside = threading.get_ident()
        if ends:
            self.during = name
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it raises is the fault
            broken(rule, f"{name} raised {error!r}; it has to return normally")
        finally:
            self.during = None

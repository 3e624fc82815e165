"""The subscriber with which publishers are tested: a test drives it, and it detects broken rules."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NoReturn

from flow.contracts import Publisher, Subscription

__all__ = ["RuleBroken", "Witness", "broken", "refuses_none", "unless"]

_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.01


class RuleBroken(AssertionError):
    """A rule of Reactive Streams does not hold.

    Attributes:
        rule: Its number, for example ``"1.3"``.
    """

    def __init__(self, rule: str, text: str) -> None:
        self.rule = rule
        super().__init__(f"rule {rule}: {text}")


def broken(rule: str, text: str) -> NoReturn:
    """Report that a rule does not hold."""
    raise RuleBroken(rule, text)


def unless(condition: Callable[[], object], patience: float, rule: str, text: str) -> None:
    """Wait until a condition holds; report the rule as broken if it does not within ``patience`` seconds."""
    deadline = time.monotonic() + patience
    pause = threading.Event()
    delay = _PAUSE
    while not condition():
        if time.monotonic() >= deadline:
            broken(rule, f"{text} (waited {patience:g} s)")
        pause.wait(delay)
        delay = min(delay * 1.5, _LONGEST_PAUSE)


def refuses_none(rule: str, subject: object, method: str) -> None:
    """Call a method with ``None``, and report the rule as broken unless that raises ``TypeError``."""
    try:
        getattr(subject, method)(None)
    except TypeError:
        return
    except Exception as error:  # noqa: BLE001 - reported below
        broken(rule, f"{method}(None) raised {error!r} instead of a TypeError")
    broken(rule, f"{method}(None) raised no TypeError")


class Witness:
    """A subscriber that a test drives.

    Expectations (``expect_...``) take signals in the order of arrival. Violations that no correct publisher commits are recorded
    in every test, and reported by `verify`.

    Args:
        timeout: Seconds without a signal that count as silence.
        patience: Seconds to wait for an expected signal.
        on_open: Called inside ``on_subscribe``.
        on_item: Called inside ``on_next``, after the element was recorded.

    Attributes:
        items: All elements, in the order of arrival.
        requested: Number of elements requested in total.
        deepest: Most calls of ``on_next`` on one stack.
        nested: Whether a terminal signal came inside another signal.
    """

    def __init__(
        self,
        timeout: float,
        patience: float,
        *,
        on_open: Callable[["Witness"], object] | None = None,
        on_item: Callable[["Witness"], object] | None = None,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self.items: list[Any] = []
        self.requested: int = 0
        self.deepest: int = 0
        self.nested: bool = False
        self.subscription: Subscription | None = None
        self._on_open = on_open
        self._on_item = on_item
        self._changed = threading.Condition()
        self._signals: deque[tuple[str, Any]] = deque()
        self._faults: list[RuleBroken] = []
        self._inside: list[tuple[int, str]] = []
        self._terminal: str | None = None  # the terminal signal, once received

    # Called by the publisher.

    def on_subscribe(self, subscription: Any, /) -> None:
        """Record the subscription."""
        self._enter("on_subscribe")
        try:
            if subscription is None:
                self.fault("2.13", "on_subscribe(None)")
            with self._changed:
                again = self.subscription is not None
                if not again:
                    self.subscription = subscription
                self._note("on_subscribe", subscription)
            if again:
                self.fault("2.12", "on_subscribe was called a second time")
            elif self._on_open is not None:
                self._on_open(self)
        finally:
            self._leave("on_subscribe")

    def on_next(self, item: Any, /) -> None:
        """Record an element."""
        self._enter("on_next")
        try:
            if item is None:
                self.fault("2.13", "on_next(None): None is no element")
            with self._changed:
                self.items.append(item)
                self._note("on_next", item)
                excess = len(self.items) > self.requested
            if excess:
                self.fault("1.1", f"element {len(self.items)} came, but {self.requested} were requested")
            if self._on_item is not None:
                self._on_item(self)
        finally:
            self._leave("on_next")

    def on_error(self, error: Any, /) -> None:
        """Record the failure."""
        self._end("on_error", error)
        if not isinstance(error, Exception):
            self.fault("2.13", f"on_error({error!r}): that is no Exception")

    def on_complete(self) -> None:
        """Record the completion."""
        self._end("on_complete", None)

    # Called by a test.

    def subscribe_to(self, publisher: Publisher[Any]) -> None:
        """Subscribe; ``subscribe`` must return normally (rule 1.9)."""
        try:
            publisher.subscribe(self)
        except Exception as error:
            raise RuleBroken("1.9", f"subscribe() raised {error!r}; it has to return normally") from error

    def request(self, n: Any) -> None:
        """Request; an exception of ``request`` is a fault (rule 3.16)."""
        if type(n) is int and n > 0:
            with self._changed:
                self.requested += n
        self._call("3.16", "request", n)

    def cancel(self) -> None:
        """Cancel; an exception of ``cancel`` is a fault (rule 3.15)."""
        self._call("3.15", "cancel")

    def _call(self, rule: str, method: str, *arguments: Any) -> None:
        if self.subscription is None:
            broken("1.9", "on_subscribe was not called")
        try:
            getattr(self.subscription, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the fault
            call = f"{method}({', '.join(map(repr, arguments))})"
            self.fault(rule, f"{call} raised {error!r}; it has to return normally")

    def leave(self) -> None:
        """Cancel the subscription, if there is one, and ignore exceptions; for the end of a test."""
        if self.subscription is not None:
            with contextlib.suppress(Exception):
                self.subscription.cancel()

    def fault(self, rule: str, text: str) -> None:
        """Record a broken rule, to be reported at the end of the test."""
        with self._changed:
            if len(self._faults) < 10:
                self._faults.append(RuleBroken(rule, text))

    def verify(self) -> None:
        """Report the recorded faults.

        Raises:
            RuleBroken: The first fault.
        """
        with self._changed:
            faults = list(self._faults)
        if faults:
            raise faults[0]

    def expect_subscription(self) -> Subscription:
        """Wait for ``on_subscribe``, which must be the first signal."""
        found: Subscription = self._expect("1.9", "on_subscribe as the first signal", "on_subscribe")[1]
        return found

    def expect_next(self, rule: str = "1.1") -> Any:
        """Wait for a requested element."""
        return self._expect(rule, "an element that was requested", "on_next")[1]

    def expect_items(self, count: int, rule: str = "1.1") -> list[Any]:
        """Wait for ``count`` elements."""
        return [self.expect_next(rule) for _ in range(count)]

    def expect_next_or_end(self, rule: str) -> bool:
        """Wait for an element (True) or the completion (False)."""
        return self._expect(rule, "an element or the completion", "on_next", "on_complete")[0] == "on_next"

    def expect_complete(self, rule: str = "1.5") -> None:
        """Wait for the completion."""
        self._expect(rule, "on_complete", "on_complete")

    def expect_all(self, count: int, rule: str = "1.1") -> None:
        """Wait for ``count`` elements, and then the completion."""
        self.expect_items(count, rule)
        self.expect_complete(rule)

    def expect_error(self, rule: str, *kinds: type[Exception]) -> Exception:
        """Wait for a failure with an error of one of the types."""
        error: Exception = self._expect(rule, "on_error", "on_error")[1]
        if not isinstance(error, kinds or Exception):
            names = " or ".join(each.__name__ for each in kinds)
            broken(rule, f"{error!r} came instead of a {names}")
        return error

    def expect_the_error(self, error: Exception, rule: str, what: str = "passed on") -> None:
        """Wait for a failure with this very error object."""
        if self.expect_error(rule) is not error:
            broken(rule, f"another error was {what} than was signalled")

    def expect_silence(self, rule: str, why: str) -> None:
        """Check that no signal is left to take, and that none comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._signals, self.timeout)
            if self._signals:
                broken(rule, f"{_shown(*self._signals[0])} came {why}")

    def quiet(self, why: str, rule: str, most: int) -> None:
        """Wait until no element has come for ``timeout`` seconds; at most ``most`` elements may have come by then."""
        deadline = time.monotonic() + self.patience
        while True:
            with self._changed:
                before = len(self.items)
                moved = self._changed.wait_for(lambda: len(self.items) > before, self.timeout)  # noqa: B023 - waited for here
            if before > most:
                broken(rule, f"{before} elements came {why}")
            if not moved:
                break
            if time.monotonic() > deadline:
                broken(rule, f"elements did not stop coming {why}")

    @property
    def ended(self) -> bool:
        """Whether the terminal signal has come."""
        return self._terminal is not None

    def _expect(self, rule: str, what: str, *kinds: str) -> tuple[str, Any]:
        kind, value = self._take(rule, what)
        if kind not in kinds:
            broken(rule, f"{_shown(kind, value)} came instead of {what}")
        return kind, value

    def _take(self, rule: str, what: str) -> tuple[str, Any]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._signals or self._faults, self.patience):
                broken(rule, f"{what} did not come (waited {self.patience:g} s)")
            if self._signals:
                return self._signals.popleft()
            raise self._faults[0]

    def _end(self, kind: str, error: Any) -> None:
        self._enter(kind)
        with self._changed:
            self._terminal = self._terminal or kind
            self._note(kind, error)
        self._leave(kind)

    def _note(self, kind: str, value: Any) -> None:
        self._signals.append((kind, value))
        self._changed.notify_all()

    def _enter(self, kind: str) -> None:
        me = threading.get_ident()
        with self._changed:
            foreign = next((name for thread, name in self._inside if thread != me), None)
            self._inside.append((me, kind))
            self.deepest = max(self.deepest, sum(name == "on_next" for _, name in self._inside))
            self.nested = self.nested or (kind in ("on_error", "on_complete") and len(self._inside) > 1)
            waiting = self._terminal
            early = self.subscription is None and kind != "on_subscribe"
        if foreign is not None:
            self.fault("1.3", f"{kind} was called while {foreign} ran on another thread")
        if waiting is not None:
            self.fault("1.7", f"{kind} was called after {waiting}")
        if early:
            self.fault("1.9", f"{kind} was called before on_subscribe")

    def _leave(self, kind: str) -> None:
        with self._changed:
            self._inside.remove((threading.get_ident(), kind))


def _shown(kind: str, value: Any) -> str:
    return f"{kind}({'' if kind == 'on_complete' else repr(value)})"

"""The common part of all suites: the marks of a test, what a subclass defines about its subject, and runs without pytest's command line."""

import functools
import gc
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Literal, NamedTuple, NoReturn, TypeVar

import pytest

from flow.contracts import UNBOUNDED, Publisher, Subscriber
from flow.tck.stage import Probe, Stage
from flow.tck.witness import RuleBroken, Witness, unless

__all__ = [
    "ENDLESS",
    "Kind",
    "PublisherSettings",
    "Result",
    "RuleBroken",
    "SubscriberSettings",
    "Verification",
    "pytest_configure",
    "request_and_stay",
    "requesting",
    "rs",
    "rules_of",
    "run",
    "untested",
]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "rs(rule, kind): checks a rule of Reactive Streams")


Kind = Literal["required", "optional", "stochastic", "untested", "extra"]

ENDLESS: Final = 2**31 - 1
"""The number of elements to ask for in tests that never reach the end."""

SEED: Final = "FLOW_TCK_SEED"
"""The environment variable with the seed of all tests that draw random numbers."""

Suite = TypeVar("Suite", bound="Verification")
Test = Callable[[Suite], None]

_seed: Final = int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))


class Verification:
    """Base of the suites, with their settings.

    Attributes:
        timeout: Seconds without a signal that count as silence. Tests of silence pass when no signal came for that long: a
            greater value finds more faults of publishers that signal from other threads, but makes many tests longer.
        patience: Seconds to wait for an expected signal. Only a failing test waits that long, so it can be generous.
        rounds: Number of repetitions in tests whose outcome depends on the timing of threads.
        strict: Whether a broken optional rule fails its test; otherwise the test is skipped, with the reason.
    """

    timeout: ClassVar[float] = 0.2
    patience: ClassVar[float] = 20.0
    rounds: ClassVar[int] = 100
    strict: ClassVar[bool] = False

    _witnesses: list[Witness]

    def witness(
        self,
        *,
        on_open: Callable[[Witness], object] | None = None,
        on_item: Callable[[Witness], object] | None = None,
    ) -> Witness:
        """Make a subscriber whose faults fail this test at its end, and which is then cancelled."""
        witness = Witness(self.timeout, self.patience, on_open=on_open, on_item=on_item)
        self._witnesses.append(witness)
        return witness

    def subscribed(self, publisher: Publisher[Any], **calls: Callable[[Witness], object] | None) -> Witness:
        """Subscribe a `witness` with these callbacks, and wait for its ``on_subscribe``."""
        witness = self.witness(**calls)
        witness.subscribe_to(publisher)
        witness.expect_subscription()
        return witness

    def forget(self, witness: Witness) -> None:
        """End a round: verify what its witness saw, and cancel."""
        witness.leave()
        self._witnesses.remove(witness)
        witness.verify()

    def until(self, condition: Callable[[], object], rule: str, text: str) -> None:
        """Wait until a condition holds, and report the rule as broken if it does not in time."""
        unless(condition, self.patience, rule, text)

    def random(self) -> random.Random:
        """Return a generator with the seed of this run, which is printed; ``FLOW_TCK_SEED`` sets it."""
        sys.stdout.write(f"{SEED}={_seed}\n")
        return random.Random(_seed)  # noqa: S311 - reproducible by intent


def rs(rule: str, kind: Kind, *, lenient: bool | None = None) -> Callable[[Test[Suite]], Test[Suite]]:
    """Mark a test with the rule that it checks, and verify its witnesses when it ends.

    Args:
        rule: Number of the rule in Reactive Streams 1.0.4, for example ``"3.3"``; ``"-"`` if it checks none.
        kind: The kind of the test, which says what a failure means.
        lenient: Whether a failure only skips the test, unless `Verification.strict`; by default if ``kind`` is optional.
    """
    forgiving = kind == "optional" if lenient is None else lenient

    def mark(test: Test[Suite]) -> Test[Suite]:
        @functools.wraps(test)
        def checked(self: Suite) -> None:
            self._witnesses = []
            try:
                try:
                    test(self)
                    for witness in self._witnesses:
                        witness.verify()
                finally:
                    for witness in self._witnesses:
                        witness.leave()
                    self._witnesses = []
            except RuleBroken as broken:
                if forgiving and not self.strict:
                    pytest.skip(f"optional, and not fulfilled: {broken}")
                raise

        return pytest.mark.rs(rule=rule, kind=kind)(checked)

    return mark


def untested(infix: str = "", **reasons: str) -> Callable[[type[Suite]], type[Suite]]:
    """Add a test to a suite for each rule that cannot be tested; it skips itself with the reason.

    Args:
        infix: Part of the names after ``test_untested_spec202_``, where 202 stands for rule 2.2.
        reasons: The reasons, by the names of the tests without ``test_untested_`` and infix.
    """

    def extended(suite: type[Suite]) -> type[Suite]:
        for name, why in reasons.items():
            spec, _, rest = name.partition("_")
            rule = f"{spec[4]}.{int(spec[5:])}"
            setattr(suite, f"test_untested_{spec}_{infix}{rest}", _skipping(rule, why))
        return suite

    return extended


def _skipping(rule: str, why: str) -> Callable[[Verification], None]:
    def skipped(self: Verification) -> NoReturn:
        pytest.skip(f"rule {rule} is untested: {why}")

    skipped.__doc__ = f"Untested: {why}."
    return pytest.mark.rs(rule=rule, kind="untested")(skipped)


class PublisherSettings(Verification):
    """How to make the publisher, and what it promises beyond the rules.

    Attributes:
        max_elements: The longest stream that can be made; tests that need more are skipped.
        bounded_depth: Most calls of ``on_next`` on one stack (rule 3.3).
        multicast: ``"cold"``: each subscriber receives the whole stream; ``"hot"``: all current subscribers receive the same
            elements from then on; None: one subscriber only.
        coordinated: Whether an element is emitted only when all subscribers have requested it.
        max_subscribers: Most subscribers that a publisher serves at a time, or None.
        lossy: Whether elements without demand may be lost; then tests that count elements are skipped.
        completes_early: Whether the completion needs no request beyond the last element.
        completes_idle: Whether an empty stream completes without any request.
        reports: Whether exceptions of a subscriber go to ``flow.hooks.on_dropped_error``.
        plenty: Least number of elements of a stream of `ENDLESS`. It bounds the longest tests.
    """

    max_elements: ClassVar[int] = UNBOUNDED
    bounded_depth: ClassVar[int] = 1
    multicast: ClassVar[Literal["cold", "hot"] | None] = None
    coordinated: ClassVar[bool] = False
    max_subscribers: ClassVar[int | None] = None
    lossy: ClassVar[bool] = False
    completes_early: ClassVar[bool] = True
    completes_idle: ClassVar[bool] = True
    reports: ClassVar[bool] = False
    plenty: ClassVar[int] = 100_000

    def make_publisher(self, n: int) -> Publisher[Any]:
        """Make a publisher of exactly ``n`` elements, then the end; none of them is ``None``.

        For ``n`` = `ENDLESS`, it has at least `plenty`, and does not end.
        """
        raise NotImplementedError("make_publisher(n) has to be written for the publisher that is verified")

    def make_failed_publisher(self) -> Publisher[Any] | None:
        """Make a publisher that refuses or fails at once, if there is one."""
        return None

    def make_stranded_publisher(self) -> Publisher[Any] | None:
        """Make a publisher that signals on a closed executor or event loop, if there is one."""
        return None

    def publisher(self, n: int) -> Publisher[Any]:
        """Make a publisher, or skip the test if it cannot be that long."""
        self.needs(n)
        return self.make_publisher(n)

    def lasting(self, n: int) -> Publisher[Any]:
        """Make a publisher that still has ``n`` elements whenever they are requested.

        A lossy publisher may lose all of them before, and end; so an endless one is made, if possible.
        """
        return self.longest(n) if self.lossy else self.publisher(n)

    def longest(self, n: int) -> Publisher[Any]:
        """Make an endless publisher, or if that is impossible one of ``n`` elements."""
        return self.publisher(ENDLESS if self.max_elements >= ENDLESS else n)

    def needs(self, n: int) -> None:
        """Skip the test if a stream of ``n`` elements cannot be made."""
        if n > self.max_elements:
            pytest.skip(f"{n} elements are needed, there are at most {self.max_elements}")

    def exact(self) -> None:
        """Skip a test that counts elements if the publisher is lossy."""
        if self.lossy:
            pytest.skip("the publisher is lossy: elements are not counted")

    def failed(self) -> Publisher[Any]:
        """Make a failed publisher, or skip."""
        publisher = self.make_failed_publisher()
        if publisher is None:
            pytest.skip("there is no failed publisher")
        return publisher

    def several(self, count: int = 2) -> None:
        """Skip the test unless that many subscribers are served."""
        if self.multicast is None:
            pytest.skip("the publisher serves one subscriber")
        if self.max_subscribers is not None and self.max_subscribers < count:
            pytest.skip(f"{count} subscribers are needed, {self.max_subscribers} are served")

    def dropped_after(
        self,
        publisher: Publisher[Any],
        end: Callable[[Witness], object],
        what: str,
        on_item: Callable[[Witness], object] | None = None,
    ) -> None:
        """Check that a subscriber is collected after ``end``, while publisher and subscription are kept."""
        subscriber = Witness(self.timeout, self.patience, on_item=on_item)
        subscriber.subscribe_to(publisher)
        kept = [publisher, subscriber.expect_subscription()]
        end(subscriber)
        reference = weakref.ref(subscriber)
        del subscriber
        self.until(
            lambda: reference() is None or (gc.collect() >= 0 and reference() is None),
            "3.13",
            f"something still refers to the subscriber after {what}",
        )
        kept.clear()


class SubscriberSettings(Verification):
    """How to make the subscriber, and which elements it is sent."""

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a subscriber that requests by itself, or with a probe through its puppet only; see `flow.tck.Probe`."""
        raise NotImplementedError(
            "make_subscriber(probe) has to be written for the subscriber that is verified"
        )

    def make_item(self, place: int) -> Any:
        """Return the element to send at a place, from 1; not ``None``."""
        return place

    def _send(self, stage: Stage, subscriber: Subscriber[Any], count: int, first: int = 1) -> None:
        """Send the elements of ``count`` places."""
        for place in range(first, first + count):
            stage.send(subscriber, self.make_item(place))


def requesting(*numbers: int) -> Callable[[Witness], None]:
    """Make a callback that requests each of the numbers."""

    def request(witness: Witness) -> None:
        for n in numbers:
            witness.request(n)

    return request


def request_and_stay(witness: Witness) -> None:
    """Request one element, and wait a little so that another thread could signal it before this signal returns."""
    witness.request(1)
    threading.Event().wait(0.0002)


class Result(NamedTuple):
    """The result of one test.

    Attributes:
        outcome: Passed, failed or skipped.
        rule: The number of its rule.
        kind: Required, optional, stochastic, untested or extra.
        reason: Why it failed or was skipped.
    """

    outcome: Literal["passed", "failed", "skipped"]
    rule: str
    kind: str
    reason: str


def rules_of(suite: type[Verification]) -> dict[str, tuple[str, str]]:
    """Return the rule and the kind of every test of a suite, by name."""
    found = {}
    for name in dir(suite):
        if name.startswith("test_"):
            marks = [mark for mark in getattr(getattr(suite, name), "pytestmark", ()) if mark.name == "rs"]
            if marks:
                found[name] = (marks[0].kwargs["rule"], marks[0].kwargs["kind"])
    return found


def run(suite: type[Verification], names: Iterable[str] | None = None) -> dict[str, Result]:
    """Run the tests of a suite, or the named ones; failures are in the results, and not raised."""
    known = rules_of(suite)
    return {name: _run_one(suite, name, *known[name]) for name in (known if names is None else names)}


def _run_one(suite: type[Verification], name: str, rule: str, kind: str) -> Result:
    subject: Any = suite()
    try:
        getattr(subject, name)()
    except pytest.skip.Exception as skipped:
        return Result("skipped", rule, kind, str(skipped))
    except Exception as error:  # noqa: BLE001 - a failure is the result
        return Result("failed", rule, kind, str(error) or repr(error))
    return Result("passed", rule, kind, "")

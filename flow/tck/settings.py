"""The common part of all suites: settings, the marks of a test, and the reporting of broken rules.

A suite is a class whose tests pytest collects when a subclass is named ``Test...``. Its settings are class attributes
of the subclass. Tests are plain functions that block their thread: a publisher on an event loop needs
a loop that runs in another thread.
"""

import functools
import os
import random
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, NoReturn, TypeVar

import pytest

from flow.contracts import Publisher
from flow.tck.witness import RuleBroken, Witness, unless

__all__ = ["ENDLESS", "Kind", "RuleBroken", "Verification", "rs", "untested"]

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

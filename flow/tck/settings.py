"""What all suites share: settings, the marks of a test, and how a broken rule is told.

A suite is a class whose tests pytest collects when a subclass is called ``Test...``. Its settings are class attributes,
so a subclass states them once. Tests are plain functions on threads of the caller: whatever lives on an event loop has
to be given one that runs in another thread.
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
"""The number of elements that a test asks for when it never gets to the end."""

SEED: Final = "FLOW_TCK_SEED"
"""The environment variable that fixes the seed of all tests that draw random numbers."""

Suite = TypeVar("Suite", bound="Verification")
Test = Callable[[Suite], None]

_seed: Final = int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))


class Verification:
    """Base of the suites: their settings.

    Attributes:
        timeout: Seconds of quiet that count as silence. Tests of silence pass when nothing came for so long: a greater
            value finds more faults of publishers that signal from other threads, and costs its length in many tests.
        patience: Seconds to wait for what has to come. Only a test that fails waits so long, so it can be generous.
        rounds: How often tests repeat what depends on how threads meet.
        strict: Whether a failed optional rule fails its test; else it skips it, with the reason.
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
        """Make a subscriber whose faults fail this test at its end, and which is cancelled then."""
        witness = Witness(self.timeout, self.patience, on_open=on_open, on_item=on_item)
        self._witnesses.append(witness)
        return witness

    def subscribed(self, publisher: Publisher[Any], **calls: Callable[[Witness], object] | None) -> Witness:
        """Subscribe a `witness` that makes these calls, and wait for its ``on_subscribe``."""
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
        """Wait until a condition holds, and break the rule if it does not in time."""
        unless(condition, self.patience, rule, text)

    def random(self) -> random.Random:
        """A generator with the seed of this run, which is printed; ``FLOW_TCK_SEED`` sets it."""
        sys.stdout.write(f"{SEED}={_seed}\n")
        return random.Random(_seed)  # noqa: S311 - reproducible by intent


def rs(rule: str, kind: Kind, *, lenient: bool | None = None) -> Callable[[Test[Suite]], Test[Suite]]:
    """Mark a test with the rule that it checks, and verify at its end what its witnesses have seen.

    Args:
        rule: Its number in Reactive Streams 1.0.4, for example ``"3.3"``; ``"-"`` if it checks none.
        kind: What a failure means.
        lenient: Whether a failure only skips, unless `Verification.strict`; by default that of an optional rule.
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
    """Give a suite a test for each rule that cannot be tested: it says why, and skips.

    Args:
        infix: What stands in the names behind ``test_untested_spec202_``, with 202 for rule 2.2.
        reasons: Why, by the names of the tests without ``test_untested_`` and infix.
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

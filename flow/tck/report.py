"""Runs a suite without pytest's command line, test by test."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import pytest

from flow.tck.settings import Verification

__all__ = ["Result", "rules_of", "run"]


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

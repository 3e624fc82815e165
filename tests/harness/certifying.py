"""Collects one test for each subject of the verification kit, instead of one for each rule of each subject.

A suite has up to a hundred rules, and there are more than a hundred subjects. As tests of their own, most rules would cost several times as
much for being collected by every worker, set up and reported as for themselves.
"""

from collections.abc import Callable
from typing import Any

import pytest

from flow.tck import Verification, rules_of

__all__ = ["Certification", "Suite", "pytest_pycollect_makeitem"]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> "Suite | None":
    """Collects a suite of the kit as a `Suite`; one with further tests is left to pytest."""
    if not (isinstance(obj, type) and issubclass(obj, Verification) and collector.classnamefilter(name)):
        return None
    rules = rules_of(obj)
    if any(own.startswith("test") and own not in rules for own in dir(obj)):
        return None
    suite: Suite = Suite.from_parent(collector, name=name)
    return suite


class Suite(pytest.Class):
    """A suite, which is collected as a `Certification`."""

    def _getobj(self) -> type["Certification"]:  # may be overridden, says pytest
        suite = super()._getobj()
        marks = getattr(suite, "pytestmark", [])
        named = {"suite": staticmethod(lambda: suite), "pytestmark": marks, "__module__": suite.__module__}
        return type(suite.__name__, (Certification,), named)


class Certification:
    """The test of a suite, which is set up and torn down once.

    Attributes:
        suite: Returns the suite, which pytest would collect too if it were the attribute, and has ``__test__``.
    """

    suite: Callable[[], type[Any]]

    @classmethod
    def setup_class(cls) -> None:
        getattr(cls.suite(), "setup_class", int)()

    @classmethod
    def teardown_class(cls) -> None:
        getattr(cls.suite(), "teardown_class", int)()

    def test_every_rule(self) -> None:
        """Runs the test of every rule on an instance of its own; all that are broken are reported together."""
        suite = self.suite()
        held: list[str] = []
        broken: list[BaseException] = []
        for name in rules_of(suite):
            try:
                getattr(suite(), name)()
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception) as error:
                error.add_note(f"in {name} of {suite.__name__}")
                broken.append(error)
            else:
                held.append(name)
        if broken:
            raise BaseExceptionGroup(f"{len(broken)} rules are broken, {len(held)} hold", broken)
        assert held, "every rule was skipped"

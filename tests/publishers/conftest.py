"""Fixtures of this package's tests."""

from collections.abc import Iterator

import pytest

from flow import hooks
from publishers import ChangeLog
from tests.publishers.support import opened


@pytest.fixture
def log() -> Iterator[ChangeLog]:
    with opened() as one:
        yield one


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[type, str, type]]:
    """What went to the hook for errors that nobody can be told of; not the errors, whose frames would be kept."""
    found: list[tuple[type, str, type]] = []

    def note(error: Exception, subscriber: object) -> None:
        found.append((type(error), str(error), type(subscriber)))

    monkeypatch.setattr(hooks, "on_dropped_error", note)
    return found

"""Fixtures and profiles of this package's tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from flow import hooks
from publishers import ChangeLog
from tests.harness.scale import scaled
from tests.publishers.support import opened

settings.register_profile(
    "commit",
    deadline=None,
    max_examples=scaled(60),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("long", settings.get_profile("commit"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "commit"))


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

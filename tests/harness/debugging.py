"""Tests that run in asyncio's debug mode, where mistakes that are silent else are errors."""

import logging
from collections.abc import Iterator

import pytest

__all__ = ["SUITES", "debugged", "is_slowness", "pytest_runtest_protocol"]

SUITES = (
    "tests/flow/bridges/test_asyncio.py",
    "tests/flow/bridges/test_async_subscriber.py",
    "tests/flow/bridges/test_async_iterable.py",
    "tests/flow/test_executors.py",
    "tests/transports/client/test_remote_log.py",
    "tests/transports/server/test_change_driver.py",
    "tests/transports/server/test_ws_protocol.py",
    "tests/transports/server/test_graphql_driver.py",
    "tests/transports/http/test_graphql.py",
    "tests/transports/server/test_uvicorn.py",
    "tests/transports/server/test_asgi.py",
)
"""The fewest that enter each ``async def`` of `flow` and `transports` that a server, a client or a bridge runs."""


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if not is_slowness(line):
            self.lines.append(line)


def is_slowness(line: str) -> bool:
    """Whether a loop in debug mode says no more than that something was slow, which depends on the machine."""
    return line.startswith("Executing ") and " took " in line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Every loop that the test makes, and those of its fixtures, is in debug mode."""
    if not item.nodeid.startswith(SUITES):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONASYNCIODEBUG", "1")
        patch.setattr(
            item.config.option, "asyncio_debug", True, raising=False
        )  # pytest-asyncio sets its own loop's
        return (yield)


@pytest.fixture(autouse=True)
def debugged(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a loop complains of fails the test: calls from foreign threads, results and coroutines that nobody takes."""
    if not request.node.nodeid.startswith(SUITES):
        yield
        return
    complaints = _Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    yield
    logger.removeHandler(complaints)
    assert not complaints.lines

"""Runs suites of async code in asyncio's debug mode, and fails a test for any complaint of a loop."""

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
    "tests/transports/client/test_reconnecting.py",
    "tests/transports/server/test_change_driver.py",
    "tests/transports/server/test_ws_protocol.py",
    "tests/transports/server/test_graphql_driver.py",
    "tests/transports/server/test_graphql_pace.py",
    "tests/transports/http/test_graphql.py",
    "tests/transports/server/test_uvicorn.py",
    "tests/transports/server/test_asgi.py",
)
"""The smallest set of suites that enters each ``async def`` of `flow` and `transports` in a server, a client or a bridge."""


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if not is_slowness(line):
            self.lines.append(line)


def is_slowness(line: str) -> bool:
    """Returns whether a debug message only reports a slow callback, which depends on the machine."""
    return line.startswith("Executing ") and " took " in line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Puts every loop of the test and its fixtures into debug mode."""
    if not item.nodeid.startswith(SUITES):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONASYNCIODEBUG", "1")
        patch.setattr(
            item.config.option, "asyncio_debug", True, raising=False
        )  # pytest-asyncio sets the mode of its own loop
        return (yield)


@pytest.fixture(autouse=True)
def debugged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test if a loop complains: of calls from foreign threads, unretrieved results, or coroutines never awaited."""
    if not request.node.nodeid.startswith(SUITES):
        yield
        return
    complaints = _Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    yield
    logger.removeHandler(complaints)
    assert not complaints.lines

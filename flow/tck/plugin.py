"""Registers the mark ``rs`` with pytest: list it as ``pytest_plugins = ["penstock_cdc.tck"]`` in the topmost conftest."""

import pytest

__all__ = ["pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "rs(rule, kind): checks a rule of Reactive Streams")

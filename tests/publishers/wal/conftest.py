"""Where a log is made, and tests whose logs fail on purpose."""

import logging
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "one"


@pytest.fixture
def quiet():
    """Hundreds of logs fail here on purpose, and each would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)

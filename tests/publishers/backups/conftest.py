"""A log, and where its backup goes."""

import pytest

from publishers import ChangeLog
from tests.publishers.backups.trees import OPTIONS


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log", **OPTIONS) as log:
        yield log


@pytest.fixture
def target(tmp_path):
    return tmp_path / "backup"

"""A log on the real disk, made once for each module, and a copy of it for each test to damage."""

import pytest

from tests.publishers.wal.checks.damage import copy_log, make_log


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Where it is, and what was acknowledged."""
    path = tmp_path_factory.mktemp("logs") / "whole"
    return path, make_log(path)


@pytest.fixture
def log(made, tmp_path):
    return copy_log(made[0], tmp_path / "log")

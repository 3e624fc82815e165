"""Where the children of these tests keep their logs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.crash import support
from tests.harness.prefork import serving


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    with serving("tests.crash.children") as server:
        support.SERVER[:] = [server]
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, where there is one: it is the death of a process that is tested, not of a machine."""
    path = Path(mkdtemp(prefix="penstock-crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)

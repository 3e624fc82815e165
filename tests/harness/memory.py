"""Tests write their logs into memory, where there is room for them: a disk that syncs would be waited for most of the time.

What tests the disk itself lies on it all the same: a directory of tests asks for that by a fixture ``tmp_path`` of its own,
which is ``on_disk``.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["on_disk", "write_into_memory"]

MEMORY = Path("/dev/shm")
LEAST = 4 << 30
"""Bytes; segments are reserved in full, and a container may have some MiB only."""

DISK = tempfile.gettempdir()


def write_into_memory() -> None:
    """Has the temporary directories of this process, and of those that it starts, lie in memory; not if a place is given."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on the disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=DISK, ignore_cleanup_errors=True) as path:
        yield Path(path)

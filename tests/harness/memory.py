"""Puts the temporary files of tests into memory if it has room, since tests on a disk would mostly wait for syncs.

Tests of the disk itself stay on the disk: their directory overrides the fixture ``tmp_path`` with ``on_disk``.
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
"""Minimum free bytes: segments are preallocated in full, and a container may have only a few MiB."""

DISK = tempfile.gettempdir()


def write_into_memory() -> None:
    """Puts temporary directories of this process and its children into memory, unless ``TMPDIR`` is set."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Yields a directory on the disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=DISK, ignore_cleanup_errors=True) as path:
        yield Path(path)

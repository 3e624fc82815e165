"""Files that appear whole or not at all, under names that last."""

import os
from pathlib import Path

__all__ = ["replace_file", "sync_directory"]


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace_file(path: Path, data: bytes) -> None:
    """Puts a file in place of another one, durably when it returns: written beside it, synced and renamed."""
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(path.parent)

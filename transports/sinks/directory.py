"""Durable file operations: a file appears as a whole or not at all."""

import os
from pathlib import Path

__all__ = ["replace_file", "sync_directory"]


def sync_directory(path: Path) -> None:
    """Syncs a directory, which makes the names in it durable."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file, durably when it returns: writes a temporary file, syncs it and renames it.

    Only its owner may read the file: a declaration may hold a header that is a secret.
    """
    beside = path.with_name(path.name + ".tmp")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(path.parent)

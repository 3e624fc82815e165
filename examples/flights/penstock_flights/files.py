"""Small files that are either the old ones or the new ones, whenever the program is killed."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["read_json", "replace_json", "sole_user"]


def replace_json(path: Path, value: Any) -> None:
    """Replaces a file in one step; synced first, so that not even a power cut leaves half of one.

    Raises:
        OSError: If it cannot be written; then the old one is as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """Reads a file; None if there is none, or nothing that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def sole_user(directory: Path) -> Iterator[None]:
    """Makes a directory and keeps a second demo out of it, until the program ends in whatever way.

    Raises:
        BlockingIOError: If another demo uses it.
        OSError: If it cannot be made or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another demo runs in {directory}; stop it, or choose another --dir"
            ) from None
        yield

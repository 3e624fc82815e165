"""Small files that are replaced atomically: a killed program leaves either the old or the new content."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["read_json", "replace_json", "sole_user"]


def replace_json(path: Path, value: Any) -> None:
    """Replaces a file in one step. The new content is synced first, so even a power failure leaves a whole file.

    Raises:
        OSError: If it cannot be written; then the old file is unchanged.
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
    """Reads a JSON file; None if it is missing, or cannot be read or parsed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def sole_user(directory: Path) -> Iterator[None]:
    """Makes a directory and locks it against a second demo; the lock is released however the program ends.

    Raises:
        BlockingIOError: If another demo uses the directory.
        OSError: If the directory cannot be made or written.
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

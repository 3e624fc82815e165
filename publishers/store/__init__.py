"""A store: named change logs in one directory, and the system log that tells what becomes of them."""

from publishers.store.store import ChangeStore

__all__ = ["ChangeStore"]

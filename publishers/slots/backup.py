"""The positions of slots in a backup: slots themselves are not restored, because they would hold history for nobody."""

import contextlib
import logging
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from publishers.errors import FormatTooNew
from publishers.journal import Journal, JournalDamaged
from publishers.slots.record import SLOTS_NAME, replay
from publishers.wal import FileSystem
from publishers.wal.backups import PLACES_NAME
from publishers.wal.disk.filesystem import put_file, read_file, sync_names

__all__ = ["backed_up_places", "forget_restored_place", "restored_place"]

_LOG: Final = logging.getLogger("penstock.slots")


class _Places(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        slots: The token of the position of each slot, by its name.
    """

    slots: dict[str, str] = {}


def backed_up_places(filesystem: FileSystem, path: Path, log_id: UUID) -> bytes | None:
    """Returns what a backup of a log holds of its slots; also beside the owner of the log, and for a backup.

    Returns:
        The content of the file; empty if there are no slots, None if they cannot be read.
    """
    try:
        records = replay(Journal(filesystem, path / SLOTS_NAME, log_id).load()).values()
    except (JournalDamaged, FormatTooNew, ValueError, OSError) as error:
        _LOG.warning("the positions of the slots of %s are not in its backup: %s", path, error)
        return None
    found = _read(filesystem, path) | {one.name: one.place for one in records}
    return msgspec.json.encode(_Places(found), order="sorted") if found else b""


def restored_place(filesystem: FileSystem, path: Path, name: str) -> str | None:
    """Returns the token of the position that a slot had in the backup from which its log was restored; None if it was not there."""
    return _read(filesystem, path).get(name)


def forget_restored_place(filesystem: FileSystem, path: Path, name: str) -> None:
    """Removes the position of a slot, because a new slot of this name has its own; durable when it returns."""
    found = _read(filesystem, path)
    if found.pop(name, None) is None:
        return
    if found:
        put_file(filesystem, path / PLACES_NAME, msgspec.json.encode(_Places(found), order="sorted"))
    else:
        filesystem.unlink(path / PLACES_NAME)
    sync_names(filesystem, path)


def _read(filesystem: FileSystem, path: Path) -> dict[str, str]:
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return dict(msgspec.json.decode(read_file(filesystem, path / PLACES_NAME), type=_Places).slots)
    return {}

"""The options that a log keeps in its own directory, so that a program that opens another program's log applies the same.

They stand in ``OPTIONS``, a mirrored file (`publishers.wal.files.mirrored_file`) with one JSON object: an option by its name.
Names that this version does not know stay as they are. The holder of LOCK writes the file, and reads it before any other part of the log.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from publishers.options import KEEP_HISTORY, KEPT, LogOptions
from publishers.wal.disk.filesystem import FileSystem, check_openable
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.mirrored_file import MirroredFile, MirroredState
from publishers.wal.files.segment import segment_number

__all__ = ["OPTIONS_NAME", "OwnOptions", "kept_of", "read_own", "write_own"]

OPTIONS_NAME: Final = "OPTIONS"

_LOG: Final = logging.getLogger("penstock.options")
_KEEP_ALL: Final[Mapping[str, Any]] = {**KEEP_HISTORY, "producers": 2**62, "producer_ttl": 2.0**40}
"""What an opening takes that has no say, where the log does not say anything: nothing of it is given up."""


def read_own(filesystem: FileSystem, directory: Path) -> Mapping[str, Any] | None:
    """The options that a log keeps, by name; those that this version does not know are among them.

    Returns:
        The options; None if it keeps none: an earlier version made it, or both copies are damaged.

    Raises:
        LogUnreadable, OSError: If the file cannot be read.
    """
    return _parsed(_read(filesystem, directory))


def write_own(filesystem: FileSystem, directory: Path, values: Mapping[str, Any]) -> None:
    """Changes options that a log keeps, durably; the caller holds LOCK, and has checked the values.

    Raises:
        LogUnreadable, OSError: From the file system; each copy is then the old or the new one.
    """
    text = {**(read_own(filesystem, directory) or {}), **values}
    MirroredFile(filesystem, directory, OPTIONS_NAME).write(json.dumps(text).encode())


def kept_of(options: LogOptions) -> dict[str, Any]:
    """Those of the options that a log keeps."""
    return {name: getattr(options, name) for name in KEPT}


class OwnOptions:
    """The choice between the options that a log keeps and those that its opener gives.

    An option that the opener gives counts, and replaces the one in the log; otherwise the log's counts, or else the default.
    A field of ``options`` is given if it differs from the default, one of ``overrides`` always.

    An opener that only borrows the log gives it nothing: its ``overrides`` apply to this opening, its ``options`` to a log that is
    made here, and where the log keeps no option nothing is deleted.

    Args:
        filesystem: Holds the log.
        directory: Directory of the log.
        options: Options of the opener, or None.
        overrides: Single options of the opener, by name.
        borrowed: Whether the log is another program's.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        options: LogOptions | None,
        overrides: Mapping[str, Any],
        *,
        borrowed: bool,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._plain = LogOptions.chosen(options, {} if borrowed else overrides)
        self._whole = LogOptions.chosen(options, overrides)
        default = LogOptions()
        self._given = {
            name: getattr(self._whole, name)
            for name in KEPT
            if name in overrides or (not borrowed and getattr(self._plain, name) != getattr(default, name))
        }
        self._borrowed = borrowed
        self._write: Mapping[str, Any] | None = None

    def choose(self) -> LogOptions:
        """Returns the options of this opening; the caller holds LOCK.

        Raises:
            InvalidOption: If the log keeps an option of a later version that this one does not accept.
            LogUnreadable, OSError: If the file cannot be read.
        """
        found = _read(self._filesystem, self._directory)
        own = _parsed(found)
        names = self._filesystem.listing(self._directory)
        fresh = HEAD_NAME not in names and not any(map(segment_number, names))
        if fresh:
            self._write = kept_of(self._plain)
            return self._whole
        if own is None and found.exists:
            _LOG.warning(
                "both copies of %s are damaged: nothing is deleted before 'penstock log options' sets what the log keeps",
                self._directory / OPTIONS_NAME,
            )
        elif own is None and self._borrowed and not KEEP_HISTORY.keys() <= self._given.keys():
            _LOG.warning(
                "%s keeps no options of its own, so nothing of it is deleted here; 'penstock log options' sets them",
                self._directory,
            )
        silent = _KEEP_ALL if self._borrowed or (own is None and found.exists) else {}
        known = {name: own[name] for name in KEPT if own is not None and name in own}
        chosen = replace(self._whole, **{**silent, **known, **self._given})
        if not self._borrowed and (own is not None or not found.exists):
            changed = {name: value for name, value in known.items() if getattr(chosen, name) != value}
            if changed:
                said = ", ".join(
                    f"{name} {value!r} -> {getattr(chosen, name)!r}" for name, value in changed.items()
                )
                _LOG.warning("%s keeps other options from now on: %s", self._directory, said)
            text = {**(own or {}), **kept_of(chosen)}
            if text != own or not found.even:
                self._write = text
        return chosen

    def store(self, insist: Callable[[Callable[[], None]], None]) -> None:
        """Stores what `choose` has found to be stored; the caller holds LOCK. An error of the disk is logged.

        Args:
            insist: Repeats a write while the disk is full and reserved room can be released for it; see `Wal.insist`.
        """
        values, self._write = self._write, None
        if values is None:
            return
        try:
            insist(lambda: write_own(self._filesystem, self._directory, values))
        except OSError as error:
            _LOG.warning("%s cannot be written: %s", self._directory / OPTIONS_NAME, error)


def _read(filesystem: FileSystem, directory: Path) -> MirroredState:
    try:
        return MirroredFile(filesystem, directory, OPTIONS_NAME).read()
    except OSError as error:
        check_openable(error, directory / OPTIONS_NAME)
        raise


def _parsed(found: MirroredState) -> Mapping[str, Any] | None:
    if found.text is None:
        return None
    # The checksum is right, so a version of penstock wrote it.
    values: dict[str, Any] = json.loads(found.text)
    return values

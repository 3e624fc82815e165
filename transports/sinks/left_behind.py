"""The sinks that were started before and are not declared any more: nothing is sent to them, but their slots keep history."""

from collections.abc import Collection, Container
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from transports.sinks.directory import replace_file

__all__ = ["left_behind"]

_FOLDER: Final = "sinks"
_NAME: Final = "STARTED"  # in capitals, which the name of a sink has not


def left_behind(directory: Path, declared: Collection[str], slots: Container[str]) -> list[str]:
    """Notes the sinks that are started on a log; returns the names of earlier ones that are not declared any more and have a slot.

    Args:
        directory: The directory of the log.
        declared: The names of the sinks that are started now.
        slots: The names of the slots of the log.
    """
    path = directory / _FOLDER / _NAME
    try:
        before = msgspec.json.decode(path.read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):  # without it, earlier sinks are not known
        before = []
    left = sorted(name for name in {*before} - {*declared} if name in slots)
    names = sorted({*declared, *left})
    if names != before:
        with suppress(OSError):  # sinks also start while the disk is full
            path.parent.mkdir(exist_ok=True)
            replace_file(path, msgspec.json.encode(names))
    return left

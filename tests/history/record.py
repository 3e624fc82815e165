"""What a history is made of: one line of JSON for each call and each return, as the callers saw it.

Each life of a process has a file of its own; lines are written one by one, unbuffered, so that a process that is killed
leaves all but perhaps the end of its last one. Times are of the monotonic clock, which the processes of a machine share.

========== ============================================================ ====================================================
line       fields                                                       meaning
========== ============================================================ ====================================================
commit?    tx, count, hidden                                            the transaction ``tx`` of ``count`` changes is handed in,
commit!    tx, version, duplicate                                       and acknowledged,
commit-    tx, error                                                    or not
publish?   version                                                      what is withheld up to there is to be shown; ``!``, ``-``
forget?    version                                                      what is withheld above is to be dropped; ``!``, ``-``
subscribe  sub, wish, since, after                                      a subscription begins at ``since``, or wherever it likes;
                                                                        ``after`` names the one that it goes on for
started    sub, at                                                      ``on_subscribe``; ``at`` as far as it is known
request    sub, n                                                       before the call
next       sub, items, visible                                          items are [version, index, count, id, text]
gap        sub, begin, end                                              history is missing, and the subscriber was told
seek       sub, to                                                      before the call
sought     sub, to                                                      the subscriber was told
cancelled  sub                                                          after the call
end        sub, error, oldest                                           terminal signal; ``error`` is None or a name
rest       sub, visible                                                 asked for everything, the subscription has all up to there
did        items                                                        a group gave these to a consumer, who acknowledges them
drained    types                                                        a group of these entity types was read to its end
entities   keys                                                         those that the compacted state has at the end
truth      oldest, visible                                              the log itself, when everything has ended,
log        items                                                        and what it holds
========== ============================================================ ====================================================
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["History", "Recorder", "Wish", "change_id", "matches", "parts"]

KEYS = 5
"""How many keys there are: the first part of an id is one."""

Wish = list[str]
"""["all"], ["infra"] for transaction events only, ["key", "k0"] or ["type", producer]."""


class Recorder:
    """Writes a history; from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, event: str, **fields: Any) -> None:
        line = {"t": time.monotonic_ns(), "e": event, **fields}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class History:
    """The lines of a file, as often as one likes; the end of a line that its writer was killed in is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return  # killed before it could write anything
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def change_id(tx: str, place: int, count: int) -> str:
    """What a change is called, and its key in the log: nothing else in the world has that name.

    Args:
        tx: Producer and sequence: ``p1/17``.
        place: Of the change in its transaction, from 0.
        count: How many changes the transaction has.
    """
    sequence = int(tx.rpartition("/")[2])
    return f"k{(3 * sequence + place) % KEYS}/{tx}/{place}/{count}"


def parts(name: str) -> tuple[str, str, int, int]:
    """Key, transaction, place and count of an id.

    Raises:
        ValueError: If it is none.
    """
    key, producer, sequence, place, count = name.split("/")
    tx = f"{producer}/{int(sequence)}"
    if change_id(tx, int(place), int(count)) != name:
        raise ValueError(name)
    return key, tx, int(place), int(count)


def matches(wish: Wish, index: int, name: str | None) -> bool:
    """Whether a subscriber wanted a change; ``name`` is None for a transaction event."""
    match wish:
        case ["all"]:
            return True
        case ["infra"]:
            return index == 0
        case ["key", key]:
            return name is not None and name.startswith(f"{key}/")
        case ["type", producer]:
            return name is not None and name.split("/")[1] == producer
    raise ValueError(wish)

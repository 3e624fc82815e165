"""The state that a subscriber of the demo stores: its position and its digest, in one file.

Both are replaced together, so after a kill a subscriber resumes at its position with the digest of that position. Changes that
it had received after that are delivered again and added again to that digest, so each change counts exactly once.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from penstock_cdc import Change, Position
from penstock_flights.digest import StreamDigest
from penstock_flights.files import read_json, replace_json

__all__ = ["Reception", "ReceptionPlace"]

_SAVE_EVERY: Final = 0.5  # seconds


@dataclass(slots=True)
class ReceptionPlace:
    """The stored position and counts of a subscriber.

    Attributes:
        cursor: Where to resume; None before the first change.
        last: The greatest position of a received change.
        count: The number of received changes.
        ordered: Their digest with their numbers; see ``StreamDigest``.
        content: Their digest without numbers.
        misplaced: Changes whose position was not above that of an earlier change.
        resyncs: How often the subscription entered RESYNC.
        returns: How often it became LIVE again.
        seconds: Seconds from the first to the last change, summed over all starts of the program.
    """

    cursor: str | None = None
    last: Position = field(default=Position(0, 0))
    count: int = 0
    ordered: int = 0
    content: int = 0
    misplaced: int = 0
    resyncs: int = 0
    returns: int = 0
    seconds: float = 0.0

    @property
    def digest(self) -> StreamDigest:
        """The digest, to compare with Spark's."""
        return StreamDigest(self.count, self.ordered, self.content)

    def to_json(self) -> dict[str, Any]:
        """The JSON form in which the place is stored and reported."""
        return asdict(self) | {"last": list(self.last)}

    @classmethod
    def from_json(cls, stored: object) -> Self | None:
        """Reads the output of ``to_json``; None if it is anything else."""
        if not isinstance(stored, dict) or stored.keys() != cls.__dataclass_fields__.keys():
            return None
        match stored["last"]:
            case [int(version), int(index)]:
                return cls(**stored | {"last": Position(version, index)})
            case _:
                return None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a place from a file; the beginning if the file is missing or unreadable."""
        return cls.from_json(read_json(path)) or cls()


class Reception:
    """Counts the changes that one subscriber receives; calls must be serial.

    Args:
        path: The file of its place.
        clock: Returns seconds, for ``ReceptionPlace.seconds`` and the interval between saves.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self.place = ReceptionPlace.load(path)
        self._began: float | None = None
        self._digest = self.place.digest
        self._saved = clock()
        self._state: str | None = None
        self._newest: Change | None = None

    @property
    def newest(self) -> Change | None:
        """The last change received since the start of this program."""
        return self._newest

    def take(self, changes: Sequence[Change], cursor: str) -> None:
        """Adds changes, and saves the place if the last save is half a second ago.

        Args:
            changes: One or more changes with bodies, in the order of delivery.
            cursor: Where to resume after them.
        """
        place, digest = self.place, self._digest
        if self._began is None:
            self._began = self._clock() - place.seconds
        last: tuple[int, int] = place.last
        rows: list[tuple[bytes, bytes]] = []
        change: Change | None = None
        for change in changes:  # once, since a batch of the log makes its changes while it is read
            position = (change.version, change.index)
            if position <= last:
                place.misplaced += 1
            else:
                last = position
            rows.append(((change.key or "").encode("utf-8", "surrogateescape"), change.body_bytes or b""))
        digest.add_many(rows)
        self._newest = change
        place.last, place.count = Position(*last), digest.count
        place.ordered, place.content = digest.ordered, digest.content
        place.seconds = self._clock() - self._began
        self.reach(cursor)

    def reach(self, cursor: str) -> None:
        """Moves the place to ``cursor``; every matching change before it was received."""
        self.place.cursor = cursor
        if self._clock() - self._saved >= _SAVE_EVERY:
            self.save()

    def observe(self, state: str) -> None:
        """Counts transitions between LIVE and RESYNC, as reported by the log or the server.

        A program that was stopped in RESYNC may become LIVE after its restart before this is first called; that counts as a
        return as well.
        """
        if state == self._state:
            return
        if state == "RESYNC":
            self.place.resyncs += 1
        elif self.place.resyncs > self.place.returns:
            self.place.returns += 1
        self._state = state

    @property
    def state(self) -> str | None:
        """LIVE or RESYNC, as last reported; None before that."""
        return self._state

    def save(self) -> None:
        """Stores the place."""
        replace_json(self._path, self.place.to_json())
        self._saved = self._clock()

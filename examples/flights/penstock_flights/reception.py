"""What a subscriber of the demo keeps of what it received: its place and its digest, in one file.

Both are replaced together, so after a kill a subscriber resumes at its place with the digest as it was there. What it
had received beyond that comes again and is counted again from that digest: once, in the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from penstock_flights.digest import StreamDigest
from penstock_flights.files import read_json, replace_json
from publishers.model.change import Change
from publishers.model.position import Position

__all__ = ["Reception", "ReceptionPlace"]

_SAVE_EVERY: Final = 0.5  # seconds


@dataclass(slots=True)
class ReceptionPlace:
    """How far a subscriber has come.

    Attributes:
        cursor: Where to resume; None before anything is known.
        last: The greatest position of a change that came.
        count: How many came.
        ordered: Their digest, with their places.
        content: Their digest, without.
        misplaced: Changes that came at, or before, the position of one that had come.
        resyncs: How often it was told that it is in RESYNC.
        returns: How often it was told that it is LIVE again.
        seconds: From the first change to the last one, summed up over all starts of the program.
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
        """What Spark is to agree with."""
        return StreamDigest(self.count, self.ordered, self.content)

    def to_json(self) -> dict[str, Any]:
        """The place as it is stored, and reported."""
        return asdict(self) | {"last": list(self.last)}

    @classmethod
    def from_json(cls, stored: object) -> Self | None:
        """Reads what ``to_json`` wrote; None if it is anything else."""
        if not isinstance(stored, dict) or stored.keys() != cls.__dataclass_fields__.keys():
            return None
        match stored["last"]:
            case [int(version), int(index)]:
                return cls(**stored | {"last": Position(version, index)})
            case _:
                return None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a place; the very beginning if there is none, or none that can be read."""
        return cls.from_json(read_json(path)) or cls()


class Reception:
    """Takes what one subscriber receives, serially.

    Args:
        path: Where its place is kept.
        clock: Tells seconds, for ``ReceptionPlace.seconds`` and to save not too often.
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
        """The change that came last since this program was started."""
        return self._newest

    def take(self, changes: Sequence[Change], cursor: str) -> None:
        """Counts changes in, and saves the place if that was not done lately.

        Args:
            changes: One or more, in the order in which they came, with bodies.
            cursor: Where to resume behind them.
        """
        place, add = self.place, self._digest.add
        if self._began is None:
            self._began = self._clock() - place.seconds
        last = place.last
        change: Change | None = None
        for change in changes:
            position = Position(change.version, change.index)
            if position <= last:
                place.misplaced += 1
            else:
                last = position
            add((change.key or "").encode("utf-8", "surrogateescape"), change.body_bytes or b"")
        self._newest = change
        digest = self._digest
        place.last, place.count = last, digest.count
        place.ordered, place.content = digest.ordered, digest.content
        place.seconds = self._clock() - self._began
        self.reach(cursor)

    def reach(self, cursor: str) -> None:
        """Moves the place on to ``cursor``, before which nothing is missing."""
        self.place.cursor = cursor
        if self._clock() - self._saved >= _SAVE_EVERY:
            self.save()

    def observe(self, state: str) -> None:
        """Counts turns between LIVE and RESYNC, as the log or the server tells them.

        A program that was stopped in RESYNC may be LIVE before anybody has looked when it is started again; that is a
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
        """LIVE or RESYNC, as last told; None before that."""
        return self._state

    def save(self) -> None:
        """Writes the place down."""
        replace_json(self._path, self.place.to_json())
        self._saved = self._clock()

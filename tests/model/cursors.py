"""The subscriptions of a world: cursors of the real ring, with a model of what stands beside each."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from publishers.fanout.bench import RingCursor
from publishers.fanout.chunk import DeliveryKind
from publishers.fanout.state import Phase, PhaseAction
from publishers.views.view import View

__all__ = ["KIND", "Cursor", "Owner", "Piece", "Thread"]

KIND: Final = DeliveryKind(View(), True, 9, 9, False)


class Piece:
    """The one change of a version."""

    nbytes = weight = 1
    indices = (0,)

    def __init__(self, version: int) -> None:
        self.version = version
        self.block = self

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True)
class Thread:
    """Where a drain or a slice is: its next step, what the table has left it to do, and what it has read."""

    at: str = ""
    upto: int = 0
    todo: tuple[PhaseAction, ...] = ()


class Cursor(RingCursor):
    """The cursor of one subscription, and what stands beside it."""

    __slots__ = (
        "acts",
        "demand",
        "drain",
        "expects",
        "filled",
        "halted",
        "pending",
        "slices",
        "sought",
        "world",
    )

    @property
    def more(self) -> bool:
        return self.next.version <= self.world.visible

    @property
    def idle(self) -> bool:
        """As `publishers.fanout.cursor.Cursor.idle`."""
        return (self.bench or self).place == self.world.ring.end and self.live

    def poll(self, max_events: int, max_bytes: int) -> None:
        """Moves over what does not match."""
        self.world.ring.poll(self, self.world.visible, max_events, max_bytes)

    @property
    def reading(self) -> Thread | None:
        """The slice that has the cursor; those that have given it back may still have something to do."""
        return next((one for one in self.slices if one.at != "over"), None)


class Owner:
    """The subscription of a cursor, and its drain, as its group sees them, and whoever asks for its progress."""

    _service = SimpleNamespace(head=None)
    position = state = None

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.drain = self

    @property
    def demand(self) -> int:
        return self.cursor.demand

    @property
    def queued(self) -> int:
        return len(self.cursor.filled)

    def lend(self, events: int) -> "Owner | None":
        """Its drain lends its flag, as ChangeSubscription does."""
        one = self.cursor
        idle = not (one.drain.at or one.halted or one.sought)
        if not idle or one.phase is not Phase.LIVE or events > one.demand:
            return None
        one.drain = Thread("lent")
        return self

    def release_hold(self, _: RingCursor | None = None) -> None:
        self.cursor.drain = Thread()

    # What ChangeSubscription.checkpoint looks at.

    @property
    def wants(self) -> bool:
        return self.demand > 0 and not self.cursor.held

    @property
    def _filled(self) -> tuple[int, ...] | None:
        return self.cursor.filled or None

    def try_hold(self) -> bool:
        """Takes the flag of its drain as Strand.try_hold does."""
        one = self.cursor
        if one.drain.at == "lent" and one.world.ring.recall(one):
            self.release_hold()
        if one.drain.at or one.pending:
            return False
        one.drain = Thread("held")
        return True

    def signal(self) -> None:
        self.cursor.pending = True

    def _run(self, signal: Callable[[], None]) -> None:
        signal()

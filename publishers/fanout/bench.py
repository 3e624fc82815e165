"""The entries of a ring (single cursors, and benches of cursors of one group), and the round that serves a group.

Cursors of one group that keep up receive the same batches again and again. So they share a bench: their drains lend their
flags to the group, which keeps them, and a round moves the bench once and then calls the subscribers one after the other.
Every wake-up except a request, from any thread, recalls a flag: the cursor leaves the bench, and its drain runs by itself.
If a round is serving the bench at that moment, the drain runs after the round.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from flow.contracts import UNBOUNDED
from publishers.fanout.state import Phase
from publishers.model.position import Position

if TYPE_CHECKING:
    from flow.drain import Drain
    from publishers.fanout.chunk import Ahead
    from publishers.wal import Location

__all__ = ["TURN", "Bench", "RingCursor", "Round"]

TURN: Final = 64
"""Most cursors of a group that join a bench at a time, and that one turn of an event loop serves."""

# Access to an enum member by its name costs a call before Python 3.12; every delivery compares with these.
_LIVE: Final = Phase.LIVE
_PAUSED: Final = Phase.PAUSED


class RingCursor:
    """A cursor as its ring sees it. While the cursor stands in the ring, its fields change under the ring's lock only.

    Attributes:
        next: The next position to read. For a cursor on a bench, the larger of this and the bench's ``next`` counts.
        phase: The state of its subscription; changed by the table of states, always under the ring's lock.
        held: Whether an operator has paused it.
        place: The place of the first chunk that it has not taken, while the ring keeps that chunk for the cursor; else None.
            The value has no meaning for a cursor on a bench, except that it is not None.
        location: Where in the WAL ``next`` is; None if that is not known.
        owner: Its subscription.
        group: The delivery group with which it may be served.
        kind: What it must share with other cursors to join one bench (`DeliveryKind`); None if it joins none.
        bench: The bench to which its drain's flag is lent, until the flag is recalled.
    """

    __slots__ = ("bench", "group", "held", "kind", "location", "next", "owner", "phase", "place")

    def __init__(self, start: Position, owner: Any = None, group: Any = None, kind: Any = None) -> None:
        self.next: Position = start
        self.phase: Phase = Phase.RESYNC
        self.held: bool = False
        self.place: int | None = None
        self.location: Location | None = None
        self.owner: Any = owner
        self.group: Any = group
        self.kind: Any = kind
        self.bench: Bench | None = None

    @property
    def live(self) -> bool:
        """Whether the ring serves this cursor, or would if it were not paused."""
        phase = self.phase  # read once: without the lock, it may change in between
        return phase is _LIVE or (phase is _PAUSED and self.place is not None)

    @property
    def more(self) -> bool:
        """Whether there are visible versions that it has not read."""
        return True

    @property
    def idle(self) -> bool:
        """Whether the ring serves it and it has taken every linked chunk; needs no lock."""
        return False

    def recall(self) -> None:
        """Ends the loan of its drain's flag to its group. If a round is delivering to its bench, the round releases the flag."""


class Bench(RingCursor):
    """Cursors of one group and kind at one place, whose drains have lent their flags.

    Attributes:
        members: The cursors, each with its drain.
        credit: A lower bound of the demand of every member.
        serving: The round that delivers to the members now; None if there is none.
    """

    __slots__ = ("_again", "_leaving", "_lock", "credit", "members", "serving")

    def __init__(self, group: Any, kind: Any, place: int) -> None:
        super().__init__(Position(0), None, group, kind)
        self.place: int | None = place
        self.members: dict[RingCursor, Drain[Any]] = {}
        self.credit: int = UNBOUNDED
        self.serving: Round | None = None
        # Guards the next two fields and the end of serving; acquired inside the ring's lock.
        self._lock = threading.Lock()
        self._again = False
        self._leaving: list[RingCursor] = []

    def free_at(self, place: int) -> bool:
        """Whether a round may serve it at ``place``. If another round is serving it, that round is asked to look again."""
        with self._lock:
            self._again = self.serving is not None
            return not self._again and self.place == place

    def leave(self, cursor: RingCursor) -> bool:
        """Notes a recalled flag if a round is serving the bench; returns whether that round will release the flag."""
        with self._lock:
            if self.serving is not None:
                self._leaving.append(cursor)
            return self.serving is not None

    def served(self, group_round: "Round") -> None:
        """Ends a round and releases the flags of members that left meanwhile.

        After an interrupt it may be called again, and continues where it was interrupted.
        """
        with self._lock:
            if self.serving is group_round:
                group_round.again, self._again = self._again, False
                group_round.leaving, self._leaving = self._leaving, []
                self.serving = None
        try:
            while group_round.leaving:
                cursor = group_round.leaving[-1]
                cursor.owner.drain.release_hold(cursor)
                group_round.leaving.pop()
        except BaseException:
            # An interrupt, maybe from a subscriber's turn: the other flags must be released all the same.
            self.served(group_round)
            raise


class Round:
    """The progress of one pass over a group: which cursors wait, and what the next of them receive.

    The thread that runs the round changes it, through `Ring.take`.

    Attributes:
        place: The round first collects the group's cursors at this place or a later one; None once that is done.
        most: Most cursors served at a time.
        waiting: The cursors and benches collected and not served yet, by place and kind.
        ahead: The chunks taken last; None if there were none.
        bench: The bench to serve with ``ahead``.
        lent: The drains of its members that were not served yet. A member that leaves the bench meanwhile is still served.
        drain_count: Number of these drains at first.
        leaving: Cursors whose flags are released at the end of the round.
        again: Whether another round came to the bench meanwhile.
        left: The cursors that could not take part.
        follows: Version of the chunk before which the bench stands now; None if no such chunk is linked.
    """

    __slots__ = (
        "again",
        "ahead",
        "bench",
        "drain_count",
        "follows",
        "leaving",
        "left",
        "lent",
        "most",
        "place",
        "waiting",
    )

    def __init__(self, place: int, most: int = TURN) -> None:
        self.place: int | None = place
        self.most: int = most
        self.waiting: list[tuple[int, Any, list[RingCursor], list[Bench]]] = []
        self.ahead: Ahead | None = None
        self.bench: Bench | None = None
        self.lent: Iterator[Drain[Any]] = iter(())
        self.drain_count: int = 0
        self.left: list[RingCursor] = []
        self.leaving: list[RingCursor] = []
        self.again: bool = False
        self.follows: int | None = None

    def clear(self) -> None:
        """Resets the results of the last `Ring.take`, before the next one."""
        self.bench, self.drain_count, self.left, self.again = None, 0, [], False

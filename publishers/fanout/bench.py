"""What stands in a ring: a cursor for itself, or some of one group on a bench; and who of a group is served in a round.

Those of a group that have kept up are given the same again and again. So they stand on benches: their drains have lent their
flags to the group, which keeps them, and a round moves the bench and calls its members one after the other. Any wake-up but
a request, from any thread, recalls a flag: the cursor leaves the bench, and its drain runs by itself; if the bench is being
served just then, when that is over.
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
"""As many cursors of a group are found a place on a bench at a time, and served in one turn of an event loop."""

# A member of an enum by its name costs a call before Python 3.12; these are asked for with every delivery.
_LIVE: Final = Phase.LIVE
_PAUSED: Final = Phase.PAUSED


class RingCursor:
    """What a ring knows of a cursor; every field is changed under the ring's lock only, while the cursor is in it.

    Attributes:
        next: The next position to read; of one on a bench, at least that of the bench.
        phase: The state of its subscription; changed under the ring's lock only, by the table of states.
        held: Whether an operator has paused it.
        place: The number of the first chunk that it has not taken, while the ring keeps it for the cursor; else None. Of one
            on a bench, any.
        location: Where in the WAL ``next`` is, as far as it is known.
        owner: Its subscription.
        group: The cursors with which it may be served together.
        kind: With which of these it may stand on one bench (`Likeness`); None if it never may.
        bench: The bench for which its flag is lent, until that is recalled.
    """

    __slots__ = ("bench", "group", "held", "kind", "location", "next", "owner", "phase", "place")

    def __init__(self, start: Position, owner: Any = None, group: Any = None, kind: Any = None) -> None:
        self.next = start
        self.phase = Phase.RESYNC
        self.held = False
        self.place: int | None = None
        self.location: Location | None = None
        self.owner = owner
        self.group = group
        self.kind = kind
        self.bench: Bench | None = None

    @property
    def live(self) -> bool:
        """Whether the ring serves this cursor, or would if it were not paused."""
        phase = self.phase  # once: readers without the lock may meet a change
        return phase is _LIVE or (phase is _PAUSED and self.place is not None)

    @property
    def more(self) -> bool:
        """Whether something is visible that it has not read."""
        return True

    @property
    def idle(self) -> bool:
        """Whether the ring serves it, and it has taken all that was linked; may be asked without the lock."""
        return False

    def recall(self) -> None:
        """Has the flag of its drain back that its group keeps; while that delivers, it gives it back itself thereafter."""


class Bench(RingCursor):
    """Cursors of one group and kind that stand at one place, and the drains that have lent it their flags.

    Attributes:
        members: The cursors, with their drains.
        credit: What each of them has demand for at least.
        serving: The round that delivers to them just now, if there is one.
    """

    __slots__ = ("_again", "_leaving", "_lock", "credit", "members", "serving")

    def __init__(self, group: Any, kind: Any, place: int) -> None:
        super().__init__(Position(0), None, group, kind)
        self.place = place
        self.members: dict[RingCursor, Drain[Any]] = {}
        self.credit = UNBOUNDED
        self.serving: Round | None = None
        self._lock = threading.Lock()  # of the next two, and of the end of serving; taken inside the ring's
        self._again = False
        self._leaving: list[RingCursor] = []

    def free_at(self, place: int) -> bool:
        """Whether a round may serve it there; if one does already, that round looks for more when it is done."""
        with self._lock:
            self._again = self.serving is not None
            return not self._again and self.place == place

    def leave(self, cursor: RingCursor) -> bool:
        """Notes that a flag was recalled, if a round is to give it back; answers whether that is so."""
        with self._lock:
            if self.serving is not None:
                self._leaving.append(cursor)
            return self.serving is not None

    def served(self, some: "Round") -> None:
        """Ends a round: those that left meanwhile get their flags back. Once more, it only goes on where it was interrupted."""
        with self._lock:
            if self.serving is some:
                some.again, self._again = self._again, False
                some.leaving, self._leaving = self._leaving, []
                self.serving = None
        try:
            while some.leaving:
                cursor = some.leaving[-1]
                cursor.owner.drain.release_hold(cursor)
                some.leaving.pop()
        except BaseException:
            self.served(some)  # an interrupt, maybe in a turn that was due: nobody else may wait for its flag
            raise


class Round:
    """Who of a group is served with what lies ahead, some at a time; the holder of the round changes it, by `Ring.take`.

    Attributes:
        place: Who stands there or behind it is to be found first; None if that was done.
        most: As many may be served at a time.
        waiting: Who was found, and has not had its turn: cursors and benches, by place and kind.
        ahead: What was taken last; None if that is nothing.
        bench: Who is to be served with it.
        lent: The drains of those on it that were not served yet; who leaves the bench meanwhile is served all the same.
        took: How many they were.
        leaving: Whose flags are to be given back after that.
        again: Whether another round came meanwhile.
        left: The cursors that could not take part.
        follows: Version of the chunk before which the others stand now, if one is linked.
    """

    __slots__ = (
        "again",
        "ahead",
        "bench",
        "follows",
        "leaving",
        "left",
        "lent",
        "most",
        "place",
        "took",
        "waiting",
    )

    def __init__(self, place: int, most: int = TURN) -> None:
        self.place: int | None = place
        self.most = most
        self.waiting: list[tuple[int, Any, list[RingCursor], list[Bench]]] = []
        self.ahead: Ahead | None = None
        self.bench: Bench | None = None
        self.lent: Iterator[Drain[Any]] = iter(())
        self.took = 0
        self.left: list[RingCursor] = []
        self.leaving: list[RingCursor] = []
        self.again = False
        self.follows: int | None = None

    def clear(self) -> None:
        """Forgets who was served, before others are."""
        self.bench, self.took, self.left, self.again = None, 0, [], False

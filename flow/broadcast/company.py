"""The subscribers that have kept up, served together.

Whoever stands at the end of the ring, waits for nothing but the next element and runs on `flow.INLINE` is given a seat
here. A round then takes what was written once, moves everybody by one assignment, and calls one ``on_next`` after the
other: no lock, no cursor and no drain for each. The smallest granted position of all, the *horizon*, stands for their
demands.

Rules
    While a subscriber is seated, the company holds the flag of its drain, so its signals stay serial (rule 1.3); one
    thread at a time holds the company. A request only adds to the demand. A cancel or a failure asks for the flag: at
    once if no round runs, else the round passes by that subscriber from then on, and lets go of it at its end.
    Who lacks demand, or is not as patient as the round is slow, goes back to its own drain, which knows its policy.

Contexts
    A round runs in one copy of the context that its members have in common; who has another is entered into its own for
    each call. If a subscriber changes the common copy, this is noticed after that round, and from then on everybody is
    entered into its own. Nobody is seated before its first element, so who sets a variable at once is known already.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from flow.broadcast.policy import Lag
from flow.contracts import UNBOUNDED
from flow.drain import Failed

if TYPE_CHECKING:
    from flow.broadcast.cursor import Cursor
    from flow.broadcast.ring import Ring

__all__ = ["Company", "release"]

T = TypeVar("T")

_ROUND: Final = 256  # elements taken ahead of their delivery, at most; as in a drain
_ABSENT: Final = object()

Call = Callable[[Any], object]


class Company(Generic[T]):
    """Those who stand together.

    Args:
        ring: Guards everything here by its lock, except for what only the holder of `busy` touches.

    Attributes:
        place: The sequence that all members take next.
        busy: Whether somebody runs a round.
        gates: Whether a BLOCK subscriber is among them.
        gated: Whether somebody noted that they are in the way of a writer.
        members: Their cursors, in two groups: those who take elements, then those who take batches.
    """

    __slots__ = (
        "_batched",
        "_calls",
        "_common",
        "_conflates",
        "_context",
        "_disturbed",
        "_horizon",
        "_passing",
        "_ring",
        "_singles",
        "_strict",
        "busy",
        "gated",
        "gates",
        "members",
        "place",
    )

    def __init__(self, ring: "Ring[T]") -> None:
        self._ring = ring
        self.place = 0
        self.busy = False
        self.gates = False
        self.gated = False
        self.members: tuple[Cursor[T], ...] = ()
        # on_next of each who takes elements, on_next_batch of each other. A round iterates over them, so they never change
        # their length; who is halted meanwhile is replaced by nothing.
        self._calls: list[Call] = []
        self._batched: list[Call] = []
        self._singles = 0  # how many of the members take elements
        self._horizon = (
            0  # nobody may be given this sequence, or a later one, before it was asked for its demand
        )
        self._disturbed = False  # somebody was cancelled, failed, or the stream has ended
        self._conflates = False  # whether there is a LATEST subscriber
        self._strict = False
        self._common = contextvars.Context()  # as the members brought it
        self._context = contextvars.Context()
        self._passing: BaseException | None = None

    # The caller holds the ring's lock.

    def pass_on(self, count: int) -> bool:
        """Take elements that are about to be written, past the ring, if all subscribers are here and want them.

        The caller, who owns the company then, has to `serve` them.
        """
        ring = self._ring
        end = ring.end
        to = end + count
        if self.busy or to > self._horizon or ring.loose or ring.replay or self.place != end:
            return False
        if count > 1 and self._conflates:
            return False
        self.busy = True
        ring.end = ring.start = self.place = to
        return True

    def claim(self) -> bool:
        """Own the company, to `serve` it, if there is one and nobody does."""
        if self.busy or not self.members or self.place >= self._ring.end:
            return False
        self.busy = True
        return True

    def admit(self) -> None:
        """Give a seat to each of the others that has kept up."""
        ring = self._ring
        if self.busy or ring.outcome is not None or (self.members and self.place != ring.end):
            return
        welcome = [cursor for cursor in ring.loose if cursor.sit()]
        if not welcome:
            return
        self.place = ring.end
        seated = set(welcome)
        ring.loose = tuple(each for each in ring.loose if each not in seated)
        if not self.members:
            self._begin(welcome[0].context)
        self._arrange((*self.members, *welcome))
        self._look_ahead()

    def stalled(self) -> None:
        """Note that the policy of a member has changed."""
        self.gates = any(cursor.lag is Lag.BLOCK for cursor in self.members)

    def attend(self, cursor: "Cursor[T]") -> bool:
        """Let a member that is halted go; false if a round does so, at its end, and passes it by until then."""
        if not self.busy:
            self._dismiss([cursor])
            return True
        self._disturbed = True
        if not isinstance(self._ring.outcome, Failed):  # else all are passed by
            at = self.members.index(cursor)
            if at < self._singles:
                self._calls[at] = _nothing
            else:
                self._batched[at - self._singles] = _nothing
        return False

    def dissolve(self) -> Sequence["Cursor[T]"]:
        """Let everybody go, since the stream has ended; a round does so at its end. Answers whom to `release`."""
        if self.busy:
            self._disturbed = True
            if isinstance(self._ring.outcome, Failed):
                self._calls[:] = [_nothing] * len(self._calls)
                self._batched[:] = [_nothing] * len(self._batched)
            return ()
        members = self.members
        self._dismiss(members)
        return members

    # Without the lock, by the owner.

    def serve(self, items: tuple[T, ...] = ()) -> None:
        """Deliver to everybody, and let go of those who cannot stay; then nobody owns the company.

        Args:
            items: What `pass_on` took; then what waits in the ring.

        Raises:
            BaseException: What a subscriber raised that no subscription may swallow, after all were served.
        """
        try:
            if items:
                self._give(items)
                ring = self._ring
                with ring.lock:
                    if self.place == ring.end and not self._disturbed:
                        self.busy = False
                        return
            while (left := self._next_round()) is True:
                pass
        except BaseException:
            # An interrupt, of a subscriber or of this thread outside of any: each goes on by itself.
            self._break_up()
            raise
        if left:
            raise left

    def _give(self, items: tuple[T, ...]) -> None:
        context = self._context
        if self._calls:
            if len(items) == 1:
                context.run(self._give_one, items[0])
            else:
                context.run(self._give_some, items)
        if self._batched:
            context.run(self._give_batch, items)
        try:
            if self._strict or context == self._common:
                return
        except Exception:  # noqa: BLE001, S110 - some value cannot be compared: so it is another one
            pass
        self._separate()

    def _next_round(self) -> bool | BaseException:
        """Go on: false after the last round, or what has to be raised then."""
        ring = self._ring
        with ring.lock:
            gate = ring.gate
            leaving = self._sort_out()
            upto = min(ring.end, self._horizon, self.place + _ROUND) if self.members else self.place
            items = ring.read(self.place, upto - self.place)
            if items:
                self._advance(upto)
            room = ring.gate > gate
            if not items and not leaving:
                passing, self._passing = self._passing, None
                self.busy = False
                return passing or False
        if room:
            ring.on_room()
        self._passing = release(leaving) or self._passing
        if items:
            self._give(tuple(items))
        return True

    def _give_one(self, item: T) -> None:
        left = iter(self._calls)
        while True:
            try:
                for call in left:
                    call(item)
                break
            except BaseException as error:  # noqa: BLE001 - harms nobody but its subscriber; serve raises interrupts
                self._fault(error, self._cursor_before(left))
        # A traceback that somebody keeps must not keep subscribers through this frame (rule 3.13).
        del left, item
        call = _nothing

    def _give_batch(self, items: tuple[T, ...]) -> None:
        left = iter(self._batched)
        while True:
            try:
                for call in left:
                    call(items)
                break
            except BaseException as error:  # noqa: BLE001 - as above
                self._fault(error, self._cursor_before(left, batched=True))
        del left, items
        call = _nothing

    def _give_some(self, items: tuple[T, ...]) -> None:
        left = iter(self._calls)
        while True:
            try:
                for call in left:
                    for item in items:
                        if self._disturbed and self._cursor_before(left).halted:
                            break
                        call(item)
                break
            except BaseException as error:  # noqa: BLE001 - as above
                self._fault(error, self._cursor_before(left))
        item = None  # type: ignore[assignment]  # forgotten
        del left, items
        call = _nothing

    def _cursor_before(self, left: Iterable[Call], *, batched: bool = False) -> "Cursor[T]":
        """Whose call an iterator has just given."""
        return self.members[(len(self.members) if batched else self._singles) - length_hint(left) - 1]

    def _fault(self, error: BaseException, cursor: "Cursor[T]") -> None:
        """End the subscription of who raised (rule 2.13)."""
        self._disturbed = True
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            self._passing = error
        cursor.fault(error if isinstance(error, Exception) else None)

    def _separate(self) -> None:
        """Enter everybody into its own context from now on, since the common copy was changed."""
        with self._ring.lock:
            self._strict = True
            self._context = contextvars.Context()
            self._arrange(self.members)

    def _break_up(self) -> None:
        """Leave everybody to its own drain, if the company is still owned."""
        with self._ring.lock:
            if not self.busy:
                return
            members = self.members
            self._dismiss(members)
            self._disturbed = self.busy = False
            self._passing = None
        release(members)

    # Under the lock, by the owner or while there is none.

    def _begin(self, context: contextvars.Context) -> None:
        self._common = context.copy()
        self._context = context.copy()

    def _arrange(self, members: Iterable["Cursor[T]"]) -> None:
        singles: list[Cursor[T]] = []
        batched: list[Cursor[T]] = []
        for cursor in members:
            (batched if cursor.batches else singles).append(cursor)
        self._calls = list(map(self._call, singles))
        self._batched = list(map(self._call, batched))
        self._singles = len(singles)
        self.members = (*singles, *batched)
        self._conflates = any(cursor.lag is Lag.LATEST for cursor in self.members)
        self.stalled()

    def _call(self, cursor: "Cursor[T]") -> Call:
        if self._strict or not alike(cursor.context, self._common):
            return partial(cursor.context.run, cursor.call)  # type: ignore[call-arg]  # it is given when called
        return cursor.call

    def _look_ahead(self) -> list["Cursor[T]"]:
        """Find the horizon; answer those who have no demand."""
        lacking = []
        horizon = 2 * UNBOUNDED if self.members else 0
        for cursor in self.members:
            granted = cursor.granted
            horizon = min(horizon, granted)
            if granted <= self.place:
                lacking.append(cursor)
        self._horizon = horizon
        return lacking

    def _sort_out(self) -> list["Cursor[T]"]:
        """Let go of those who cannot be served with the others."""
        ring = self._ring
        leaving = self.members
        self._disturbed = False
        if ring.outcome is None and self.place >= ring.start:
            conflates = ring.end - self.place > 1
            leaving = tuple(
                cursor for cursor in leaving if cursor.halted or (conflates and cursor.lag is Lag.LATEST)
            )
        self._dismiss(leaving)
        if self._horizon <= self.place:
            lacking = self._look_ahead()
            if lacking and ring.end > self.place:
                self._dismiss(lacking)
                self._look_ahead()
                return [*leaving, *lacking]
        return list(leaving)

    def _dismiss(self, leaving: Sequence["Cursor[T]"]) -> None:
        if not leaving:
            return
        ring = self._ring
        for cursor in leaving:
            cursor.leave(self.place)
        ring.loose = (*ring.loose, *leaving)
        self._arrange([cursor for cursor in self.members if cursor.seated])
        if not self.members:
            self._horizon = 0
        ring.trim()

    def _advance(self, to: int) -> None:
        if self.gated:
            self.gated = False
            for cursor in self.members:
                cursor.count_blocked()
        self.place = to
        self._ring.trim()


def alike(context: contextvars.Context, other: contextvars.Context) -> bool:
    """Whether two contexts hold the very same values; that equal ones are others matters to who changes them."""
    return len(context) == len(other) and all(
        other.get(variable, _ABSENT) is value for variable, value in context.items()
    )


def release(leaving: Iterable["Cursor[T]"]) -> BaseException | None:
    """Give their flags back to the drains of those who were dismissed; answers what passed through one of them."""
    passing: BaseException | None = None
    for cursor in leaving:
        try:
            cursor.stand()
        except BaseException as interrupt:  # noqa: BLE001 - the others must not wait for their flags; the caller raises it
            passing = interrupt
    return passing


def _nothing(_item: object, /) -> None: ...

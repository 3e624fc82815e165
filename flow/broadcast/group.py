"""The subscriptions that have kept up, served together: one ``on_next`` after the other, no lock and no drain for each.

A round runs in one copy of the context that the members have in common; a member with another context is entered into its
own for each call. If a subscriber changes the common copy, this is noticed after that round, and from then on each member
is entered into its own.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from functools import partial
from operator import length_hint
from typing import Any, Final, Generic, TypeVar

from flow.broadcast.policy import Lag
from flow.broadcast.subscription import BroadcastSubscription

__all__ = ["SyncedGroup"]

T = TypeVar("T")

_ABSENT: Final = object()

Call = Callable[[Any], object]


class SyncedGroup(Generic[T]):
    """The members, and what to call for each.

    The thread that owns the group calls `give`; everything else is done under the lock of the hub.

    Attributes:
        gates: Whether a BLOCK subscription is among them.
        conflates: Whether a LATEST subscription is among them.
        disturbed: Whether a member has to leave, or `arrange` to be called, before the next round.
        passing: What a subscriber raised that no subscription may swallow.
    """

    def __init__(self) -> None:
        self.members: tuple[BroadcastSubscription[T], ...] = ()
        self.gates = False
        self.conflates = False
        self.disturbed = False
        self.passing: BaseException | None = None
        self._singles: list[BroadcastSubscription[T]] = []
        self._batched: list[BroadcastSubscription[T]] = []
        # What to call for each of these; neither changes its length while a round iterates over it.
        self._calls: list[Call] = []
        self._batch_calls: list[Call] = []
        self._separate = False
        self._common = contextvars.Context()  # as the members brought it
        self._context = contextvars.Context()

    def arrange(self, members: Sequence[BroadcastSubscription[T]]) -> None:
        """Replace the members."""
        if members and not self.members:
            self._common, self._context = members[0].context.copy(), members[0].context.copy()
        self.members = tuple(members)
        self._singles = [each for each in members if not each.batches]
        self._batched = [each for each in members if each.batches]
        self._calls = [self._route(each) for each in self._singles]
        self._batch_calls = [self._route(each) for each in self._batched]
        for rank, each in (*enumerate(self._singles), *enumerate(self._batched)):
            each.rank = rank
        self.look_at_policies()
        self.disturbed = False

    def look_at_policies(self) -> None:
        """Note which policies the members have."""
        policies = {each.lag for each in self.members}
        self.gates = Lag.BLOCK in policies
        self.conflates = Lag.LATEST in policies

    def silence(self, member: BroadcastSubscription[T]) -> None:
        """Give nothing more to a member, which leaves after the round."""
        (self._batch_calls if member.batches else self._calls)[member.rank] = _nothing

    def give(self, items: tuple[T, ...]) -> None:
        """Deliver to all members; what one raises ends its subscription only (rule 2.13)."""
        context = self._context
        if self._calls:
            if len(items) == 1:
                context.run(self._give_one, self._calls, items[0])
            else:
                context.run(self._give_many, items)
        if self._batch_calls:
            context.run(self._give_one, self._batch_calls, items)
        try:
            if self._separate or context == self._common:
                return
        except Exception:  # noqa: BLE001, S110 - some value cannot be compared: so it is another one
            pass
        self._separate = self.disturbed = True
        self._context = contextvars.Context()  # what was changed is not kept

    def _give_one(self, calls: list[Call], item: T | tuple[T, ...]) -> None:
        left = iter(calls)
        while True:
            try:
                for call in left:
                    call(item)
                break
            except BaseException as error:  # noqa: BLE001 - harms its subscriber only; the hub raises interrupts
                members = self._singles if calls is self._calls else self._batched
                self._fault(error, members[-1 - length_hint(left)])
        # A traceback that is kept must not keep subscribers through this frame (rule 3.13).
        del left, item, calls
        call = members = None  # type: ignore[assignment]  # forgotten

    def _give_many(self, items: tuple[T, ...]) -> None:
        item = None
        for member, call in zip(self._singles, self._calls, strict=True):
            try:
                for item in items:
                    if self.disturbed and member.halted:
                        break
                    call(item)
            except BaseException as error:  # noqa: BLE001 - as above
                self._fault(error, member)
        del items, item, member, call

    def _fault(self, error: BaseException, member: BroadcastSubscription[T]) -> None:
        self.disturbed = True
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            self.passing = error
        member.fault(error)

    def _route(self, member: BroadcastSubscription[T]) -> Call:
        if self._separate or not _alike(member.context, self._common):
            return partial(member.context.run, member.call)  # type: ignore[call-arg]  # it is given when called
        return member.call


def _alike(context: contextvars.Context, other: contextvars.Context) -> bool:
    """Whether two contexts hold the very same values; that equal ones are others matters if they are changed."""
    return len(context) == len(other) and all(
        other.get(variable, _ABSENT) is value for variable, value in context.items()
    )


def _nothing(_item: object, /) -> None: ...

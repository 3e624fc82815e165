"""The subscriptions that have kept up, served together: one ``on_next`` after the other, without a lock or a drain turn for each.

A round runs in one copy of the context variables that most members share. A member with other values is called in its own
context. If a subscriber changes the shared copy, the group notices after that round, and from then on calls each member in
its own context.
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
    """The members, and the method to call for each.

    The thread that owns the group calls `give`; all other methods are called under the lock of the hub.

    Attributes:
        members: The subscriptions of the group.
        gates: Whether a BLOCK subscription is among the members.
        conflates: Whether a LATEST subscription is among the members.
        disturbed: Whether a member has to leave, or `arrange` to be called, before the next round.
        passing: An interrupt that a subscriber raised, such as KeyboardInterrupt, which the hub raises after the round.
    """

    def __init__(self) -> None:
        self.members: tuple[BroadcastSubscription[T], ...] = ()
        self.gates: bool = False
        self.conflates: bool = False
        self.disturbed: bool = False
        self.passing: BaseException | None = None
        self._singles: list[BroadcastSubscription[T]] = []
        self._batched: list[BroadcastSubscription[T]] = []
        # The method to call for each of these; the lists keep their lengths while a round iterates over them.
        self._calls: list[Call] = []
        self._batch_calls: list[Call] = []
        self._separate = False
        self._common = contextvars.Context()  # the values with which the members began; never changed
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
        """Update `gates` and `conflates` from the policies of the members."""
        policies = {each.lag for each in self.members}
        self.gates = Lag.BLOCK in policies
        self.conflates = Lag.LATEST in policies

    def silence(self, member: BroadcastSubscription[T]) -> None:
        """Deliver nothing more to a member, which leaves after the round."""
        (self._batch_calls if member.batches else self._calls)[member.rank] = _nothing

    def give(self, items: tuple[T, ...]) -> None:
        """Deliver to all members; a member that raises ends its own subscription only (rule 2.13)."""
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
        except Exception:  # noqa: BLE001, S110 - a value that cannot be compared counts as changed
            pass
        self._separate = self.disturbed = True
        self._context = contextvars.Context()  # drops the changed values

    def _give_one(self, calls: list[Call], item: T | tuple[T, ...]) -> None:
        left = iter(calls)
        while True:
            try:
                for call in left:
                    call(item)
                break
            except BaseException as error:  # noqa: BLE001 - ends its own subscription only; the hub raises interrupts
                members = self._singles if calls is self._calls else self._batched
                self._fault(error, members[-1 - length_hint(left)])
        # A traceback that is kept must not keep subscribers through this frame (rule 3.13).
        del left, item, calls
        call = members = None  # type: ignore[assignment]  # drops the references

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
            return partial(member.context.run, member.call)  # type: ignore[call-arg]  # the element comes with the call
        return member.call


def _alike(context: contextvars.Context, other: contextvars.Context) -> bool:
    """Whether two contexts hold identical values: equal but distinct values differ once one of them is modified."""
    return len(context) == len(other) and all(
        other.get(variable, _ABSENT) is value for variable, value in context.items()
    )


def _nothing(_item: object, /) -> None: ...

"""Carries out the effects of one connection's protocol machine that concern consumers of groups."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from publishers.groups import GroupDelivery
from publishers.model.position import Position
from publishers.views.view import Integers
from transports.access.access import Access
from transports.access.grant import LogAction
from transports.access.principal import Principal
from transports.codec.groups import JoinRequest, MemberReply, deliveries_json, pending_json
from transports.operations.calls import AckCall, ClaimCall, ConsumerCall, PendingCall
from transports.problems import describe
from transports.protocol.connection import Effect
from transports.protocol.consumers import CallGroup, ConsumerEntry, DemandDeliveries, JoinGroup
from transports.protocol.server import ServerSession
from transports.server.held_members import HeldMembers, MemberSubscriber
from transports.server.member_leases import HeldMember, MemberLease, MemberLeases
from transports.server.outbound import Lane

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ConnectionGroups"]


class _Consumer(MemberSubscriber[ConsumerEntry]):
    """A consumer of the connection, with its calls.

    Attributes:
        calls: The calls that wait, in order.
        busy: Whether a thread is carrying out earlier calls.
    """

    def __init__(
        self,
        members: "ConnectionGroups",
        entry: ConsumerEntry,
        request: JoinRequest,
        lane: Lane,
        name: str,
        log: "ChangeLog",
    ) -> None:
        super().__init__(members, entry, request, lane, name, log)
        self.calls: deque[CallGroup] = deque()
        self.busy = False


class ConnectionGroups(HeldMembers[_Consumer]):
    """The group consumers of a connection of ``penstock.v1+json``.

    Args:
        session: The protocol machine of the connection.
        logs: The logs of the server, by name.
        access: The access rights of principals.
        leases: The consumer leases of the server.
        perform: Carries out the effects that the machine returns.
        **serving: As for `HeldMembers`.
    """

    def __init__(
        self,
        session: ServerSession,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        leases: MemberLeases,
        *,
        perform: Callable[[Iterable[Effect]], object],
        **serving: Any,
    ) -> None:
        super().__init__(leases, **serving)
        self._session = session
        self._logs = logs
        self._access = access
        self._perform = perform

    def do(
        self,
        effect: JoinGroup | CallGroup | DemandDeliveries,
        principal: Principal,
        *,
        lost: Callable[[], bool],
    ) -> None:
        """Carries out an effect of the machine.

        Args:
            effect: The effect.
            principal: The principal of the client.
            lost: Returns whether the connection is lost.
        """
        if isinstance(effect, JoinGroup):
            entry, request = effect.entry, effect.request
            try:
                name, log, grant = self._access.find(self._logs, request.log, principal, LogAction.CONSUME)
                grant.check_group(request.group)
            except Exception as error:  # noqa: BLE001 - any error concerns only this consumer
                self._perform(self._session.failed(entry, describe(error)))
                return
            self.join(_Consumer(self, entry, request, self._lane(), name, log), principal, lost=lost)
        elif isinstance(effect, CallGroup):
            consumer = self._consumers[effect.entry]
            consumer.calls.append(effect)
            self._work(consumer)
        else:
            self.request(effect.entry, effect.n)

    # Messages to the consumer.

    def _write(self, consumer: _Consumer, lease: MemberLease, deliveries: Sequence[GroupDelivery]) -> None:
        answer = deliveries_json(tuple(deliveries), consumer.log.token, consumer.join_request.integers)
        lease.held.note(deliveries)
        self._perform(consumer.entry.delivered(answer))

    def ended(self, consumer: _Consumer, error: Exception | None) -> None:
        """Writes the last message to a consumer."""
        entry = consumer.entry
        if error is None:
            self._perform(self._session.left(entry))
        else:
            problem = describe(error, lambda position: str(consumer.log.token(position)))
            self._perform(self._session.failed(entry, problem))

    def _begin(self, consumer: _Consumer, lease: MemberLease) -> None:
        """Confirms the joining and starts the deliveries; deliveries sent before that did not arrive are sent again first."""
        held, entry, request = lease.held, consumer.entry, consumer.join_request
        reply = MemberReply(held.group.name, held.member.name, held.generation)
        feed = held.member.deliveries(history=request.history, nbytes=consumer.lane.batch_bytes)
        missing = held.missing(request.received if request.generation == held.generation else 0)

        def begin(_: object = None) -> None:
            if not entry.ended:
                self._perform(entry.joined(consumer.name, reply))
                feed.subscribe(consumer, executor=consumer.lane)

        if not missing:
            begin()
            return
        self._on_thread(consumer, lambda: held.member.give_back(missing), begin)

    # Calls.

    def _work(self, consumer: _Consumer) -> None:
        """Carries out the waiting calls on a thread, one batch at a time, and answers them."""
        lease = consumer.lease
        if consumer.busy or not consumer.calls or lease is None:
            return
        calls, consumer.calls, consumer.busy = list(consumer.calls), deque(), True
        work = partial(_do_all, consumer.log, lease.held, [call.call for call in calls])

        def done(result: Callable[[], list[object]]) -> None:
            consumer.busy = False
            try:
                answers = result()
            except Exception as error:  # noqa: BLE001 - no thread could carry them out
                answers = [describe(error)] * len(calls)
            for call, answer in zip(calls, answers, strict=True):
                self._perform(consumer.entry.answered(call.n, answer))
            self._work(consumer)
            self._let_go(consumer)

        self._on_thread(consumer, work, done)

    def _let_go(self, consumer: _Consumer) -> None:
        if not consumer.busy:
            super()._let_go(consumer)


# On a thread.


def _do_all(log: "ChangeLog", held: HeldMember, calls: Sequence[ConsumerCall[Any, Any]]) -> list[object]:
    """Carries out calls in order; returns a result or a problem for each. One sync at the end makes all durable ones durable."""

    def token(position: Position) -> str:
        return str(log.token(position))

    answers: list[object] = []
    for call in calls:
        try:
            answers.append(_do(log, held, call, token))
        except Exception as error:  # noqa: BLE001 - any error concerns only this call
            answers.append(describe(error, token))
    durable = [at for at, call in enumerate(calls) if isinstance(call, AckCall) and call.durable]
    if durable:
        try:
            held.member.ack(durable=True)
        except Exception as error:  # noqa: BLE001 - any error concerns only the durable calls
            problem = describe(error, token)
            for at in durable:
                answers[at] = problem
    return answers


def _do(
    log: "ChangeLog", held: HeldMember, call: ConsumerCall[Any, Any], token: Callable[[Position], str]
) -> Mapping[str, object]:
    if isinstance(call, PendingCall):
        total, rows = call.run(log, held.group)
        return {"total": total, "rows": pending_json(rows, token)}
    if isinstance(call, ClaimCall):
        return _claim(log, held, call, token)
    return {"count": call.run(log, held.member)}


def _claim(
    log: "ChangeLog", held: HeldMember, call: ClaimCall, token: Callable[[Position], str]
) -> Mapping[str, object]:
    claimed = call.run(log, held.member)
    try:
        deliveries = deliveries_json(claimed.deliveries, log.token, Integers.NUMBER)
    except BaseException:
        held.member.give_back(claimed.deliveries)
        raise
    return {
        "deliveries": msgspec.Raw(deliveries),
        "next": None if claimed.next is None else token(claimed.next),
        "lost": [token(one) for one in claimed.lost],
    }
